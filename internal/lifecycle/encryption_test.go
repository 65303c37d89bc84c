package lifecycle

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/kubeadm"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

// served checks that a client can write through any API server, and that all of them can
// read everything.
func (w *world) served(when string) {
	w.t.Helper()
	a := w.API
	a.Mu.Lock()
	defer a.Mu.Unlock()
	for name := range a.ServerKeys {
		p := "/api/v1/namespaces/default/secrets/by-" + name
		a.Objects[p] = object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "by-" + name, "namespace": "default"}}
		a.SealedWith[p] = a.SecretKeys(name)[0].ValuePrefix()
	}
	for p := range a.Objects {
		for name := range a.ServerKeys {
			reads := slices.ContainsFunc(a.SecretKeys(name), func(k module.EncryptionKey) bool { return k.ValuePrefix() == a.SealedWith[p] })
			if strings.Contains(p, "/secrets/") && !reads {
				w.t.Errorf("%s: %s cannot read %s, which begins with %q", when, name, p, a.SealedWith[p])
			}
		}
	}
}

// keeps writes a secret that no client writes again.
func (w *world) keeps() {
	const p = "/api/v1/namespaces/default/secrets/kept"
	w.API.PutObject(p, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "kept", "namespace": "default"}})
	w.API.Mu.Lock()
	defer w.API.Mu.Unlock()
	w.API.SealedWith[p] = w.API.SecretKeys("cp1")[0].ValuePrefix()
}

// encrypted checks that secrets and the keys of control planes have this provider and
// generation; "" is not encrypted.
func (w *world) encrypted(provider string, generation int, controlPlanes ...string) {
	w.t.Helper()
	w.served("in the end")
	begins := ""
	if provider != "" {
		begins = fmt.Sprintf("k8s:enc:%s:v1:%d-", provider, generation)
	}
	for p := range w.API.Objects {
		if strings.Contains(p, "/secrets/") && (!strings.HasPrefix(w.API.SealedWith[p], begins) || begins == "" && w.API.SealedWith[p] != "") {
			w.t.Errorf("%s begins with %q, want %q", p, w.API.SealedWith[p], begins)
		}
	}
	for _, name := range controlPlanes {
		m := w.Hosts[name]
		if provider == "" {
			if m.HasFile(module.EncryptionFile) || w.API.ServerKeys[name] != "" {
				w.t.Errorf("%s still has keys", name)
			}
			continue
		}
		if keys := w.API.SecretKeys(name); len(keys) != 1 || m.Files[module.EncryptionFile] != w.API.ServerKeys[name] ||
			m.Files[module.EncryptionFile] != w.Hosts["cp1"].Files[module.EncryptionFile] {
			w.t.Errorf("%s uses %d keys; they are from its file: %t; the file is the same as on cp1: %t", name, len(keys),
				m.Files[module.EncryptionFile] == w.API.ServerKeys[name],
				m.Files[module.EncryptionFile] == w.Hosts["cp1"].Files[module.EncryptionFile])
		}
	}
}

// silentOn checks that none of these keys is in the saved state or in an event.
func (w *world) silentOn(keys map[string]bool) {
	w.t.Helper()
	err := filepath.WalkDir(w.home, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(p)
		for k := range keys {
			if strings.Contains(string(text), k) {
				w.t.Errorf("%s holds a key", p)
			}
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range w.events {
		text, _ := json.Marshal(e)
		for k := range keys {
			if strings.Contains(string(text), k) {
				w.t.Errorf("an event holds a key: %s", e.Type)
			}
		}
	}
}

// secretsOn collects the keys that machines have.
func (w *world) secretsOn(into map[string]bool) map[string]bool {
	for _, m := range w.Hosts {
		m.Mu.Lock()
		text := m.Files[module.EncryptionFile]
		m.Mu.Unlock()
		if e, err := module.ParseEncryption([]byte(text)); err == nil {
			for _, k := range e.KeysFor("secrets") {
				if k.Provider != module.Plain {
					into[k.Secret.Reveal()] = true
				}
			}
		}
	}
	return into
}

// secretive describes the cluster with encrypted secrets; generation 0 is not encrypted.
func (w *world) secretive(provider string, generation int) *v1alpha1.Cluster {
	c := w.Manifest()
	c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointHAProxy
	if generation > 0 {
		c.Spec.Kubernetes.Encryption = &v1alpha1.Encryption{Provider: provider, Generation: generation}
	}
	return c
}

func encrypting(t *testing.T, names ...string) *world {
	w := newWorld(t, names...)
	w.Endpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointHAProxy}
	return w
}

// A client writes through every API server after every step. No API server writes a secret
// that another cannot read, and only control planes have the keys.
func TestEncryption_KeepsSecretsReadableWhileItChanges(t *testing.T) {
	t.Parallel()
	control := []string{"cp1", "cp2", "cp3"}
	w := encrypting(t, "cp1", "cp2", "cp3", "w1")
	w.create(event.Succeeded)
	w.served("before")
	keys := map[string]bool{}
	for _, tc := range []struct {
		name, provider string
		generation     int
	}{
		{"on", "secretbox", 1},
		{"rotated", "secretbox", 2},
		{"by another provider", "aescbc", 2},
		{"off", "", 0},
		{"on again", "secretbox", 1},
	} {
		request := applying(w.secretive(tc.provider, tc.generation))
		p := w.prepared(w.service().Prepare(t.Context(), request, nil))
		res, err := p.Apply(t.Context(), event.SinkFunc(func(e event.Event) {
			w.events = append(w.events, e)
			if e.Type == event.StepFinished {
				w.served(tc.name + ", after " + e.Task + " on " + e.Host)
			}
			w.secretsOn(keys)
		}))
		if err != nil || res.Outcome != event.Succeeded {
			t.Fatalf("%s: %+v, %v", tc.name, res, err)
		}
		_ = p.Close()
		w.encrypted(tc.provider, tc.generation, control...)
		if again := w.prepared(w.service().Prepare(t.Context(), request, nil)); !again.Plan().IsEmpty() {
			t.Errorf("%s: a second apply would do %v", tc.name, stepsOf(again.Plan().Steps))
		}
		if w.Hosts["w1"].HasFile(module.EncryptionFile) {
			t.Errorf("%s: a worker has keys", tc.name)
		}
	}
	if len(keys) != 4 {
		t.Errorf("%d keys were made, want 4", len(keys))
	}
	w.silentOn(keys)
}

// A change of encryption that was killed at any moment can be resumed, and the file may
// change again instead.
func TestEncryption_ResumesAfterKillWithSameOrNewFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		from, to int
	}{{"on", 0, 1}, {"rotated", 1, 2}, {"off", 1, 0}} {
		w := encrypting(t, "cp1", "cp2", "w1")
		w.do(creating(w.secretive("secretbox", tc.from)), event.Succeeded)
		w.served("before")
		w.keeps()
		request := applying(w.secretive("secretbox", tc.to))
		for i, m := range w.killed(t, request) {
			t.Run(tc.name+" "+m.name, func(t *testing.T) {
				k := m.world
				k.t, k.API.T = t, t
				k.served("killed")
				to := tc.to
				if i%2 == 1 { // the file has changed since
					to = 3 * tc.from
					k.do(applying(k.secretive("secretbox", to)), event.Succeeded)
				} else {
					k.goOn(request)
				}
				provider := "secretbox"
				if to == 0 {
					provider = ""
				}
				k.encrypted(provider, to, "cp1", "cp2")
				k.silentOn(k.secretsOn(map[string]bool{}))
				p := k.prepared(k.service().Prepare(t.Context(), applying(k.secretive("secretbox", to)), nil))
				if !p.Plan().IsEmpty() {
					t.Errorf("a second apply would do %v", stepsOf(p.Plan().Steps))
				}
			})
		}
	}
}

// An added control plane has the keys before its API server starts, also while they are
// rotated. A control plane that has lost the keys gets them again.
func TestEncryption_JoiningControlPlaneHasKeys(t *testing.T) {
	t.Parallel()
	w := encrypting(t, "cp1", "cp2", "w1")
	w.do(creating(w.secretive("secretbox", 1)), event.Succeeded)
	w.encrypted("secretbox", 1, "cp1", "cp2")
	w.Hosts["cp3"] = lifecycletest.NewHost("cp3", "192.0.2.21", w.API)
	w.do(applying(w.secretive("secretbox", 1)), event.Succeeded)
	w.encrypted("secretbox", 1, "cp1", "cp2", "cp3")
	w.Hosts["cp4"] = lifecycletest.NewHost("cp4", "192.0.2.22", w.API)
	w.do(applying(w.secretive("secretbox", 2)), event.Succeeded)
	w.encrypted("secretbox", 2, "cp1", "cp2", "cp3", "cp4")

	delete(w.Hosts["cp2"].Files, module.EncryptionFile)
	p := w.prepared(w.service().Prepare(t.Context(), applying(w.secretive("secretbox", 2)), nil))
	for _, s := range p.Plan().Steps {
		if s.Host != "cp2" {
			t.Errorf("only cp2 has lost its keys, but %s is planned on %s", s.Task, s.Host)
		}
	}
	w.apply(p, event.Succeeded)
	w.encrypted("secretbox", 2, "cp1", "cp2", "cp3", "cp4")
}

// Keys change on all control planes or on none.
func TestEncryption_RefusedWithoutAllControlPlanes(t *testing.T) {
	t.Parallel()
	w := encrypting(t, "cp1", "cp2", "cp3", "w1")
	w.create(event.Succeeded)
	w.Hosts["cp3"].Down = errDown
	_, err := w.service().Prepare(t.Context(), applying(w.secretive("secretbox", 1)), nil)
	wantRefused(t, err, "host-unreachable")
	p, err := w.service().Prepare(t.Context(), despiteErrors(applying(w.secretive("secretbox", 1))), nil)
	if err == nil {
		if !strings.Contains(fmt.Sprint(p.Findings()), kubeadm.IDEncryptionAlone) {
			t.Errorf("findings: %v", p.Findings())
		}
		for _, s := range p.Plan().Steps {
			if s.Host == "cp1" && strings.HasPrefix(s.Task, "kubeadm.init") {
				t.Errorf("the plan has %s without cp3", s.Task)
			}
		}
		_ = p.Close()
	} else {
		wantRefused(t, err, kubeadm.IDEncryptionAlone)
	}
	w.Hosts["cp3"].Down = nil

	w.Hosts["cp2"].Files[module.APIServerManifest] = "spec:\n  containers:\n  - command: [kube-apiserver, " +
		"--encryption-provider-config=/etc/kubernetes/pki/mine.yaml]\n"
	_, err = w.service().Prepare(t.Context(), applying(w.secretive("secretbox", 1)), nil)
	wantRefused(t, err, spec.IDEncryptionForeign)
}

// Keys that all control planes have lost are not replaced with new ones. API servers with
// new keys could not read the stored secrets; only the running ones still can.
func TestEncryption_LostKeysNotReplaced(t *testing.T) {
	t.Parallel()
	w := encrypting(t, "cp1", "cp2", "w1")
	w.do(creating(w.secretive("secretbox", 1)), event.Succeeded)
	for i, name := range []string{"cp1", "cp2"} {
		m := w.Hosts[name]
		m.Files[module.APIServerManifest] = "spec:\n  containers:\n  - command: [kube-apiserver, --encryption-provider-config=" +
			module.EncryptionFile + "]\n"
		delete(m.Files, module.EncryptionFile)
		p, err := w.service().Prepare(t.Context(), applying(w.secretive("secretbox", 1)), nil)
		if i == 0 { // cp2 still has the keys
			w.prepared(p, err)
			continue
		}
		wantRefused(t, err, kubeadm.IDEncryptionLost)
	}
	_, err := w.service().Prepare(t.Context(), applying(w.secretive("secretbox", 0)), nil)
	wantRefused(t, err, kubeadm.IDEncryptionLost) // nothing would be decrypted
}

// stepsOf returns the steps as text.
func stepsOf(all []plan.Step) (out []string) {
	for _, s := range all {
		out = append(out, s.Task+" "+s.Host)
	}
	return out
}

// A control plane that joins while secrets are decrypted has no keys and no record of the
// progress. The keys are kept until all secrets are rewritten.
func TestEncryption_OffWhileControlPlaneJoins(t *testing.T) {
	t.Parallel()
	w := encrypting(t, "cp1", "cp2", "w1")
	w.do(creating(w.secretive("secretbox", 1)), event.Succeeded)
	w.keeps()
	for _, m := range w.killed(t, applying(w.secretive("secretbox", 0))) {
		t.Run(m.name, func(t *testing.T) {
			k := m.world
			k.t, k.API.T = t, t
			k.Hosts["cp3"] = lifecycletest.NewHost("cp3", "192.0.2.21", k.API)
			k.do(applying(k.secretive("secretbox", 0)), event.Succeeded)
			k.encrypted("", 0, "cp1", "cp2", "cp3")
		})
	}
}

// Bad API server settings are rolled back on a cluster with encryption, and also if the
// same apply enables encryption.
func TestEncryption_BadSettingsRolledBack(t *testing.T) {
	t.Parallel()
	for _, was := range []int{0, 1} {
		for _, b := range badSettings() {
			if !strings.HasPrefix(b.name, "API server") {
				continue
			}
			t.Run(fmt.Sprintf("%s, generation %d before", b.name, was), func(t *testing.T) {
				w := encrypting(t, threeAndTwo...)
				w.do(creating(w.secretive("secretbox", was)), event.Succeeded)
				w.served("before")
				b.spoil(w.Hosts[b.host])
				c := w.secretive("secretbox", 1)
				b.change(c)
				res := w.do(applying(c), event.Failed)
				if !res.Reverted {
					t.Fatalf("the settings were not rolled back: %+v", res.Failures)
				}
				provider := "secretbox"
				if was == 0 {
					provider = ""
				}
				w.encrypted(provider, was, "cp1", "cp2", "cp3")
				w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "apply Failed", "create Succeeded")
			})
		}
	}
}
