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

// haproxyTask runs a load balancer on every worker: a static pod on the host network,
// which a kubelet starts before it reaches the API, and which needs no pod network. The
// manifest has the digests of the configuration and the image, so that another content is
// another pod. The restart closes connections to a removed control plane, needs no other
// program in the image, and survives interruptions, because the kubelet only reads files.
// Clients reconnect within a second or two.
func haproxyTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepHAProxy, Title: "set up API load balancer", On: module.JoinsAsWorker,
		When:     inMode(env, v1alpha1.EndpointHAProxy),
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			b := balancer{name: "slipway-haproxy", bind: spec.LoopbackAddress(s.Host().Host)}
			list, err := b.renderFiles(env, s)
			return append(list, op.RevertStep{Step: stepHAProxy}), err
		},
	}
}

// inMode restricts a task to one endpoint mode.
func inMode(env module.Env, mode v1alpha1.EndpointMode) func(*engine.Scope) bool {
	return func(*engine.Scope) bool { return env.Cluster.Spec.ControlPlaneEndpoint.Mode == mode }
}

// A balancer is a HAProxy for the API servers, as a static pod.
type balancer struct {
	name string
	bind string // an address of the node
	// keeper is the image that gives the node the address, with its configuration. Without
	// it, the node already has the address.
	keeper       op.Image
	keeperConfig []byte
}

// renderFiles returns the configuration and the manifest of the balancer.
func (b balancer) renderFiles(env module.Env, s *engine.Scope) (op.List, error) {
	image, err := module.FindImage(s, "haproxy")
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
	// The order of hosts makes no difference.
	slices.SortFunc(servers, func(a, b server) int { return strings.Compare(a.Name, b.Name) })
	config, err := module.RenderTemplate(files, "haproxy.cfg", map[string]any{
		"Bind": net.JoinHostPort(b.bind, port), "Domain": ep.Domain, "CA": caCert, "Servers": servers,
	})
	if err != nil {
		return nil, err
	}
	configFile, keeperFile := b.filePath(".cfg"), b.filePath("-address.conf")
	manifest, err := module.RenderTemplate(files, "haproxy.yaml", map[string]any{
		"Name": b.name, "Image": image.Ref, "Config": configFile, "CA": caCert,
		"LowPort": ep.Port < 1024, "Keeper": b.keeper.Ref, "KeeperConfig": keeperFile,
		"Digest": shortDigest(config, b.keeperConfig),
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

func (b balancer) filePath(suffix string) string {
	return configDir + "/" + strings.TrimPrefix(b.name, "slipway-") + suffix
}

// shortDigest returns a short digest of contents, for a manifest.
func shortDigest(contents ...[]byte) string {
	h := sha256.New()
	for _, c := range contents {
		fmt.Fprintf(h, "%d:%s", len(c), c)
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:16]
}

// sortOps sorts operations.
func sortOps(list op.List) op.List {
	slices.SortFunc(list, func(a, b op.Op) int { return strings.Compare(a.Target(), b.Target()) })
	return list
}
