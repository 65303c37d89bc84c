package keys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/server/privatefile"
)

func openFresh(t *testing.T) *Keys {
	t.Helper()
	k, err := Open(filepath.Join(t.TempDir(), "keys"), true)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// idOf returns the id of a refusal; the text of any other error.
func idOf(err error) string {
	var list diag.List
	switch {
	case err == nil:
		return ""
	case errors.As(err, &list):
		return list[0].ID
	}
	return err.Error()
}

// readAll returns the content of all files in a directory.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}

func TestOpen_MakesPrivateKeysOnce(t *testing.T) {
	k := openFresh(t)
	first := readAll(t, k.dir)
	modes := map[string]fs.FileMode{}
	for name := range first {
		info, err := os.Stat(k.path(name))
		if err != nil {
			t.Fatal(err)
		}
		modes[name] = info.Mode()
	}
	if d := cmp.Diff(map[string]fs.FileMode{"sa.key": 0o600, "sa.pub": 0o600, "encryption.yaml": 0o600}, modes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, fresh := range []bool{false, true} {
		if _, err := Open(k.dir, fresh); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(first, readAll(t, k.dir)); d != "" {
			t.Errorf("opening again, fresh %v, changed files (-want +got):\n%s", fresh, d)
		}
	}
	if first["encryption.yaml"] == readAll(t, openFresh(t).dir)["encryption.yaml"] {
		t.Error("two servers have the same encryption key")
	}
}

// TestOpen_RefusesMissingAndDamagedKeys: nothing is overwritten, since etcd has data that
// only the previous keys decrypt.
func TestOpen_RefusesMissingAndDamagedKeys(t *testing.T) {
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	edit := func(name string, change func(string) string) func(string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, []byte(change(string(text))), 0o600)
		}
	}
	swap := func(from, to string) func(string) string {
		return func(s string) string { return strings.Replace(s, from, to, 1) }
	}
	empty := func(string) string { return "" }
	for _, tt := range []struct {
		name, reason string
		change       func(dir string) error
		fresh        bool
		want         string
	}{
		{"no encryption keys", "Secrets are lost without them", remove("encryption.yaml"), false, "server-keys-missing"},
		{"no signing key", "all tokens would become invalid", remove("sa.key"), false, "server-keys-missing"},
		{"no directory", "a disk may not be mounted", os.RemoveAll, false, "server-keys-missing"},
		{"no encryption keys, fresh", "the first start was interrupted", remove("encryption.yaml"), true, ""},
		{"no signing key, fresh", "it is written first, so the others are foreign", remove("sa.key"), true, "server-keys-damaged"},
		{"no public key", "the private key contains it", remove("sa.pub"), false, ""},
		{"empty encryption keys", "a full disk", edit("encryption.yaml", empty), false, "server-keys-damaged"},
		{"empty encryption keys, fresh", "it is not overwritten", edit("encryption.yaml", empty), true, "server-keys-damaged"},
		{"empty signing key", "a full disk", edit("sa.key", empty), false, "server-keys-damaged"},
		{"other public key", "tokens could not be verified", edit("sa.pub", swap("M", "N")), false, "server-keys-damaged"},
		{"half a key", "a damaged disk", edit("encryption.yaml", swap("secret: ", "secret: AAAA")), false, "server-keys-damaged"},
		{"foreign name", "made by another program", edit("encryption.yaml", swap("name: key1", "name: key01")), false, "server-keys-damaged"},
		{
			"name of the future", "the name would be used again",
			edit("encryption.yaml", swap("name: key1", "name: key2")), false, "server-keys-damaged",
		},
		{"no newest key", "a name could be used again", edit("encryption.yaml", swap("newest", "latest")), false, "server-keys-damaged"},
		{"other kinds", "not our configuration", edit("encryption.yaml", swap("- secrets", "- configmaps")), false, "server-keys-damaged"},
		{"unknown field", "not our configuration", edit("encryption.yaml", swap("kind:", "x: y\nkind:")), false, "server-keys-damaged"},
		{"other provider", "not our configuration", edit("encryption.yaml", swap("secretbox", "aesgcm")), false, "server-keys-damaged"},
		{"other layout", "a newer version can write comments", edit("encryption.yaml", swap("kind:", "# x\nkind:")), false, ""},
		{"readable", "others may know the keys", func(dir string) error {
			return os.Chmod(filepath.Join(dir, "encryption.yaml"), 0o644)
		}, false, "server-file-unsafe"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := openFresh(t)
			if err := tt.change(k.dir); err != nil {
				t.Fatal(err)
			}
			before := map[string]string{}
			if _, err := os.Stat(k.dir); err == nil {
				before = readAll(t, k.dir)
			}
			_, err := Open(k.dir, tt.fresh)
			if d := cmp.Diff(tt.want, idOf(err)); d != "" {
				t.Fatalf("%s: %v (-want +got):\n%s", tt.reason, err, d)
			}
			if err == nil {
				return
			}
			for name, text := range before {
				if readAll(t, k.dir)[name] != text {
					t.Errorf("%s was changed", name)
				}
			}
			if strings.Contains(err.Error(), "secret:") {
				t.Errorf("the message has a part of a key: %v", err)
			}
		})
	}
}

// TestOpen_RefusesEveryTruncation: no part of the file is accepted for the whole.
func TestOpen_RefusesEveryTruncation(t *testing.T) {
	k := openFresh(t)
	if _, err := k.AddEncryptionKey(); err != nil {
		t.Fatal(err)
	}
	text := []byte(readAll(t, k.dir)["encryption.yaml"])
	for n := range len(text) - 1 { // the last byte is the end of a line
		if _, err := parseEncryption(text[:n]); err == nil {
			t.Errorf("accepted %d of %d bytes: %s", n, len(text), text[:n])
		}
	}
}

func TestServiceAccountPublicKeys_IncludeEarlierKeys(t *testing.T) {
	k := openFresh(t)
	key, _, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pki.EncodePublic(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"sa-2026.pub": string(public), "sa-2025.pub": string(public), "notes.txt": "x"} {
		if err := os.WriteFile(k.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := Open(k.dir, false)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{k.path("sa.pub"), k.path("sa-2025.pub"), k.path("sa-2026.pub")}
	if d := cmp.Diff(want, opened.ServiceAccountPublicKeys()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := os.WriteFile(k.path("sa-2025.pub"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(k.dir, false); idOf(err) != idDamaged {
		t.Errorf("a damaged earlier key: %v", err)
	}
}

// errKilled ends a test function as a signal ends a server.
var errKilled = errors.New("killed")

// runUntil calls run with a writer that ends it after a number of steps, and reports whether
// it was ended.
func runUntil(steps int, run func(privatefile.Writer) error) (killed bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			killed = r == any(errKilled)
		}
	}()
	return false, run(privatefile.Writer{After: func(string) {
		if steps--; steps < 0 {
			panic(errKilled)
		}
	}})
}
