package lifecycle

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/registrysecrets"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

const ownHosts = "/etc/containerd/certs.d/192.0.2.13:5000/hosts.toml"

// withRegistry returns a cluster with a registry on the dedicated host reg.
func (w *world) withRegistry() *v1alpha1.Cluster {
	c := w.Manifest()
	at := slices.IndexFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == "reg" })
	c.Spec.Hosts[at].Roles = []v1alpha1.Role{v1alpha1.RoleRegistry}
	return c
}

// login returns the registry credentials of nodes.
func (w *world) login(password string) string {
	w.t.Helper()
	if password == "" {
		text, err := os.ReadFile(filepath.Join(w.home, "clusters/prod", records.RegistryPassword))
		if err != nil {
			w.t.Fatal(err)
		}
		password = string(text)
	}
	return base64.StdEncoding.EncodeToString([]byte("slipway:" + password))
}

// TestInitRegistry_CreatesRegistryForLaterCluster creates a registry before the cluster exists. Nodes of the later
// cluster use it, creating the cluster does not change it, and a delete removes it.
func TestInitRegistry_CreatesRegistryForLaterCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "reg")
	c := w.withRegistry()
	p := w.prepared(w.service().Prepare(t.Context(), InitRegistryRequest{Subject: Subject{Cluster: c}}, nil))
	for _, s := range p.Plan().Steps {
		if s.Host != "" && s.Host != "reg" {
			t.Errorf("the plan changes %s: %s", s.Host, s.Task)
		}
	}
	w.apply(p, event.Succeeded)
	if phase, _ := w.status(); phase != "" {
		t.Errorf("a cluster is saved, in phase %q", phase)
	}
	m := w.Hosts["reg"]
	if m.State[module.RegistryUnit+" enabled"] == "" || m.Files[module.RegistryDir+"/htpasswd"] == "" {
		t.Errorf("there is no registry: %v", m.State)
	}
	w.do(InitRegistryRequest{Subject: Subject{Cluster: c}}, event.Succeeded) // a second run does nothing
	before := m.AllState()

	w.do(creating(c), event.Succeeded)
	for _, name := range []string{"cp1", "w1"} {
		if text := w.Hosts[name].Files[ownHosts]; !strings.Contains(text, w.login("")) {
			t.Errorf("%s has %q", name, text)
		}
	}
	for path, was := range before {
		if is := m.AllState()[path]; is != was {
			t.Errorf("creating the cluster changed %s", path)
		}
	}
	if text := m.Files[ownHosts]; text != "" {
		t.Errorf("the registry is not a node, but it has %q", text)
	}
	p = w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
	if len(p.Plan().Steps) != 0 {
		t.Errorf("without a change, the plan has %v", p.Plan().Steps)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	w.secretIsKept()
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	if left := m.AllState(); len(left) != 0 {
		t.Errorf("the registry is left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(w.home, "clusters/prod")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its password is left: %v", err)
	}
}

// secretIsKept checks that only one file has the password.
func (w *world) secretIsKept() {
	w.t.Helper()
	login := w.login("")
	raw, err := base64.StdEncoding.DecodeString(login)
	if err != nil {
		w.t.Fatal(err)
	}
	_, password, _ := strings.Cut(string(raw), ":")
	err = filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == records.RegistryPassword {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), password) || strings.Contains(string(text), login) {
			w.t.Errorf("%s has the password", path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range w.events {
		if strings.Contains(e.Message, password) {
			w.t.Errorf("an event contains the password: %q", e.Message)
		}
	}
}

// An apply that adds a registry to a running cluster also configures its nodes; later
// changes of its role or directory are refused.
func TestApply_AddsRegistryAndConfiguresNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "reg")
	c := w.withRegistry()
	all := c.Spec.Hosts
	c.Spec.Hosts = slices.DeleteFunc(slices.Clone(all), func(h v1alpha1.Host) bool { return h.Name == "reg" })
	w.do(creating(c), event.Succeeded)
	if w.Hosts["w1"].Files[ownHosts] != "" {
		t.Error("nodes are configured for a registry that does not exist")
	}
	c = c.DeepCopy()
	c.Spec.Hosts = all
	w.do(applying(c), event.Succeeded)
	if text := w.Hosts["w1"].Files[ownHosts]; !strings.Contains(text, w.login("")) {
		t.Errorf("w1 has %q", text)
	}
	if w.Hosts["reg"].State[module.RegistryUnit+" enabled"] == "" {
		t.Error("there is no registry")
	}

	moved := c.DeepCopy()
	moved.Spec.Hosts[slices.IndexFunc(all, func(h v1alpha1.Host) bool { return h.Name == "reg" })].Roles = []v1alpha1.Role{v1alpha1.RoleWorker}
	_, err := w.service().Prepare(t.Context(), applying(moved), nil)
	refusal(t, err, "roles-fixed")
	other := c.DeepCopy()
	other.Spec.Registry.Private = &v1alpha1.PrivateRegistry{Directory: "/srv/images"}
	for _, r := range []Request{applying(other), InitRegistryRequest{Subject: Subject{Cluster: other}}} {
		_, err = w.service().Prepare(t.Context(), r, nil)
		refusal(t, err, "immutable-field")
	}
}

// TestAddNodes_AddsRegistryAndConfiguresNodes adds a registry host with the settings of the file. All nodes are
// configured for it.
func TestAddNodes_AddsRegistryAndConfiguresNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "reg")
	w.do(creating(w.of("cp1", "w1")), event.Succeeded)
	c := w.withRegistry()
	c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{Directory: "/srv/images"}
	w.do(AddNodesRequest{Subject: Subject{Cluster: c}}, event.Succeeded)
	for _, node := range []string{"cp1", "w1"} {
		if text := w.Hosts[node].Files[ownHosts]; !strings.Contains(text, w.login("")) {
			t.Errorf("%s has %q", node, text)
		}
	}
	if config := w.Hosts["reg"].Files[module.RegistryDir+"/config.yml"]; !strings.Contains(config, "/srv/images") {
		t.Errorf("the registry has settings %q", config)
	}
	p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
	if len(p.Plan().Steps) != 0 {
		t.Errorf("without a change, the plan has %v", p.Plan().Steps)
	}
}

// TestRemoveNode_RemovesRegistrySettingsFromNodes removes the registry host, reachable or permanently lost. The
// registry configuration is removed from all nodes.
func TestRemoveNode_RemovesRegistrySettingsFromNodes(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"reachable": false, "permanently lost": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1", "reg")
			w.do(creating(w.withRegistry()), event.Succeeded)
			m := w.Hosts["reg"]
			if gone {
				m.Down = errDown
			}
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"reg"}, Forget: gone}, event.Succeeded)
			for _, node := range []string{"cp1", "w1"} {
				if text := w.Hosts[node].Files[ownHosts]; text != "" {
					t.Errorf("%s still has %q", node, text)
				}
			}
			if left := m.AllState(); !gone && len(left) != 0 {
				t.Errorf("the registry is left: %v", left)
			}
			delete(w.Hosts, "reg")
			w.whole()
		})
	}
}

// TestInitRegistry_RefusesChangesThatNodesNeed checks that "init registry" refuses changes that the nodes of a
// cluster would also need.
func TestInitRegistry_RefusesChangesThatNodesNeed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("parrot-one")
	w := newWorld(t, "cp1", "reg", "other")
	c := w.withRegistry()
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == "other" })
	c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{PasswordFrom: &v1alpha1.SecretSource{File: file}}
	w.do(creating(c), event.Succeeded)
	w.do(InitRegistryRequest{Subject: Subject{Cluster: c}}, event.Succeeded)
	for name, change := range map[string]func(*v1alpha1.Cluster){
		"name":     func(c *v1alpha1.Cluster) { c.Spec.Registry.Private.Names = []string{"images.example.com"} },
		"port":     func(c *v1alpha1.Cluster) { c.Spec.Registry.Private.Port = 5001 },
		"user":     func(c *v1alpha1.Cluster) { c.Spec.Registry.Private.Username = "another" },
		"password": func(*v1alpha1.Cluster) { write("parrot-two") },
		"host": func(c *v1alpha1.Cluster) {
			at := slices.IndexFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == "reg" })
			c.Spec.Hosts[at].Name, c.Spec.Hosts[at].Address = "other", w.Hosts["other"].Address
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := c.DeepCopy()
			change(changed)
			_, err := w.service().Prepare(t.Context(), InitRegistryRequest{Subject: Subject{Cluster: changed}}, nil)
			refusal(t, err, idRegistryInUse)
			write("parrot-one")
		})
	}
}

// TestInitRegistry_RefusesRunningClusterWithoutRegistry checks that "init registry" does not add a registry to a running
// cluster without one. The error does not suggest that a registry is saved.
func TestInitRegistry_RefusesRunningClusterWithoutRegistry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "reg")
	w.do(creating(w.of("cp1", "w1")), event.Succeeded)
	_, err := w.service().Prepare(t.Context(), InitRegistryRequest{Subject: Subject{Cluster: w.withRegistry()}}, nil)
	refusal(t, err, idRegistryInUse)
	if err == nil || strings.Contains(err.Error(), "with the saved name") {
		t.Errorf("%v, but no registry is saved", err)
	}
}

// TestPrivateRegistry_GeneratesNoPasswordIfUserSetsOne checks that no password is
// generated if the user sets one, and that a new password reaches the registry and all
// nodes.
func TestPrivateRegistry_GeneratesNoPasswordIfUserSetsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "reg")
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := w.withRegistry()
	c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{PasswordFrom: &v1alpha1.SecretSource{File: file}}
	write(strings.Repeat("x", registrysecrets.MaxPassword+1))
	_, err := w.service().Prepare(t.Context(), InitRegistryRequest{Subject: Subject{Cluster: c}}, nil)
	refusal(t, err, registrysecrets.IDSecretUnreadable)
	write("parrot-one")
	w.do(creating(c), event.Succeeded)
	write("parrot-two")
	p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
	var steps []string
	for _, s := range p.Plan().Steps {
		steps = append(steps, s.Task+"@"+s.Host)
	}
	for _, want := range []string{"registry.service@reg", "runtime.registries@cp1", "runtime.registries@w1"} {
		if !slices.Contains(steps, want) {
			t.Errorf("with a new password, the plan has %q, without %s", steps, want)
		}
	}
	w.apply(p, event.Succeeded)
	if text := w.Hosts["w1"].Files[ownHosts]; !strings.Contains(text, w.login("parrot-two")) {
		t.Errorf("w1 has %q", text)
	}
	if _, err := os.Stat(filepath.Join(w.home, "clusters/prod", records.RegistryPassword)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a password was generated: %v", err)
	}
	c = c.DeepCopy()
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == "reg" })
	c.Spec.Registry.Private = nil
	_, err = w.service().Prepare(t.Context(), InitRegistryRequest{Subject: Subject{Cluster: c}}, nil)
	refusal(t, err, spec.IDNoRegistryHost)
}

// TestPrivateRegistry_KeepsHashUntilPasswordChanges checks that the registry's user file changes only with the password,
// also on a manager without the saved hashes. A recently used password gets its previous
// hash.
func TestPrivateRegistry_KeepsHashUntilPasswordChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "reg")
	file := filepath.Join(t.TempDir(), "password")
	c := w.withRegistry()
	c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{PasswordFrom: &v1alpha1.SecretSource{File: file}}
	kept := filepath.Join(w.home, "clusters/prod", records.RegistryHashes)
	seen := map[string]string{}
	for _, tc := range []struct {
		password, reason string
		again            bool // it gets its previous hash
	}{
		{"one", "it is the first password", false},
		{"two", "the password is new", false},
		{"one", "a rollback uses it again", true},
		{"three", "the password is new", false},
		{"four", "the password is new, and the hash of two is dropped", false},
		{"two", "its hash was dropped", false},
	} {
		if err := os.WriteFile(file, []byte(tc.password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.do(applying(c), event.Succeeded)
		users := w.Hosts["reg"].Files[module.RegistryUsers]
		if err := bcrypt.CompareHashAndPassword([]byte(strings.TrimSpace(strings.TrimPrefix(users, "slipway:"))),
			[]byte(tc.password)); err != nil {
			t.Errorf("%s: %q: %v", tc.password, users, err)
		}
		if (seen[tc.password] == users) != tc.again {
			t.Errorf("%s: %q after %q, want the same: %t: %s", tc.password, users, seen[tc.password], tc.again, tc.reason)
		}
		seen[tc.password] = users
		text, err := os.ReadFile(kept)
		if err != nil || len(strings.Fields(string(text))) > registrysecrets.MaxHashes {
			t.Errorf("%q is kept, %v: want at most %d hashes", text, err, registrysecrets.MaxHashes)
		}
	}
	if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the hashes: %v, %v", info, err)
	}
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	w.settled(c) // another manager has no saved hash
}

// TestInitRegistry_CanBeRepeatedAfterKill kills the operation after each step and repeats it.
func TestInitRegistry_CanBeRepeatedAfterKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "reg")
	request := InitRegistryRequest{Subject: Subject{Cluster: w.withRegistry()}}
	moments := w.killed(t, request)
	if len(moments) < 5/oneIn {
		t.Errorf("killed at %d moments", len(moments))
	}
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			k := m.world
			k.useT(t)
			k.do(InitRegistryRequest{Subject: Subject{Cluster: k.withRegistry()}}, event.Succeeded)
			k.same(w)
		})
	}
}

// TestCreate_ResumesAfterKillDuringRegistrySetup kills the operation after each step and resumes it.
func TestCreate_ResumesAfterKillDuringRegistrySetup(t *testing.T) {
	w := newWorld(t, "cp1", "reg")
	request := creating(w.withRegistry())
	for _, m := range w.killed(t, request) {
		if !strings.Contains(m.name, "registr") {
			continue // TestCreate_ResumesAfterKill covers the other moments
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(request)
			k.same(w)
		})
	}
}

// TestPrivateRegistry_ConfiguresOnlyCurrentRuntime checks that nodes have registry settings for their current
// runtime only. After a change of the runtime, the previous settings are removed. A new
// password reaches each runtime.
func TestPrivateRegistry_ConfiguresOnlyCurrentRuntime(t *testing.T) {
	const authority, logins = "/etc/docker/certs.d/192.0.2.13:5000/ca.crt", "/var/lib/kubelet/config.json"
	w := newWorld(t, "cp1", "w1", "reg")
	w.cache, w.Runtime = t.TempDir(), "docker"
	w.bundled(t, true, "")
	w.do(creating(w.withRegistry()), event.Succeeded)
	t.Setenv("REGISTRY_WORD", "another")
	other := func() *v1alpha1.Cluster {
		c := w.withRegistry()
		c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{PasswordFrom: &v1alpha1.SecretSource{Env: "REGISTRY_WORD"}}
		return c
	}
	known := func(word string) {
		t.Helper()
		for name, m := range w.Hosts {
			docker, containerd := "", ""
			switch {
			case name == "reg": // not a node
			case w.Runtime == "docker":
				docker = w.login(word)
			default:
				containerd = w.login(word)
			}
			for path, login := range map[string]string{logins: docker, ownHosts: containerd} {
				if text := m.Files[path]; (login == "") != (text == "") || !strings.Contains(text, login) {
					t.Errorf("with runtime %s, %s has %q in %s", w.Runtime, name, text, path)
				}
			}
			if (m.Files[authority] != "") != (docker != "") {
				t.Errorf("with runtime %s, %s has %q in %s", w.Runtime, name, m.Files[authority], authority)
			}
		}
	}
	known("")
	w.do(applying(other()), event.Succeeded)
	known("another")
	for _, w.Runtime = range []string{"containerd", "docker"} {
		w.do(applying(other()), event.Succeeded)
		known("another")
	}
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// TestBadRegistrySettings_AreRolledBack checks the rollback when a registry does not start with its new
// settings or rejects logins. Nodes are rolled back as well.
func TestBadRegistrySettings_AreRolledBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.PrivateRegistry)
		fails  func(*lifecycletest.Host, op.Op) bool
	}{
		"a port in use": {
			func(p *v1alpha1.PrivateRegistry) { p.Port = 5001 },
			func(m *lifecycletest.Host, o op.Op) bool {
				u, ok := o.(op.Unit)
				return ok && u.Name == module.RegistryUnit && strings.Contains(m.Files[module.RegistryDir+"/config.yml"], "5001")
			},
		},
		"a user that it rejects": {
			func(p *v1alpha1.PrivateRegistry) { p.Username = "nobody" },
			func(m *lifecycletest.Host, o op.Op) bool {
				r, ok := o.(op.RegistryServes)
				return ok && r.Username == "nobody"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1", "reg")
			c := w.withRegistry()
			c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{}
			w.do(creating(c), event.Succeeded)
			before := w.looks()
			m := w.Hosts["reg"]
			m.Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
				if !tc.fails(m, o) {
					return nil
				}
				delete(m.State, module.RegistryUnit+" started")
				return &op.Error{Reason: op.ReasonUnhealthy, Message: "it does not serve"}
			}
			c = c.DeepCopy()
			tc.change(c.Spec.Registry.Private)
			res := w.do(applying(c), event.Failed)
			if f := res.Failures[0]; !res.Reverted || len(res.Failures) != 1 || f.Host != "reg" || f.Reason != idReverted ||
				!strings.Contains(f.Message, "it does not serve") {
				t.Errorf("reverted: %t, %+v", res.Reverted, res.Failures)
			}
			w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "apply Failed", "create Succeeded")
			if d := cmp.Diff(before, w.looks()); d != "" {
				t.Errorf("machines differ from before (-want +got):\n%s", d)
			}
		})
	}
}
