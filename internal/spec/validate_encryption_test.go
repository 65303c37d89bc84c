package spec

import (
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestEncryption_RefusesUnsafeSettings(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		encryption   v1alpha1.Encryption
		args         map[string]string
		want         string // "" is fine
	}{
		{"nothing said", "all of it has defaults", v1alpha1.Encryption{}, nil, ""},
		{
			"all said", "these are what there is",
			v1alpha1.Encryption{Provider: "aescbc", Resources: []string{"secrets", "configmaps"}, Generation: 3},
			nil, "",
		},
		{"aesgcm", "nobody counts its writes", v1alpha1.Encryption{Provider: "aesgcm"}, nil, idEncryptionCipher},
		{"kms", "it runs somewhere else", v1alpha1.Encryption{Provider: "kms"}, nil, idEncryptionCipher},
		{"no such resource", "API servers would not start", v1alpha1.Encryption{Resources: []string{"secret"}}, nil, idEncryptionResource},
		{"twice", "API servers would not start", v1alpha1.Encryption{Resources: []string{"secrets", "secrets"}}, nil, idEncryptionResource},
		{"less than nothing", "it counts", v1alpha1.Encryption{Generation: -1}, nil, idInvalidValue},
		{
			"a configuration of the user's", "one would win, and not say so",
			v1alpha1.Encryption{},
			map[string]string{"encryption-provider-config": "/etc/kubernetes/pki/mine.yaml"},
			IDEncryptionForeign,
		},
		{
			"automatic reload", "it would go by what is half written",
			v1alpha1.Encryption{},
			map[string]string{"encryption-provider-config-automatic-reload": "true"},
			IDEncryptionForeign,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.Kubernetes.Encryption, c.Spec.Kubernetes.APIServer.ExtraArgs = &tc.encryption, tc.args
			var got []string
			for _, d := range Validate(c, ValidateOptions{}) {
				if strings.HasPrefix(d.Path, pathEncryption) || strings.Contains(d.Path, "extraArgs") {
					got = append(got, d.ID)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %v, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}
