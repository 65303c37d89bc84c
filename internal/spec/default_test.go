package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestKeepServing_KeepsRecordedDefault: the default is left out where neither the file nor the record has it.
func TestKeepServing_KeepsRecordedDefault(t *testing.T) {
	type object = map[string]any
	for _, tc := range []struct {
		name, reason, file string
		recorded, want     object
	}{
		{"neither", "nothing is to change", "", nil, object{}},
		{"the record", "it is so already", "", object{serverTLSBootstrap: true}, object{serverTLSBootstrap: true}},
		{
			"the record says no", "a file that leaves it open wants the default", "",
			object{serverTLSBootstrap: false},
			object{serverTLSBootstrap: true},
		},
		{"the file", "the user wants it", "{serverTLSBootstrap: true}", nil, object{serverTLSBootstrap: true}},
		{"the file says no", "the user wants that", "{serverTLSBootstrap: false}", nil, object{serverTLSBootstrap: false}},
		{"something else", "it stays", "{maxPods: 50}", nil, object{"maxPods": int64(50)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "apiVersion: " + v1alpha1.APIVersion + "\nkind: Cluster\nmetadata: {name: demo}\nspec:\n" +
				"  hosts: [{name: cp1, address: 192.0.2.11, roles: [control-plane]}]\n"
			if tc.file != "" {
				text += "  kubernetes: {kubelet: {config: " + tc.file + "}}\n"
			}
			loaded, err := Load("cluster.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			recorded, wanted := &v1alpha1.Cluster{}, loaded.Cluster.DeepCopy()
			recorded.Spec.Kubernetes.Kubelet.Config = tc.recorded
			SetDefaults(wanted, DefaultOptions{})
			KeepServing(wanted, loaded.Cluster, recorded)
			if d := cmp.Diff(v1alpha1.Object(tc.want), wanted.Spec.Kubernetes.Kubelet.Config); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// TestKubeletDefaults_RequestServingCertificates: kubelets ask the cluster for their serving certificates where they
// can, and where the user has not decided otherwise.
func TestKubeletDefaults_RequestServingCertificates(t *testing.T) {
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
				SetDefaults(c, DefaultOptions{})
				if d := cmp.Diff(v1alpha1.Object(tc.want), c.Spec.Kubernetes.Kubelet.Config); d != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, d)
				}
			}
			if SignsKubelets(c) != tc.signs {
				t.Errorf("kubelets are signed: %t, want %t: %s", !tc.signs, tc.signs, tc.reason)
			}
		})
	}
}
