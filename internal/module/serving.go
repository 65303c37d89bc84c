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
	// steadySeconds is how long a unit must have run with other settings for what
	// its node does to count: what refuses them ends within that time.
	steadySeconds = 10
	// wellSeconds bounds how long a kubelet may take to say that it is well, and
	// againSeconds how long it is waited for each of the others.
	wellSeconds, againSeconds = 60, 120
)

// Serving is what a host of the cluster does, and must do as before after a step
// has given it other settings that restart nothing. settle says that they may take
// a while to show.
func (e Env) Serving(h *engine.Host, step string, settle bool) op.List {
	if !e.Gated || !e.Part(h) {
		return nil
	}
	o := op.Serving{Name: step, Waits: e.Again(h, "")}
	if e.RunsEtcd(h) {
		w := e.OwnMemberServes()
		w.TimeoutSeconds = againSeconds
		o.Waits = append(o.Waits, *w)
	}
	if settle {
		o.SettleSeconds = steadySeconds
	}
	return op.List{o}
}

// Part says that a host is part of the cluster: a node, or a member of etcd.
func (e Env) Part(h *engine.Host) bool {
	return Holds(h) || e.RunsEtcd(h) && h.Facts != nil && slices.Contains(h.Facts.Present, facts.EtcdJoined)
}

// Again is what a node does, and must do again after a restart of one of its
// units ("" is none of them): its kubelet says that it is well, the cluster that
// the node is ready, and a control plane serves. It is asked on the node itself,
// which needs nobody else for it.
func (e Env) Again(h *engine.Host, unit string) []op.Wait {
	if !e.Gated || !Holds(h) {
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
	out = append(out, since(op.Wait{Name: "readiness of node " + h.Name, Program: []string{
		// It is to leave nothing on the host: what it keeps has no place there.
		"/usr/local/bin/kubectl", "--kubeconfig=/etc/kubernetes/kubelet.conf", "--request-timeout=5s", "--cache-dir=/dev/null/none",
		"wait", "node/" + h.Name, "--for=condition=Ready", "--timeout=5s",
	}}))
	if h.HasRole(v1alpha1.RoleControlPlane) {
		out = append(out, since(op.Wait{HTTP: e.OwnReady()}))
	}
	return out
}

// OwnReady is where a control plane's own API server says that it is ready.
func (e Env) OwnReady() string {
	port := strconv.Itoa(e.Cluster.Spec.ControlPlaneEndpoint.Port)
	return "https://" + net.JoinHostPort("127.0.0.1", port) + "/readyz"
}

// kubeletHealth is where a kubelet says that it is well, "" if it is told to say
// it nowhere.
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
