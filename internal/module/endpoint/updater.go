package endpoint

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

const stepRelay = "endpoint.relay"

// relayTask gives a worker the address of the API Service before Services work:
// kube-proxy, which implements them, needs an API server itself. The node holds the
// address, and forwards connections to an API server that is alive. When kube-proxy has
// its rules, they take precedence for new connections; existing connections remain. It is
// a static pod, so there are no dependencies at boot.
func relayTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepRelay, Title: "set up API relay", On: module.JoinsAsWorker,
		When:     inMode(env, v1alpha1.EndpointUpdater),
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			ep := env.Cluster.Spec.ControlPlaneEndpoint
			keeper, err := module.FindImage(s, "keepalived")
			if err != nil {
				return nil, err
			}
			config, err := module.RenderTemplate(files, "address.conf", map[string]any{"Prefix": addressPrefix(ep.Address)})
			if err != nil {
				return nil, err
			}
			b := balancer{name: "slipway-relay", bind: ep.Address, keeper: keeper, keeperConfig: config}
			list, err := b.renderFiles(env, s)
			return append(list, op.RevertStep{Step: stepRelay}), err
		},
	}
}

// addressPrefix returns an address as a prefix of a single address.
func addressPrefix(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil { // the validation of the file has reported it
		return address
	}
	return netip.PrefixFrom(ip, ip.BitLen()).String()
}

// updaterTask keeps a Service whose endpoints are the API servers. The apiserver-updater
// on one of the control planes updates them.
func updaterTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "endpoint.updater", Title: "set up API Service", Manager: true,
		When:     inMode(env, v1alpha1.EndpointUpdater),
		Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run:      module.KeepObjects(module.StaticObjects(func() ([]*unstructured.Unstructured, error) { return updaterObjects(env) })),
	}
}

func updaterObjects(env module.Env) ([]*unstructured.Unstructured, error) {
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	text, err := module.RenderTemplate(files, "updater.yaml", map[string]any{
		"ClusterIP": ep.Address, "Port": ep.Port, "APIPort": ep.Port, "Image": env.Release.ImageRefs()["apiserver-updater"],
	})
	if err != nil {
		return nil, err
	}
	return kube.DecodeObjects(text)
}

// updaterTraces returns the objects that keep the Service, and the objects that they
// create. The latter come first and are deleted last, when nothing can create them again.
func updaterTraces(env module.Env) ([]*unstructured.Unstructured, error) {
	made, err := module.RenderTemplate(files, "updater-made.yaml", nil)
	if err != nil {
		return nil, err
	}
	traces, err := kube.DecodeObjects(made)
	if err != nil {
		return nil, err
	}
	objs, err := updaterObjects(env)
	return append(traces, objs...), err
}
