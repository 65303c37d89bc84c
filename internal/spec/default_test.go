package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestKubeletDefaults: kubelets ask the cluster for their serving certificates where they
// can, and where the user has not decided otherwise.
func TestKubeletDefaults(t *testing.T) {
	type object = map[string]any
	for _, tc := range []struct {
		name, reason string
		kubernetes   v1alpha1.Kubernetes
		want         object
		signs        bool
	}{
		{"nothing", "the default", v1alpha1.Kubernetes{}, object{serverTLSBootstrap: true}, true},
		{
			"other settings", "they are kept",
			v1alpha1.Kubernetes{Kubelet: v1alpha1.KubeletSettings{Config: object{"maxPods": 50}}},
			object{"maxPods": 50, serverTLSBootstrap: true},
			true,
		},
		{
			"switched off", "the user decides",
			v1alpha1.Kubernetes{Kubelet: v1alpha1.KubeletSettings{Config: object{serverTLSBootstrap: false}}},
			object{serverTLSBootstrap: false},
			false,
		},
		{
			"own certificates", "nobody asks for others",
			v1alpha1.Kubernetes{Kubelet: v1alpha1.KubeletSettings{Config: object{"tlsCertFile": "/a"}}},
			object{"tlsCertFile": "/a"},
			false,
		},
		{
			"own certificates by a flag", "nobody asks for others",
			v1alpha1.Kubernetes{Kubelet: v1alpha1.KubeletSettings{ExtraArgs: map[string]string{"tls-cert-file": "/a"}}},
			nil, false,
		},
		{
			"switched on by a flag", "it is what the setting does",
			v1alpha1.Kubernetes{Kubelet: v1alpha1.KubeletSettings{ExtraArgs: map[string]string{"rotate-server-certificates": "true"}}},
			nil, true,
		},
		{
			"a cloud provider", "it gives nodes addresses that nobody here knows",
			v1alpha1.Kubernetes{Kubelet: v1alpha1.KubeletSettings{ExtraArgs: map[string]string{"cloud-provider": "external"}}},
			nil, false,
		},
		{
			"without the feature", "the kubelet would not start",
			v1alpha1.Kubernetes{FeatureGates: map[string]bool{"RotateKubeletServerCertificate": false}},
			nil, false,
		},
		{"without features in beta", "the feature is one", v1alpha1.Kubernetes{FeatureGates: map[string]bool{"AllBeta": false}}, nil, false},
		{
			"without other features in beta", "the feature is there",
			v1alpha1.Kubernetes{FeatureGates: map[string]bool{"AllBeta": false, "RotateKubeletServerCertificate": true}},
			object{serverTLSBootstrap: true},
			true,
		},
		{
			"without it in kubelets", "their own gates come first",
			v1alpha1.Kubernetes{
				FeatureGates: map[string]bool{"RotateKubeletServerCertificate": true},
				Kubelet:      v1alpha1.KubeletSettings{Config: object{"featureGates": object{"RotateKubeletServerCertificate": false}}},
			},
			object{"featureGates": object{"RotateKubeletServerCertificate": false}},
			false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Kubernetes: tc.kubernetes}}
			for range 2 { // again changes nothing
				Default(c, DefaultOptions{})
				if d := cmp.Diff(tc.want, c.Spec.Kubernetes.Kubelet.Config); d != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, d)
				}
			}
			if SignsKubelets(c) != tc.signs {
				t.Errorf("kubelets are signed: %t, want %t: %s", !tc.signs, tc.signs, tc.reason)
			}
		})
	}
}
