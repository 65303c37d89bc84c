package inspect

import (
	"fmt"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/kubeadm"
)

// evaluate sets the verdict, the warnings and the next command.
func (s *Session) evaluate(in *Info, c *v1alpha1.Cluster, ops []v1alpha1.Operation) {
	warn := warnInto(&in.Warnings)
	if len(s.Admin) > 0 && !in.Endpoint.Answers {
		warn(idAPIDown, "", "", "the API does not respond (%s); the following data is from the hosts and the saved state", in.Endpoint.Message)
	}
	s.evaluateHosts(in, warn)
	switch {
	case in.Etcd.Message == "":
		evaluateEtcd(&in.Etcd, warn)
	case len(s.Admin) > 0 && s.hasReachableControlPlane(): // otherwise the warnings about its hosts say so
		warn(idEtcdMember, "", "", "etcd cannot be queried (%s)", in.Etcd.Message)
	}
	certificateCheck{cluster: in.Name, now: s.in.c.Now(), validity: module.Env{Cluster: c}.CertValidity()}.evaluate(in.Certificates, warn)
	evaluateAddOns(in, warn)
	s.evaluateSchedules(warn)
	running := false
	// Operations that do not apply the description do not finish an earlier one.
	latest := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		k := operation.Kind(o.Spec.Kind)
		return k.Resumable() && (k.Supersedes() || o.Status.State != v1alpha1.OperationSucceeded)
	})
	if latest >= 0 {
		switch o := ops[latest]; o.Status.State {
		case v1alpha1.OperationRunning:
			running = true
		case v1alpha1.OperationFailed, v1alpha1.OperationCancelled:
			warn(idOperationUnfinished, "", "find the cause: slipway operations show "+o.Name+" --failed",
				"the latest operation, %s %s, is unfinished", o.Spec.Kind, o.Name)
		}
	}
	s.setVerdict(in, c, running)
}

func (s *Session) evaluateHosts(in *Info, warn warnFunc) {
	for _, h := range s.Hosts {
		if h.Err != nil {
			h.warnUnreachable(idNodeNotReady, warn)
		}
		if h.kubelet != "" && h.kubelet != "active" && in.Phase != v1alpha1.PhasePending {
			warn(idNodeNotReady, h.Spec.Name, "", "its kubelet is %s", h.kubelet)
		}
		if h.triedEndpoint && h.endpoint != nil && in.Endpoint.Answers {
			warn(idEndpointDead, h.Spec.Name, "", "the API does not respond to this node: %v", h.endpoint)
		}
	}
	for _, n := range in.Nodes {
		if n.Ready == "NotReady" {
			warn(idNodeNotReady, n.Name, "", "the node is not ready: %s", n.Message)
		}
		if n.Ready == "Ready" && n.Cordoned {
			warn(idNodeNotReady, n.Name, "uncordon the node: slipway kubectl "+in.Name+" -- uncordon "+n.Name,
				"the node is cordoned: no new pods are scheduled on it")
		}
	}
}

// evaluateAddOns warns about add-ons with too few pods. It does not warn if the number of
// missing pods can be explained by nodes that are not ready.
func evaluateAddOns(in *Info, warn warnFunc) {
	down := 0
	for _, n := range in.Nodes {
		if n.Ready == "NotReady" {
			down++
		}
	}
	for _, a := range in.AddOns {
		if a.Missing {
			hint := "recreate the add-on: slipway apply -f FILE"
			if a.Name == "coredns" || a.Name == "kube-proxy" { // kubeadm creates them
				hint = "recreate the add-on on one control plane: kubeadm init phase addon " + a.Name + " --config " + kubeadm.ConfigFile
			}
			warn(idAddOnNotReady, "", hint, "%s: missing in the cluster", a.Name)
		}
		if missing := a.Wanted - a.Ready; a.Wanted > 0 && a.Ready >= 0 && missing > 0 && (a.Ready == 0 || missing > down) {
			warn(idAddOnNotReady, "", "find the cause: slipway kubectl "+in.Name+" -- get events -n "+a.Namespace,
				"%s: %d of %d pods are ready", a.Name, a.Ready, a.Wanted)
		}
	}
}

// setVerdict sets the verdict, the summary and the next command.
func (s *Session) setVerdict(in *Info, c *v1alpha1.Cluster, running bool) {
	ready := 0
	for _, n := range in.Nodes {
		if n.Ready == "Ready" {
			ready++
		}
	}
	in.Next = "slipway kubectl " + in.Name + " -- get pods -A"
	switch {
	case len(s.Admin) == 0:
		in.Verdict, in.Summary = Absent, "its control plane is not running yet"
	case !in.Endpoint.Answers:
		in.Verdict, in.Summary = Down, "the API does not respond"
		in.Next = "slipway exec " + in.Name + "@role=control-plane --sudo -- journalctl -u kubelet -n 30 --no-pager"
		if !s.hasReachableControlPlane() {
			in.Summary = "no control plane is reachable, and the API does not respond"
			in.Next = "slipway precheck " + in.Name
		}
	case len(in.Warnings) > 0:
		in.Verdict = Degraded
		in.Summary = fmt.Sprintf("the API responds; ready nodes: %d of %d", ready, len(in.Nodes))
	default:
		in.Verdict = Healthy
		in.Summary = fmt.Sprintf("the API responds to every node; ready nodes: %d of %d", ready, len(in.Nodes))
	}
	switch {
	case running:
		in.Next = "slipway operations watch " + c.Status.Operation
	case slices.ContainsFunc(in.Warnings, func(d diag.Diagnostic) bool { return d.ID == idOperationUnfinished }):
		in.Next = "slipway resume " + in.Name
	}
}
