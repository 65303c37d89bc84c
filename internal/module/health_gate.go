package module

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// steadySeconds is how long a unit must run with new settings before the node counts
	// as working: a unit that rejects its settings exits within that time.
	steadySeconds = 10
	// wellSeconds is how long a kubelet may take to report that it is healthy.
	// againSeconds is how long to wait for each of the others.
	wellSeconds, againSeconds = 60, 120
)

// VerifyServing returns a check that a host still does everything it did before a step
// changed settings without a restart. settle means that the effect of the settings may
// take a while to show.
func (e Env) VerifyServing(h *engine.Host, step string, settle bool) op.List {
	if !e.IsRunning || !e.IsMember(h) {
		return nil
	}
	o := op.HealthGate{Name: step, Waits: e.HealthGate(h, "")}
	if e.RunsEtcd(h) {
		w := e.WaitLocalMemberHealthy()
		w.TimeoutSeconds = againSeconds
		o.Waits = append(o.Waits, *w)
	}
	if settle {
		o.SettleSeconds = steadySeconds
	}
	return op.List{o}
}

// IsMember reports whether a host is part of the cluster: a node, or an etcd member.
func (e Env) IsMember(h *engine.Host) bool {
	return IsJoined(h) || e.RunsEtcd(h) && h.Facts != nil && slices.Contains(h.Facts.Present, facts.EtcdJoined)
}

// HealthGate returns waits for what a node did before and must do again after a restart
// of a unit ("" for none): its kubelet is healthy, the node is ready, and a control
// plane serves. The checks run on the node itself and need no other host.
func (e Env) HealthGate(h *engine.Host, unit string) []op.Wait {
	if !e.IsRunning || !IsJoined(h) {
		return nil
	}
	since := func(w op.Wait) op.Wait {
		if w.TimeoutSeconds = againSeconds; unit != "" {
			w.Since, w.SinceSeconds = unit, steadySeconds
		}
		return w
	}
	var out []op.Wait
	if at := e.kubeletHealth(); at != "" {
		well := since(op.Wait{HTTP: at})
		well.TimeoutSeconds = wellSeconds
		out = append(out, well)
	}
	out = append(out, since(op.Wait{Name: "readiness of node " + h.Name, Program: KubectlCommand("/etc/kubernetes/kubelet.conf",
		"wait", "node/"+h.Name, "--for=condition=Ready", "--timeout=5s")}))
	if h.HasRole(v1alpha1.RoleControlPlane) {
		out = append(out, since(op.Wait{HTTP: e.LocalAPIReadyURL()}))
	}
	return out
}

// KubectlCommand returns a kubectl command with a kubeconfig of the host. It must leave
// no files on the host, so its cache directory cannot exist.
func KubectlCommand(kubeconfig string, args ...string) []string {
	return append([]string{
		"/usr/local/bin/kubectl", "--kubeconfig=" + kubeconfig, "--request-timeout=5s", "--cache-dir=/dev/null/none",
	}, args...)
}

// LocalAPIReadyURL returns the URL at which the API server of a control plane itself
// reports that it is ready.
func (e Env) LocalAPIReadyURL() string {
	port := strconv.Itoa(e.Cluster.Spec.ControlPlaneEndpoint.Port)
	return "https://" + net.JoinHostPort("127.0.0.1", port) + "/readyz"
}

// kubeletHealth returns the URL at which a kubelet reports that it is healthy; "" if this
// is disabled.
func (e Env) kubeletHealth() string {
	conf := e.Cluster.Spec.Kubernetes.Kubelet.Config
	host, port := "127.0.0.1", "10248"
	if v, ok := conf["healthzPort"]; ok {
		port = fmt.Sprint(v)
	}
	if v, ok := conf["healthzBindAddress"].(string); ok {
		if ip := net.ParseIP(v); ip != nil && !ip.IsUnspecified() {
			host = v
		}
	}
	if port == "0" {
		return ""
	}
	return "http://" + net.JoinHostPort(host, port) + "/healthz"
}
