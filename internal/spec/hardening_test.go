package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestHardening_KeepsUserSettings(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		change       func(*v1alpha1.Kubernetes)
		anonymous    bool
		gone         []string // of the API server's arguments and the kubelet's fields
		told         []string
	}{
		{"all of it", "nothing is in its way", func(*v1alpha1.Kubernetes) {}, true, nil, nil},
		{
			"an argument", "what the user says wins, and is told", func(k *v1alpha1.Kubernetes) {
				k.APIServer.ExtraArgs = map[string]string{"profiling": "true", "v": "2"}
			}, true, []string{"profiling"}, []string{"spec.kubernetes.apiServer.extraArgs[profiling]"},
		},
		{
			"the same", "there is nothing to tell", func(k *v1alpha1.Kubernetes) {
				k.APIServer.ExtraArgs = map[string]string{"profiling": "false"}
			}, true, []string{"profiling"}, nil,
		},
		{
			"who may sign in", "an API server takes one file or these arguments, not both", func(k *v1alpha1.Kubernetes) {
				k.APIServer.ExtraArgs = map[string]string{"oidc-issuer-url": "https://example.com"}
			}, false, []string{authenticationFlag}, []string{"spec.kubernetes.apiServer.extraArgs[oidc-issuer-url]"},
		},
		{
			"a field of kubelets", "it wins whole", func(k *v1alpha1.Kubernetes) {
				k.Kubelet.Config = map[string]any{"readOnlyPort": 10255}
			}, true, []string{"readOnlyPort"}, []string{"spec.kubernetes.kubelet.config.readOnlyPort"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.Kubernetes.Hardening = true
			tc.change(&c.Spec.Kubernetes)
			h, all := HardeningSettings(c), hardeningProfile()
			var gone, told []string
			for _, name := range sortedKeys(all.APIServer) {
				if _, ok := h.APIServer[name]; !ok {
					gone = append(gone, name)
				}
			}
			for _, name := range sortedKeys(all.Kubelet) {
				if _, ok := h.Kubelet[name]; !ok {
					gone = append(gone, name)
				}
			}
			for _, d := range Validate(c, ValidateOptions{}) {
				if d.ID == idHardeningOverruled {
					told = append(told, d.Path)
				}
			}
			if h.ConfiguresAnonymous() != tc.anonymous || cmp.Diff(tc.gone, gone) != "" || cmp.Diff(tc.told, told) != "" {
				t.Errorf("%s: strangers are seen to: %t; left out: %v, want %v; told: %v, want %v", tc.reason,
					h.ConfiguresAnonymous(), gone, tc.gone, told, tc.told)
			}
		})
	}
	if h := HardeningSettings(&v1alpha1.Cluster{}); h.APIServer != nil || h.Kubelet != nil || h.ConfiguresAnonymous() {
		t.Errorf("without the profile: %+v", h)
	}
}
