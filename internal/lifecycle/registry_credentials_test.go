package lifecycle

import (
	"encoding/base64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/registrysecrets"
)

const hubFile = "/etc/containerd/certs.d/docker.io/hosts.toml"

// TestRegistryPassword_IsSavedOnlyOnHosts checks logins with a password from a file on the manager. The
// password is in no plan, event or saved state. A new password changes one file on each
// host and nothing else.
func TestRegistryPassword_IsSavedOnlyOnHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	write := func(text string) {
		if err := os.WriteFile(password, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("parrot-one")
	c := w.Manifest()
	c.Spec.Registry = v1alpha1.Registry{Auths: []v1alpha1.RegistryAuth{{
		Registry: "docker.io", Username: "hub",
		PasswordFrom: &v1alpha1.SecretSource{File: password},
	}}}
	w.do(creating(c), event.Succeeded)
	login := func(word string) string { return base64.StdEncoding.EncodeToString([]byte("hub:" + word)) }
	for name, m := range w.Hosts {
		if !strings.Contains(m.Files[hubFile], login("parrot-one")) {
			t.Errorf("%s has %q", name, m.Files[hubFile])
		}
	}
	p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
	if len(p.Plan().Steps) != 0 {
		t.Errorf("without a change, the plan has %v", p.Plan().Steps)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}

	write("parrot-two")
	p = w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
	var steps []string
	for _, s := range p.Plan().Steps {
		steps = append(steps, s.Task+"@"+s.Host)
	}
	if want := []string{"runtime.registries@cp1", "runtime.registries@w1"}; !slices.Equal(steps, want) {
		t.Errorf("with a new password, the plan has %q, want %q", steps, want)
	}
	w.apply(p, event.Succeeded)
	for name, m := range w.Hosts {
		if !strings.Contains(m.Files[hubFile], login("parrot-two")) {
			t.Errorf("%s has %q", name, m.Files[hubFile])
		}
	}
	for _, e := range w.events {
		if strings.Contains(e.Message, "parrot") {
			t.Errorf("an event contains the password: %q", e.Message)
		}
	}
	err := filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, secret := range []string{"parrot", login("parrot-one"), login("parrot-two")} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s has %q", path, secret)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	write("")
	_, err = w.service().Prepare(t.Context(), applying(c), nil)
	refusal(t, err, registrysecrets.IDSecretUnreadable)
	_, err = w.service().Kubectl(t.Context(), "prod", nil, nil, io.Discard, io.Discard)
	if err != nil && strings.Contains(err.Error(), "password") {
		t.Errorf("kubectl from a local bundle needs the password: %v", err)
	}
}

// TestRegistryPassword_IsReadAgainOnResume resumes an operation that needs a password. The password is
// read again; if its file is missing, the resume is refused before it connects to hosts.
func TestRegistryPassword_IsReadAgainOnResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("parrot"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := w.Manifest()
	c.Spec.Registry = v1alpha1.Registry{Auths: []v1alpha1.RegistryAuth{{
		Registry: "docker.io", Username: "hub",
		PasswordFrom: &v1alpha1.SecretSource{File: password},
	}}}
	w.Hosts["w1"].Refuse = breaking("runtime.registries")
	w.do(creating(c), event.Failed)
	w.Hosts["w1"].Refuse = nil
	if err := os.Remove(password); err != nil {
		t.Fatal(err)
	}
	_, err := w.service().PrepareResume(t.Context(), resuming(), nil)
	refusal(t, err, registrysecrets.IDSecretUnreadable)
	if err := os.WriteFile(password, []byte("parrot"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.resume(event.Succeeded)
	if text := w.Hosts["w1"].Files[hubFile]; !strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("hub:parrot"))) {
		t.Errorf("w1 has %q", text)
	}
}

// TestRegistryPassword_IsNewestOnAllHostsAfterKill kills the manager at each moment while it applies a new
// password to hosts. Before the resume, the password changes again; all hosts must get the
// latest password.
func TestRegistryPassword_IsNewestOnAllHostsAfterKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(password, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	c := w.Manifest()
	c.Spec.Registry = v1alpha1.Registry{Auths: []v1alpha1.RegistryAuth{{
		Registry: "docker.io", Username: "hub",
		PasswordFrom: &v1alpha1.SecretSource{File: password},
	}}}
	w.do(creating(c), event.Succeeded)
	write("two")
	request := applying(c)
	moments := w.killed(t, request)
	if len(moments) < 2 && oneIn == 1 {
		t.Fatalf("killed at only %d moments", len(moments))
	}
	write("three")
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			k := m.world
			k.useT(t)
			k.goOn(request)
			for name, on := range k.Hosts {
				if !strings.Contains(on.Files[hubFile], base64.StdEncoding.EncodeToString([]byte("hub:three"))) {
					t.Errorf("%s has %q", name, on.Files[hubFile])
				}
			}
		})
	}
}
