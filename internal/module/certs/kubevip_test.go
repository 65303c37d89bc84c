package certs

import (
	"slices"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// TestRenewCerts_RenewsKubeVIPOnlyInItsMode: its certificate is renewed like others,
// only on control planes and in its mode. kube-vip is restarted for a new certificate
// and for a new CA.
func TestRenewCerts_RenewsKubeVIPOnlyInItsMode(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		mode         v1alpha1.EndpointMode
		role         v1alpha1.Role
		want         bool
	}{
		{"control plane", "kube-vip runs there", v1alpha1.EndpointKubeVIP, v1alpha1.RoleControlPlane, true},
		{"worker", "a worker has no kube-vip", v1alpha1.EndpointKubeVIP, v1alpha1.RoleWorker, false},
		{"another mode", "kube-vip does not run", v1alpha1.EndpointKeepalived, v1alpha1.RoleControlPlane, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.Hosts = []v1alpha1.Host{{Name: "a", Address: "192.0.2.1", Roles: []v1alpha1.Role{tc.role}}}
			c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Mode: tc.mode, Address: "192.0.2.100"}
			spec.SetDefaults(c, spec.DefaultOptions{KubernetesVersion: "v1.37.1"})
			env := module.Env{Cluster: c}
			renewed := slices.ContainsFunc(autoRenewable(env, c.Spec.Hosts[0]), func(o op.Op) bool {
				r, ok := o.(op.RenewCertificate)
				return ok && r.Path == module.KubeVIPCert && r.Key == module.KubeVIPKey && r.CAKey == "/etc/kubernetes/pki/ca.key"
			})
			if renewed != tc.want {
				t.Errorf("renewed automatically: %t: %s", renewed, tc.reason)
			}
			restarted := slices.ContainsFunc(restartOps(env), func(o op.Op) bool {
				r := o.(op.StaticPodRestart)
				return r.Manifest == module.KubeVIPManifest && slices.Contains(r.Files, module.KubeVIPCert) && slices.Contains(r.Files, AuthorityCert)
			})
			if want := tc.mode == v1alpha1.EndpointKubeVIP; restarted != want {
				t.Errorf("restarted for its certificate and its CA: %t", restarted)
			}
		})
	}
	if !slices.Contains(RenewableNames(), nameKubeVIP) {
		t.Error("the name is not listed")
	}
}
