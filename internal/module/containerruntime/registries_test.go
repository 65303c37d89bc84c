package containerruntime

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
)

// TestRegistryFiles_TryPrivateRegistryFirst: nodes log in to the private registry and
// trust it, and try it first for images of other registries, each in its own folder.
func TestRegistryFiles_TryPrivateRegistryFirst(t *testing.T) {
	c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{
		Hosts: []v1alpha1.Host{{Name: "reg", Address: "192.0.2.9", Roles: []v1alpha1.Role{v1alpha1.RoleRegistry}}},
		Registry: v1alpha1.Registry{
			Mirrors: map[string][]string{ // the second one is also written by Slipway
				"docker.io": {"https://mirror.example.com", "https://192.0.2.9:5000/v2/docker.io/"},
			},
			Private: &v1alpha1.PrivateRegistry{Port: 5000, Username: "slipway", MirrorOf: []string{"docker.io", "quay.example.com:5"}},
		},
	}}
	env := module.Env{Cluster: c, Registry: &module.Registry{Password: secret.New("parrot"), CA: []byte("the authority")}}
	const own = "/etc/containerd/certs.d/192.0.2.9:5000/"
	login := "header = {Authorization = \"Basic " + base64.StdEncoding.EncodeToString([]byte("slipway:parrot")) + "\"}\n"
	trust := "ca = \"" + own + "slipway-ca.pem\"\n"
	mirror := func(folder string) string {
		return "[host.\"https://192.0.2.9:5000/v2/" + folder + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n  override_path = true\n  " +
			trust + "  " + login
	}
	file := func(name, content string) op.File {
		return op.File{Path: "/etc/containerd/certs.d/" + name + "/hosts.toml", Content: []byte(content), Mode: 0o600, Secret: true}
	}
	want := op.List{
		op.File{Path: own + "slipway-ca.pem", Content: []byte("the authority")},
		file("192.0.2.9:5000", trust+login),
		file("docker.io", mirror("docker.io")+"\n[host.\"https://mirror.example.com\"]\n  capabilities = [\"pull\", \"resolve\"]\n"),
		file("quay.example.com:5", mirror("quay.example.com_5")),
		op.RevertStep{Step: "runtime.registries"},
	}
	got, err := registryFiles(env)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	c.Spec.ContainerRuntime.Type = "docker" // the kubelet has its credentials
	want = op.List{
		op.File{Path: "/etc/docker/certs.d/192.0.2.9:5000/ca.crt", Content: []byte("the authority")},
		op.RevertStep{Step: "runtime.registries"},
	}
	if got, err = registryFiles(env); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("with Docker: %v, %v", err, got)
	}
	c.Spec.ContainerRuntime.Type = "containerd"
	env.Registry.CA = nil
	if got, err = registryFiles(env); err != nil || strings.Contains(string(got[0].(op.File).Content), "ca =") {
		t.Errorf("with a certificate that nodes already trust: %v, %v", err, got[0])
	}
}

func TestRegistryFiles_MatchGoldens(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte("the authority"), 0o600); err != nil {
		t.Fatal(err)
	}
	from := &v1alpha1.SecretSource{Env: "NOT_READ_HERE"}
	env := module.Env{
		Cluster: &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Registry: v1alpha1.Registry{
			Mirrors: map[string][]string{
				"docker.io": {"https://mirror.example.com:5/hub", "https://free.example.com", "https://free.example.com/v2/hub"},
				"quay.io":   {"https://Mirror.example.com:5"}, // the same host as in the login
			},
			Insecure: []string{"open.example.com"},
			Auths: []v1alpha1.RegistryAuth{
				{Registry: "mirror.example.com:5", Username: "puller", PasswordFrom: from, CAFile: ca},
				{Registry: "docker.io", Username: "hub", PasswordFrom: from},
				{Registry: "open.example.com", Username: "clear", PasswordFrom: from},
			},
		}}},
		Passwords: map[string]secret.String{
			"mirror.example.com:5": secret.New("mirror's"), "docker.io": secret.New("hub's: \"x\""), "open.example.com": secret.New("open's"),
		},
	}
	basic := func(user, password string) string {
		return `header = {Authorization = "Basic ` + base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "\"}\n"
	}
	const dir = "/etc/containerd/certs.d/"
	trust := "ca = \"" + dir + "mirror.example.com:5/slipway-ca.pem\"\n"
	mirror := "  capabilities = [\"pull\", \"resolve\"]\n  " + trust + "  " + basic("puller", "mirror's")
	private := func(name, content string) op.File {
		return op.File{Path: dir + name + "/hosts.toml", Content: []byte(content), Mode: 0o600, Secret: true}
	}
	want := op.List{
		op.File{Path: dir + "mirror.example.com:5/slipway-ca.pem", Content: []byte("the authority")},
		private("docker.io", basic("hub", `hub's: "x"`)+"\n[host.\"https://mirror.example.com:5/hub\"]\n"+mirror+
			"\n[host.\"https://free.example.com\"]\n  capabilities = [\"pull\", \"resolve\"]\n"+
			"\n[host.\"https://free.example.com/v2/hub\"]\n  capabilities = [\"pull\", \"resolve\"]\n  override_path = true\n"),
		private("mirror.example.com:5", trust+basic("puller", "mirror's")),
		private("open.example.com", "server = \"http://open.example.com\"\nskip_verify = true\n"+basic("clear", "open's")),
		private("quay.io", "[host.\"https://Mirror.example.com:5\"]\n"+mirror),
		op.RevertStep{Step: "runtime.registries"},
	}
	got, err := registryFiles(env)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, o := range got {
		f, ok := o.(op.File)
		if ok && strings.Contains(f.Path, "hosts.toml") && strings.Contains(string(f.Content), "Basic ") != f.Secret {
			t.Errorf("%s holds credentials, and is open", f.Path)
		}
	}
	env.Cluster.Spec.Registry.Auths[0].CAFile = ca + ".gone"
	if _, err := registryFiles(env); err == nil || !strings.Contains(err.Error(), "mirror.example.com:5") {
		t.Errorf("with a missing CA file: %v", err)
	}
}
