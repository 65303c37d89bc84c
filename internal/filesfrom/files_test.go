package filesfrom

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/apicheck"
)

// filesOf returns files with content by name.
func filesOf(pairs ...string) Files {
	out := Files{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = secret.New(pairs[i+1])
	}
	return out
}

const uid = types.UID("11111111-2222-3333-4444-555555555555")

func digest(t *testing.T, f Files, key byte, cluster types.UID) string {
	t.Helper()
	d, err := f.Digest(bytes.Repeat([]byte{key}, MinKeyBytes), cluster)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDigest_DependsOnNamesAndContents(t *testing.T) {
	base := filesOf("a", "1", "b", "2")
	want := digest(t, base, 1, uid)
	for _, tc := range []struct {
		name, reason string
		files        Files
		same         bool
	}{
		{"copy", "it has the same files", maps.Clone(base), true},
		{"other order", "the order has no meaning", filesOf("b", "2", "a", "1"), true},
		{"other content", "the file has another effect", filesOf("a", "1", "b", "3"), false},
		{"other name", "the name is in the spec", filesOf("a", "1", "c", "2"), false},
		{"contents swapped", "each name has another content", filesOf("a", "2", "b", "1"), false},
		{"one more", "a file is added", filesOf("a", "1", "b", "2", "c", ""), false},
		{"one less", "a file is removed", filesOf("a", "1"), false},
		{"empty file", "an empty file is not a missing file", filesOf("a", "1", "b", ""), false},
		{"joined", "the limits of texts count", filesOf("a", "1b2"), false},
		{"moved letter", "the limits of texts count", filesOf("a1", "", "b", "2"), false},
		{"none", "there is no file", Files{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := digest(t, tc.files, 1, uid); (got == want) != tc.same {
				t.Errorf("%s: %s, before %s", tc.reason, got, want)
			}
		})
	}
	if digest(t, base, 2, uid) == want {
		t.Error("the key has no effect: contents can be guessed")
	}
	if digest(t, base, 1, uid+"6") == want {
		t.Error("the cluster has no effect: a user can compare the digests of two clusters")
	}
}

// TestDigest_NeverChanges checks the format: a saved approval has the digest.
func TestDigest_NeverChanges(t *testing.T) {
	const want = "hmac-sha256:cc7d220a65f0869459815ad76d89277f5b7ee91b77430ec94243c6aa6219b7b7"
	if got := digest(t, filesOf("a", "1", "b", "2"), 1, uid); got != want {
		t.Errorf("got %s", got)
	}
}

func TestDigest_RefusesWeakInput(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		key          []byte
		cluster      types.UID
	}{
		{"no key", "contents could be guessed", nil, uid},
		{"short key", "the key could be guessed", make([]byte, MinKeyBytes-1), uid},
		{"no cluster", "digests of clusters could be compared", make([]byte, MinKeyBytes), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := filesOf("a", "1").Digest(tc.key, tc.cluster); err == nil || got != "" {
				t.Errorf("%s: %q", tc.reason, got)
			}
		})
	}
}

// newBase returns a directory that only this user can write.
func newBase(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWriteDir_GivesFilesToSpec(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(map[string]map[string][]byte{
		"Secret ssh":      texts("id_ed25519", string(pem.EncodeToMemory(block)), "sudo", "hunter2\n"),
		"ConfigMap files": texts("h.sh", "true", "a.yaml", "kind: ConfigMap", ".hidden", ""),
	})
	c := decodeSpec(t, `
filesFrom: [{secretRef: {name: ssh}}, {configMapRef: {name: files}}]
ssh: {privateKeyFile: id_ed25519, sudoPasswordFrom: {file: sudo}}
hooks: [{name: h, phase: preInstall, script: h.sh, materials: [.hidden]}]
addons: [{name: a, manifests: [a.yaml]}]`)
	resolved, err := Resolve(t.Context(), r, c)
	if err != nil {
		t.Fatal(err)
	}
	base := newBase(t)
	dir, err := resolved.Files.WriteDir(base)
	if err != nil {
		t.Fatal(err)
	}
	if found := spec.CheckFiles(c, PathsIn(dir)); len(found) > 0 { // also warnings about modes
		t.Error(found)
	}
	used := c.DeepCopy()
	if err := spec.MakePathsAbsolute(used, PathsIn(dir)); err != nil {
		t.Fatal(err)
	}
	if got := used.Spec.Hooks[0].Script; got != filepath.Join(dir.Path(), "h.sh") {
		t.Errorf("the script is %s", got)
	}
	if text, err := secret.ResolveSource(*used.Spec.SSH.SudoPasswordFrom); err != nil || text.Reveal() != "hunter2" {
		t.Errorf("the password cannot be read: %v", err)
	}
	if got := PathsIn(dir).Resolve("~/.ssh/id_rsa"); !strings.HasPrefix(got, dir.Path()) {
		t.Errorf("a home directory of the server is used: %s", got)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(base)
	if err != nil || len(entries) > 0 {
		t.Errorf("remains: %v, %v", entries, err)
	}
}

// TestPathsIn_NamesKeysInMessages has a problem in each kind of file. The user knows the keys, but not the
// private directory of the server.
func TestPathsIn_NamesKeysInMessages(t *testing.T) {
	resolved := filesOf("id_ed25519", "ssh-ed25519 AAAA", "ca.crt", "no certificate", "policy.yaml", "{")
	c := decodeSpec(t, `
filesFrom: [{secretRef: {name: ssh}}]
ssh: {privateKeyFile: id_ed25519, sudoPasswordFrom: {file: sudo}}
etcd: {type: external, external: {endpoints: ["https://10.0.0.9:2379"], caFile: ca.crt, certFile: etcd.crt, keyFile: etcd.key}}
kubernetes: {audit: {policyFile: policy.yaml}}
registry: {auths: [{registry: r.example, username: u, passwordFrom: {file: login}, caFile: ca.crt}]}
hooks: [{name: h, phase: preInstall, script: h.sh, materials: [.hidden]}]
addons: [{name: a, manifests: [a.yaml]}]`)
	dir, err := resolved.WriteDir(newBase(t))
	if err != nil {
		t.Fatal(err)
	}
	absolute := c.DeepCopy()
	if err := spec.MakePathsAbsolute(absolute, PathsIn(dir)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*v1alpha1.Cluster{"names": c, "paths": absolute} {
		found := spec.CheckFiles(c, PathsIn(dir))
		text := found.Error()
		if strings.Contains(text, dir.Path()) || strings.Contains(text, "cluster file") {
			t.Errorf("%s: a message has a path of the server or a hint for files:\n%s", name, text)
		}
		for key := range strings.FieldsSeq("id_ed25519 sudo ca.crt etcd.crt etcd.key policy.yaml login h.sh .hidden a.yaml") {
			if !strings.Contains(text, key+": ") && !strings.Contains(text, key+" ") {
				t.Errorf("%s: no message names the key %s:\n%s", name, key, text)
			}
		}
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWriteDir_LeavesNothingAfterError(t *testing.T) {
	base := newBase(t)
	dir, err := filesOf("a", "1", "b/c", "2").WriteDir(base)
	if dir != nil || !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("%v, %v", dir, err)
	}
	entries, err := os.ReadDir(base)
	if err != nil || len(entries) > 0 {
		t.Errorf("remains: %v, %v", entries, err)
	}
	if _, err := filesOf("a", "1").WriteDir("/nonexistent"); err == nil {
		t.Error("a missing base is used")
	}
}

func TestCompare_NamesFiles(t *testing.T) {
	many := Files{}
	for _, name := range strings.Split("g f e d c b a", " ") {
		many[name] = secret.New("1")
	}
	for _, tc := range []struct {
		name, reason  string
		before, after Files
		want          Changes
		text          string
	}{
		{"same", "nothing differs", filesOf("a", "1"), filesOf("a", "1"), Changes{}, "no changes"},
		{"none", "there are no files", nil, nil, Changes{}, "no changes"},
		{
			"each kind", "each file is named once", filesOf("a", "1", "b", "1", "c", "1"), filesOf("b", "2", "c", "1", "d", "hunter2"),
			Changes{Added: []string{"d"}, Removed: []string{"a"}, Changed: []string{"b"}},
			"added d; removed a; changed b",
		},
		{
			"empty", "an empty file is not a missing file", filesOf("a", "", "b", "1"), filesOf("b", ""),
			Changes{Removed: []string{"a"}, Changed: []string{"b"}},
			"removed a; changed b",
		},
		{
			"many", "a message is short, and names are sorted", nil, many,
			Changes{Added: []string{"a", "b", "c", "d", "e", "f", "g"}},
			"added a, b, c, d, e and 2 more",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Compare(tc.before, tc.after)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if got.String() != tc.text || got.IsEmpty() != (tc.text == "no changes") {
				t.Errorf("%s: %s", tc.reason, got)
			}
		})
	}
}

// FuzzResolve wants that each file of an accepted object is in its private directory, and that
// the names of the spec lead only there.
func FuzzResolve(f *testing.F) {
	hostile := []string{"a.sh", "", ".", "..", "..data", "../a", "a/b", `a\b`, "/a", "~", "~/a", "$A", "a\x00", "ä", "-x", ".hidden"}
	for _, name := range hostile {
		f.Add(name, name)
		f.Add("a.sh", name)
		f.Add(name, "a.sh")
	}
	f.Add(strings.Repeat("a", 253), strings.Repeat("a", 254))
	base := f.TempDir()
	if err := os.Chmod(base, 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, script, key string) {
		c := decodeSpec(t, "hooks: [{name: h, phase: preInstall}]")
		c.Spec.Hooks[0].Script = script
		data := texts("id_ed25519", "key", key, "content")
		resolved, err := Resolve(t.Context(), newReader(map[string]map[string][]byte{"Secret ssh": data}), c)
		if err != nil {
			return
		}
		if apicheck.Check(c, []apicheck.Source{{Found: true, Data: data}}).Err() != nil {
			t.Fatal("an object that the strict check refuses is accepted")
		}
		dir, err := resolved.Files.WriteDir(base)
		if err != nil {
			t.Fatalf("an accepted key cannot be a file: %v", err)
		}
		names, err := dir.List()
		if want := slices.Sorted(maps.Keys(data)); err != nil || !slices.Equal(names, want) {
			t.Errorf("the directory has %q, want %q: %v", names, want, err)
		}
		if script != "" { // Validate requires it
			path := PathsIn(dir).Resolve(script)
			content, err := os.ReadFile(path)
			if filepath.Dir(path) != dir.Path() || err != nil || !bytes.Equal(content, data[script]) {
				t.Errorf("%q leads to %q: %v", script, path, err)
			}
		}
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
}
