// Package network installs the pod network.
package network

import (
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

//go:embed templates
var files embed.FS

// InstallNetwork is the module that installs the network plugin. With plugin none it is
// empty: the user installs a network.
func InstallNetwork(env module.Env) engine.Module {
	m := engine.Module{Name: "network"}
	if env.Cluster.Spec.Network.Plugin != "flannel" {
		return m
	}
	objects := func() ([]*unstructured.Unstructured, error) { return flannelObjects(env) }
	m.Tasks = []engine.Task{
		{
			ID: "network.flannel", Title: "install flannel", Manager: true,
			Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			Run:      module.KeepObjects(module.StaticObjects(objects)),
		},
		{
			ID: "network.cni", Title: "configure pod network", On: module.IsNode,
			Needs: []string{"network.flannel"}, Timeout: 6 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) { return cniOps() },
		},
	}
	return m
}

// cniOps waits for flannel on a host before it writes the CNI configuration for containerd,
// so that no pod starts in between.
func cniOps() (op.List, error) {
	conf, err := files.ReadFile("templates/10-flannel.conflist")
	if err != nil {
		return nil, err
	}
	return op.List{
		op.Wait{Path: "/run/flannel/subnet.env", TimeoutSeconds: 300},
		op.File{Path: "/etc/cni/net.d/10-flannel.conflist", Content: conf},
	}, nil
}

func flannelObjects(env module.Env) ([]*unstructured.Unstructured, error) {
	conf, err := netConf(env)
	if err != nil {
		return nil, err
	}
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	text, err := module.RenderTemplate(files, "flannel.yaml", map[string]any{
		"Image": env.Release.ImageRefs()["flannel"], "NetConf": conf, "APIHost": ep.Domain, "APIPort": ep.Port,
		"Interface":    interfaceArgs(env),
		"ConfigDigest": fmt.Sprintf("%x", sha256.Sum256([]byte(conf)))[:16],
	})
	if err != nil {
		return nil, err
	}
	return kube.DecodeObjects(text)
}

// interfaceArgs returns the arguments of flannel for the interface with the address of the
// node. Without them flannel uses the interface of the default route, which other nodes
// may not reach, or which does not exist. In dual stack flannel accepts both addresses
// only through one pattern: the address of the node, and any address of the other IP
// version on the same interface. The first pattern fits nodes with an IPv4 address, the
// second nodes with an IPv6 address.
func interfaceArgs(env module.Env) []string {
	if len(env.Cluster.Spec.Network.PodCIDR) < 2 {
		return []string{"--iface=$(NODE_IP)"}
	}
	return []string{"--iface-regex=^($(NODE_IP)|.*:.*)$", `--iface-regex=^($(NODE_IP)|[0-9.]+\.[0-9]+)$`}
}

// netConf returns the configuration of flannel, on one line.
func netConf(env module.Env) (string, error) {
	n := env.Cluster.Spec.Network
	backend := map[string]any{"Type": n.Flannel.Backend}
	if n.Flannel.MTU > 0 {
		backend["MTU"] = n.Flannel.MTU
	}
	conf := map[string]any{"EnableNFTables": true, "Backend": backend, "EnableIPv4": false}
	for _, c := range n.PodCIDR {
		if strings.Contains(c, ":") {
			conf["EnableIPv6"], conf["IPv6Network"] = true, c
		} else {
			conf["EnableIPv4"], conf["Network"] = true, c
		}
	}
	text, err := json.Marshal(conf)
	return string(text), err
}
