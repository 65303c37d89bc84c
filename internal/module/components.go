package module

import (
	"net"
	"strconv"

	"slipway.dev/slipway/internal/node/op"
)

// componentSeconds is how long a component may take to be healthy again. The controller
// manager and the scheduler exit if they lose their API server. After repeated exits the
// kubelet waits up to five minutes before it starts a container again.
const componentSeconds = 330

// ComponentWaits returns a wait for the controller manager and one for the scheduler of a
// control plane, until they are healthy with the settings that they have now.
func (e Env) ComponentWaits() []op.Wait {
	k := e.Cluster.Spec.Kubernetes
	return []op.Wait{
		waitComponentHealthy("kube-controller-manager", 10257, k.ControllerManager.ExtraArgs),
		waitComponentHealthy("kube-scheduler", 10259, k.Scheduler.ExtraArgs),
	}
}

// ComponentsHealthy ends a step that restarted the API server or these components: both
// use only the API server of their host.
func (e Env) ComponentsHealthy() (out op.List) {
	for _, w := range e.ComponentWaits() {
		out = append(out, w)
	}
	return out
}

// waitComponentHealthy waits for a component at the address that the user may have set.
func waitComponentHealthy(component string, port int, args map[string]string) op.Wait {
	host := args["bind-address"]
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return op.Wait{
		HTTP:           "https://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/healthz",
		Manifest:       "/etc/kubernetes/manifests/" + component + ".yaml",
		TimeoutSeconds: componentSeconds,
	}
}
