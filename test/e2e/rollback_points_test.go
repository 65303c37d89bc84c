package e2e

import (
	"strings"
	"time"
)

// siteName is the sandbox that clusters are made on which shall be the same.
const siteName = "e2e-crash"

// siteRange is the range for the addresses of its machines.
const siteRange = "198.19.0.0/16"

// fixedBoundaries lists the boundaries at which TestCrash kills the manager, in addition
// to moments within steps.
var fixedBoundaries = []struct{ boundary, reason string }{
	{"os.kernel@" + siteName + "-2", "a host is prepared, and carries nothing of Kubernetes"},
	{"runtime.images@" + siteName + "-1", "all is on the control plane, and kubeadm has not begun"},
	{"kubeadm.init.certs@" + siteName + "-1", "there is a CA, and no cluster"},
	{"join.token@", "only the manager that died knows the token: no journal holds it"},
	{"nodes.ready@" + siteName + "-3", "all have joined, and little is left to do"},
}

// A troublePoint is a step in whose middle something befalls its host.
type troublePoint struct{ name, task, host string }

var troublePoints = []troublePoint{
	{"containerd on a worker", "runtime.containerd", siteName + "-3"},
	{"kubeadm init, before there is an API", "kubeadm.init.certs", siteName + "-1"},
	{"kubeadm init, while the control plane starts", "kubeadm.init.wait", siteName + "-1"},
	{"kubeadm join on a worker", "join.kubelet-start", siteName + "-3"},
}

// newMoment is when that is under way.
func (p troublePoint) newMoment() *moment {
	here := func(h happening) bool { return h.Task == p.task && h.Host == p.host }
	switch {
	case strings.HasPrefix(p.task, "runtime."):
		return &moment{name: "inside a blob transfer of " + p.task, at: func(h happening) bool { return here(h) && h.isTransferring() }}
	case p.task == "kubeadm.init.wait": // for six seconds or more
		return &moment{name: "inside " + p.task, at: func(h happening) bool { return here(h) && h.beginsTask(p.task) }, wait: 2 * time.Second}
	}
	return inPhase(p.task, p.host)
}
