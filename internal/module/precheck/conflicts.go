package precheck

import (
	"fmt"

	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// checkConflicts checks other settings of the host that can conflict with a node.
func (r *report) checkConflicts() {
	f := r.host.Facts
	if f.SELinux == "enforcing" {
		r.warn(idSELinux, "run ausearch -m avc on the host if containers are denied access, or set SELINUX=permissive in /etc/selinux/config",
			"SELinux is enforcing; Slipway has no SELinux policy and is not tested with it")
	}
	if len(f.Firewall) > 0 {
		r.warn(idFirewall, "open these ports between the nodes, and allow traffic of the pod and service networks",
			"%s drops packets that no rule allows; nodes reach each other at %s", joinItems(f.Firewall), r.openPorts())
	}
	skip := r.cluster.Spec.System.SkipConfigure
	if len(f.Swap) > 0 && skip && !spec.ToleratesSwap(r.cluster) && r.isNode() {
		r.fail(idSwap, "run swapoff -a and remove swap from /etc/fstab, or write failSwapOn: false under spec.kubernetes.kubelet.config",
			"swap is on (%s), and spec.system.skipConfigure leaves it on; the kubelet does not start with swap", joinItems(f.Swap))
	}
}

// openPorts returns the ports that a firewall must allow: "10250/tcp (kubelet), …".
func (r *report) openPorts() string {
	var out []string
	for _, p := range hostroles.RequiredPorts(r.cluster, r.host.Spec.Roles) {
		if p.Open {
			out = append(out, fmt.Sprintf("%d/%s (%s)", p.Number, p.Protocol, p.Component))
		}
	}
	return joinItems(out)
}

// checkPorts reports processes that listen on ports of the components.
func (r *report) checkPorts() {
	for _, p := range hostroles.RequiredPorts(r.cluster, r.host.Spec.Roles) {
		for _, l := range r.host.Facts.Listeners {
			protocol := l.Protocol
			if protocol == "" {
				protocol = "tcp"
			}
			if l.Port != p.Number || protocol != p.Protocol {
				continue
			}
			if p.Component == hostroles.Registry && r.host.IsManagedFor(r.cluster.Name) {
				break // a registry is set up before its cluster
			}
			who := l.Process
			if who == "" {
				who = "an unknown process"
			}
			r.fail(idPort, "stop the process, or move it to another port",
				"port %d/%s is in use by %s; %s needs it", p.Number, p.Protocol, who, p.Component)
			break
		}
	}
}
