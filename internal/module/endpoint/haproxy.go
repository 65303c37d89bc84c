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

const (
	haproxyConfig   = "/etc/kubernetes/slipway/haproxy.cfg"
	haproxyManifest = "/etc/kubernetes/manifests/slipway-haproxy.yaml"
	caCert          = "/etc/kubernetes/pki/ca.crt"
)

// haproxyTask keeps a load balancer on every worker: a static pod on the
// node's own network, which a kubelet starts before it knows the API and needs
// no pod network. The manifest names the digests of configuration and image, so
// that other content is another pod: that closes the connections to a control plane
// that has gone, wants no program in the image but HAProxy, and survives
// whatever cuts it, for the kubelet looks at files alone. Clients connect again
// within a second or two.
func haproxyTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "endpoint.haproxy", Title: "balance the API", On: module.JoinsAsWorker,
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			back := op.PutBack{Step: "endpoint.haproxy"}
			if env.Cluster.Spec.ControlPlaneEndpoint.Mode != v1alpha1.EndpointHAProxy {
				return op.List{back}, nil
			}
			image, err := engine.Get(s, module.KeyContent).Image("haproxy", module.Arch(s.Host()))
			if err != nil {
				return nil, fmt.Errorf("taking image haproxy from the bundle: %w", err)
			}
			list, err := haproxy(env, s.Host(), image)
			return append(list, back), err
		},
	}
}

func haproxy(env module.Env, h *engine.Host, image op.Image) (op.List, error) {
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
		"Bind": net.JoinHostPort(spec.Loopback(h.Host), port), "Domain": ep.Domain, "CA": caCert, "Servers": servers,
	})
	if err != nil {
		return nil, err
	}
	manifest, err := module.Render(files, "haproxy.yaml", map[string]any{
		"Image": image.Ref, "ImageDigest": image.Manifest.Digest, "Config": haproxyConfig, "CA": caCert,
		"LowPort": ep.Port < 1024,
		"Digest":  fmt.Sprintf("%x", sha256.Sum256(config))[:16],
	})
	if err != nil {
		return nil, err
	}
	return op.List{
		op.Dir{Path: "/etc/kubernetes/slipway", Mode: 0o700},
		op.File{Path: haproxyConfig, Content: config},
		op.File{Path: haproxyManifest, Content: manifest, Mode: 0o600},
	}, nil
}
