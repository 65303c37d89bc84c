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

// relayTask gives a worker the address of the API's own Service before there
// are Services: kube-proxy, which makes them, needs an API server itself. The
// node holds the address, and what is said to it there goes to an API server
// that is alive. Once kube-proxy has its rules they come first, for new
// connections; what was begun stays where it is. A static pod, so that nothing
// waits for anything at boot.
func relayTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepRelay, Title: "relay to the API until there are Services", On: module.JoinsAsWorker,
		When:     inMode(env, v1alpha1.EndpointUpdater),
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			ep := env.Cluster.Spec.ControlPlaneEndpoint
			keeper, err := module.Image(s, "keepalived")
			if err != nil {
				return nil, err
			}
			config, err := module.Render(files, "address.conf", map[string]any{"Prefix": prefix(ep.Address)})
			if err != nil {
				return nil, err
			}
			b := balancer{name: "slipway-relay", bind: ep.Address, keeper: keeper, keeperConfig: config}
			list, err := b.files(env, s)
			return append(list, op.PutBack{Step: stepRelay}), err
		},
	}
}

// prefix is an address as one alone.
func prefix(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil { // the file's own check has said so
		return address
	}
	return netip.PrefixFrom(ip, ip.BitLen()).String()
}

// updaterTask keeps a Service whose endpoints are the API servers: the
// apiserver-updater on one of the control planes follows them.
func updaterTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "endpoint.updater", Title: "keep the API's own Service", Manager: true,
		When:     inMode(env, v1alpha1.EndpointUpdater),
		Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run:      module.Objects(module.Wanted(func() ([]*unstructured.Unstructured, error) { return updater(env) })),
	}
}

func updater(env module.Env) ([]*unstructured.Unstructured, error) {
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	text, err := module.Render(files, "updater.yaml", map[string]any{
		"ClusterIP": ep.Address, "Port": ep.Port, "APIPort": ep.Port, "Image": env.Release.ImageRefs()["apiserver-updater"],
	})
	if err != nil {
		return nil, err
	}
	return kube.Objects(text)
}

// updaterTraces are what keeps the Service and all that it makes by itself,
// which comes first: it is deleted last, when nobody may make it any more.
func updaterTraces(env module.Env) ([]*unstructured.Unstructured, error) {
	made, err := module.Render(files, "updater-made.yaml", nil)
	if err != nil {
		return nil, err
	}
	traces, err := kube.Objects(made)
	if err != nil {
		return nil, err
	}
	objs, err := updater(env)
	return append(traces, objs...), err
}
