package kubeadm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
)

// TestEncodeLogins_OnlyWithDocker: with Docker the kubelet has the credentials of the
// cluster file and of the private registry. With containerd, which has them itself, the
// kubelet has none.
func TestEncodeLogins_OnlyWithDocker(t *testing.T) {
	putBack := op.RevertStep{Step: "kubernetes.kubelet.logins"}
	env := module.Env{
		Cluster: &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{
			Hosts:            []v1alpha1.Host{{Name: "reg", Address: "192.0.2.9", Roles: []v1alpha1.Role{v1alpha1.RoleRegistry}}},
			ContainerRuntime: v1alpha1.ContainerRuntime{Type: "docker"},
			Registry: v1alpha1.Registry{
				Auths:   []v1alpha1.RegistryAuth{{Registry: "docker.io", Username: "hub"}, {Registry: "trusted.example.com", CAFile: "ca.crt"}},
				Private: &v1alpha1.PrivateRegistry{Port: 5000, Username: "slipway"},
			},
		}},
		Registry:  &module.Registry{Password: secret.New("parrot")},
		Passwords: map[string]secret.String{"docker.io": secret.New("a:b")},
	}
	const text = `{
  "auths": {
    "192.0.2.9:5000": {
      "auth": "c2xpcHdheTpwYXJyb3Q="
    },
    "docker.io": {
      "auth": "aHViOmE6Yg=="
    }
  }
}
`
	got, err := encodeLogins(env)
	want := op.List{op.File{Path: "/var/lib/kubelet/config.json", Content: []byte(text), Mode: 0o600, Secret: true}, putBack}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}

	env.Cluster.Spec.ContainerRuntime.Type = "containerd"
	if got, err := encodeLogins(env); err != nil || cmp.Diff(op.List{putBack}, got) != "" {
		t.Errorf("with containerd: %v, %v", err, got)
	}
	env.Cluster.Spec.ContainerRuntime.Type, env.Cluster.Spec.Registry.Auths, env.Registry = "docker", env.Cluster.Spec.Registry.Auths[1:], nil
	if got, err := encodeLogins(env); err != nil || cmp.Diff(op.List{putBack}, got) != "" {
		t.Errorf("with no login: %v, %v", err, got)
	}
}
