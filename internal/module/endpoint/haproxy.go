package endpoint

import (
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const stepHAProxy = "endpoint.haproxy"

// haproxyTask keeps a load balancer on every worker: a static pod on the
// node's own network, which a kubelet starts before it knows the API and needs
// no pod network. The manifest names the digests of configuration and image, so
// that other content is another pod: that closes the connections to a control plane
// that has gone, wants no program in the image but HAProxy, and survives
// whatever cuts it, for the kubelet looks at files alone. Clients connect again
// within a second or two.
func haproxyTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepHAProxy, Title: "balance the API", On: module.JoinsAsWorker,
		When:     inMode(env, v1alpha1.EndpointHAProxy),
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			b := balancer{name: "slipway-haproxy", bind: spec.Loopback(s.Host().Host)}
			list, err := b.files(env, s)
			return append(list, op.PutBack{Step: stepHAProxy}), err
		},
	}
}

// inMode has a task wanted in a mode alone.
func inMode(env module.Env, mode v1alpha1.EndpointMode) func(*engine.Scope) bool {
	return func(*engine.Scope) bool { return env.Cluster.Spec.ControlPlaneEndpoint.Mode == mode }
}

// A balancer is a HAProxy in front of the API servers, as a static pod.
type balancer struct {
	name string
	bind string // an address of the node
	// keeper is the image of what gives the node that address, and its
	// configuration; without it the node has it.
	keeper       op.Image
	keeperConfig []byte
}

// files are the balancer's configuration and manifest.
func (b balancer) files(env module.Env, s *engine.Scope) (op.List, error) {
	image, err := module.Image(s, "haproxy")
	if err != nil {
		return nil, err
	}
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	port := strconv.Itoa(ep.Port)
	type server struct{ Name, Address string }
	var servers []server
	for _, cp := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		servers = append(servers, server{cp.Name, net.JoinHostPort(module.InternalAddress(cp), port)})
	}
	// The order of hosts is no difference.
	slices.SortFunc(servers, func(a, b server) int { return strings.Compare(a.Name, b.Name) })
	config, err := module.Render(files, "haproxy.cfg", map[string]any{
		"Bind": net.JoinHostPort(b.bind, port), "Domain": ep.Domain, "CA": caCert, "Servers": servers,
	})
	if err != nil {
		return nil, err
	}
	configFile, keeperFile := b.path(".cfg"), b.path("-address.conf")
	manifest, err := module.Render(files, "haproxy.yaml", map[string]any{
		"Name": b.name, "Image": image.Ref, "Config": configFile, "CA": caCert,
		"LowPort": ep.Port < 1024, "Keeper": b.keeper.Ref, "KeeperConfig": keeperFile,
		"Digest": digest(config, b.keeperConfig),
		"Images": strings.Trim(image.Manifest.Digest+" "+b.keeper.Manifest.Digest, " "),
	})
	if err != nil {
		return nil, err
	}
	list := op.List{op.File{Path: configFile, Content: config}}
	if b.keeper.Ref != "" {
		list = append(list, op.File{Path: keeperFile, Content: b.keeperConfig})
	}
	return append(list, op.File{Path: manifests + "/" + b.name + ".yaml", Content: manifest, Mode: 0o600}), nil
}

func (b balancer) path(suffix string) string {
	return configDir + "/" + strings.TrimPrefix(b.name, "slipway-") + suffix
}

// digest tells contents apart, in a manifest.
func digest(contents ...[]byte) string {
	h := sha256.New()
	for _, c := range contents {
		fmt.Fprintf(h, "%d:%s", len(c), c)
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:16]
}

// sorted brings operations into one order.
func sorted(list op.List) op.List {
	slices.SortFunc(list, func(a, b op.Op) int { return strings.Compare(a.Target(), b.Target()) })
	return list
}
