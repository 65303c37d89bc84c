package supportbundle

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/supportbundle/supportbundletest"
)

// keeps are lines without secrets. The redactor keeps them.
var keeps = []string{
	"Nov 22 10:00:00 cp1 kubelet[1]: Node became not ready", "Started slipway-units",
	"--tls-private-key-file=/etc/kubernetes/pki/apiserver.key next",
	"--client-ca-file=/etc/kubernetes/pki/ca.crt --authorization-mode=Node,RBAC", "--etcd-servers=https://127.0.0.1:2379", "keepalive: 30s",
	"registry.k8s.io/coredns/coredns:v1.14.2@sha256:0011", "dial tcp 10.0.0.1:6443: connect: connection refused",
	`MountVolume.SetUp failed for volume "x" : secret "web" not found`, "automountServiceAccountToken: false",
	"certificate-authority: /etc/kubernetes/pki/ca.crt", "the token is expired", "the secret key of the service accounts is not readable",
	"password authentication is disabled",
}

func TestRedactText_RemovesOnlySecrets(t *testing.T) {
	var s redactor
	text := string(s.redactText([]byte(strings.Join(supportbundletest.Leaks(), "\n"))))
	for line := range strings.Lines(text) {
		if strings.Contains(line, "canary") {
			t.Errorf("a secret stays: %s", line)
		}
	}
	for _, kept := range []string{"kept\":1", " --kept", "kept: 1", "--port 1", "@mirror/x", "@tcp(db:3306)/app", " next"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%q went along:\n%s", kept, text)
		}
	}
	if again := string(s.redactText([]byte(text))); again != text {
		t.Errorf("once is not enough:\n%s", cmp.Diff(text, again))
	}
	for _, line := range keeps {
		if got := string(s.redactText([]byte(line))); got != line {
			t.Errorf("%s\nbecame\n%s", line, got)
		}
	}
	// The end of a log may begin within a key.
	half := "TUlJQ2FuYXJ5\nTUlJQ2FuYXJ5==\n-----END EC PRIVATE KEY-----\nkept"
	if got := string(s.redactText([]byte(half))); got != redacted+"\nkept" {
		t.Errorf("half a key became %q", got)
	}
}

// The result is JSON that still describes the state of the cluster.
func TestRedactObjects_RemovesWhatUsersWrote(t *testing.T) {
	s := &redactor{}
	s.addSecret("known-canary")
	raw, err := json.Marshal(map[string]any{"items": []any{
		supportbundletest.PodWithSecrets(), supportbundletest.StaticPod(),
		map[string]any{"metadata": map[string]any{"name": "known-canary here", "generation": json.Number("12345678901234567890")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	v, ok := parseJSON(raw)
	if !ok {
		t.Fatal("it is no JSON")
	}
	out := formatJSON(s.redactObjects(v), " ")
	if !json.Valid(out) {
		t.Errorf("it is no JSON any more:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "canary") {
			t.Errorf("a secret stays: %s", line)
		}
	}
	for _, kept := range []string{
		"kept-container", "kept-image", "KEPT_NAME", `"kept-secret"`, "kept-key", "kept-hash", "kept-mirror",
		"kept-label", "kept.example.com/taint", "kept-secret-name",
		"kept-driver", "3607", "10.1.2.3", "--kept-flag=1", "kept.key", "12345678901234567890", "X-Api-Key", "/healthz", "REMOVED here",
	} {
		if !strings.Contains(string(out), kept) {
			t.Errorf("%s went along:\n%s", kept, out)
		}
	}
}

func TestRedactJSON_KeepsStructure(t *testing.T) {
	s := &redactor{}
	pem := base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\ncanary"))
	in := `{"message":"joining with --token canary and password \"x\"","args":["--db-password","canary","kept"],` +
		`"apiToken":"canary","pin":{"secret":12345},"passwords":{"of":"canary","name":"kept"},"passwordFrom":{"file":"/kept"},` +
		`"hostKey":"ssh-ed25519 kept","privateKeyFile":"/root/.ssh/kept","lines":"a: 1\npassword: canary\n","data":"` + pem + `","count":3}`
	want := map[string]any{
		"message": "joining with --token REMOVED and password \"x\"", "args": []any{"--db-password", redacted, "kept"},
		"apiToken": redacted, "pin": map[string]any{"secret": redacted},
		"passwords": map[string]any{"of": redacted, "name": "kept"}, "passwordFrom": map[string]any{"file": "/kept"},
		"hostKey": "ssh-ed25519 kept", "privateKeyFile": "/root/.ssh/kept", "lines": "a: 1\npassword: REMOVED\n",
		"data": redacted, "count": float64(3),
	}
	var got map[string]any
	if err := json.Unmarshal(s.redactJSON([]byte(in), ""), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := string(s.redactJSON([]byte(`no JSON, token=canary`), "")); got != "no JSON, token=REMOVED" {
		t.Errorf("what is no JSON became %q", got)
	}
}

func TestNewRedactor_KnowsRegistryLogins(t *testing.T) {
	t.Setenv("REGISTRY_WORD", "parrot-word")
	c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Registry: v1alpha1.Registry{Auths: []v1alpha1.RegistryAuth{
		{Registry: "docker.io", Username: "hub", PasswordFrom: &v1alpha1.SecretSource{Env: "REGISTRY_WORD"}},
		{Registry: "quay.io", CAFile: "ca.crt"},
	}}}}
	login := base64.StdEncoding.EncodeToString([]byte("hub:parrot-word"))
	got := string(newRedactor(c, nil).redactText([]byte("pulling as hub with parrot-word, or " + login + ", at night")))
	if strings.Contains(got, "parrot") || strings.Contains(got, login) || !strings.Contains(got, "at night") {
		t.Errorf("the result is %q", got)
	}
}
