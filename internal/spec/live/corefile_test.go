package live

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// FuzzParseCorefile proves that no Corefile stops the description of a cluster.
func FuzzParseCorefile(f *testing.F) {
	f.Add(".:53 {\n    hosts {\n      192.0.2.1 a\n    }\n    forward . /etc/resolv.conf\n}\nlab.example.com {\n    cache 5\n}")
	f.Add("}\n{\n{\nforward\n}\nhosts {\n{\n192.0.2.1\n")
	f.Fuzz(func(_ *testing.T, text string) {
		d := &describer{s: State{Corefile: text}, out: &v1alpha1.Cluster{}, comments: yamlfile.Comments{}}
		d.describeDNS()
	})
}
