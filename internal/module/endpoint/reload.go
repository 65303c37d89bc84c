package endpoint

import (
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// ReloadBalancer restarts the load balancer of a node, if it has one, when the CA of
// the API servers changes: it reads the CA only at its start.
func ReloadBalancer(env module.Env, h *engine.Host) op.List {
	name := map[v1alpha1.EndpointMode]string{
		v1alpha1.EndpointHAProxy: "slipway-haproxy",
		v1alpha1.EndpointUpdater: "slipway-relay",
	}[env.Cluster.Spec.ControlPlaneEndpoint.Mode]
	if name == "" || !module.JoinsAsWorker(h) {
		return nil
	}
	return op.List{op.StaticPodRestart{
		Manifest: manifests + "/" + name + ".yaml", Command: []string{"haproxy", "-db", "-f", balancer{name: name}.filePath(".cfg")},
		Files: []string{caCert}, AtOnce: true, TimeoutSeconds: 120,
	}}
}
