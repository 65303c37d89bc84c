// Package dns configures CoreDNS.
package dns

import (
	"embed"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
)

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
		"Domain": env.Cluster.Spec.Kubernetes.DNSDomain, "Upstream": upstream, "Hosts": hosts,
	})
	return string(text), err
}
