// Package dns configures CoreDNS.
package dns

import (
	"cmp"
	"embed"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
)

// defaultCacheSeconds is how long CoreDNS keeps answers, as in the file of kubeadm.
const defaultCacheSeconds = 30

//go:embed templates
var files embed.FS

// ConfigureCoreDNS is the module that keeps the configuration of CoreDNS.
func ConfigureCoreDNS(env module.Env) engine.Module {
	return engine.Module{Name: "dns", Tasks: []engine.Task{{
		ID: "dns.coredns", Title: "configure CoreDNS", Manager: true,
		Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: module.KeepObjects(module.StaticObjects(func() ([]*unstructured.Unstructured, error) {
			text, err := renderCorefile(env)
			if err != nil {
				return nil, err
			}
			return []*unstructured.Unstructured{{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": "coredns", "namespace": "kube-system"},
				"data":     map[string]any{"Corefile": text},
			}}}, nil
		})),
	}}}
}

// renderCorefile returns the configuration of CoreDNS, which reloads it when it changes.
func renderCorefile(env module.Env) (string, error) {
	d := env.Cluster.Spec.DNS
	upstream := "/etc/resolv.conf"
	if len(d.Upstream) > 0 {
		upstream = strings.Join(d.Upstream, " ")
	}
	var hosts []string
	for _, a := range slices.Sorted(maps.Keys(d.Hosts)) {
		hosts = append(hosts, a+" "+strings.Join(d.Hosts[a], " "))
	}
	text, err := module.RenderTemplate(files, "Corefile", map[string]any{
		"Domain": env.Cluster.Spec.Kubernetes.DNSDomain, "Upstream": upstream, "Hosts": hosts, "Zones": renderZones(d.Zones),
	})
	return string(text), err
}

// A zoneBlock holds the values of one server block: CoreDNS uses the block with the longest
// name that matches. These blocks have no loop detection, because it stops CoreDNS: a
// server of one zone must not stop the cluster DNS.
type zoneBlock struct {
	Names, Servers string
	CacheSeconds   int
}

func renderZones(zones []v1alpha1.DNSZone) []zoneBlock {
	var out []zoneBlock
	for _, z := range zones {
		var names []string
		for _, name := range z.Names {
			names = append(names, name+":53")
		}
		out = append(out, zoneBlock{
			Names: strings.Join(names, " "), Servers: strings.Join(z.Servers, " "),
			CacheSeconds: cmp.Or(z.CacheSeconds, defaultCacheSeconds),
		})
	}
	return out
}
