package precheck

import (
	"fmt"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/spec"
)

// surroundings judges what else is set up on the host.
func (r *report) surroundings() {
	f := r.host.Facts
	if f.SELinux == "enforcing" {
		r.warn(idSELinux, "if containers are denied access, see ausearch -m avc on the host, or set SELINUX=permissive in /etc/selinux/config",
			"SELinux is enforcing; Slipway brings no policy for it and has not been proved there")
	}
	if len(f.Firewall) > 0 {
		r.warn(idFirewall, "open these ports between the nodes, and let the pod and service networks through; or turn it off",
			"%s drops packets that nobody has let through; nodes reach each other at %s", list(f.Firewall), r.openPorts())
	}
	skip := r.cluster.Spec.System.SkipConfigure
	if len(f.Swap) > 0 && skip && !spec.ToleratesSwap(r.cluster) && r.node() {
		r.fail(idSwap, "run swapoff -a and take swap out of /etc/fstab; or write failSwapOn: false under spec.kubernetes.kubelet.config",
			"swap is on (%s), and spec.system.skipConfigure leaves it so; the kubelet does not start with it", list(f.Swap))
	}
}

// openPorts are those that must pass a firewall: "10250/tcp (kubelet), …".
func (r *report) openPorts() string {
	var out []string
	for _, p := range facts.Ports(r.cluster, r.host.Spec.Roles) {
		if p.Open {
			out = append(out, fmt.Sprintf("%d/%s (%s)", p.Number, p.Protocol, p.Component))
		}
	}
	return list(out)
}

// ports reports who sits where our components will listen.
func (r *report) ports() {
	for _, p := range facts.Ports(r.cluster, r.host.Spec.Roles) {
		for _, l := range r.host.Facts.Listeners {
			protocol := l.Protocol
			if protocol == "" {
				protocol = "tcp"
			}
			if l.Port != p.Number || protocol != p.Protocol {
				continue
			}
			if p.Component == facts.Registry && r.host.Ours(r.cluster.Name) {
				break // it was made before the cluster is
			}
			who := l.Process
			if who == "" {
				who = "a process that does not say its name"
			}
			r.fail(idPort, "stop it, or move it to another port", "port %d/%s is in use by %s; %s needs it", p.Number, p.Protocol, who, p.Component)
			break
		}
	}
}
