//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// plantedSecret is the content of a Secret, which must not be readable on disk.
const plantedSecret = "correct-horse-battery-staple"

// publicKey matches the key that verifies the backups of a server.
var publicKey = regexp.MustCompile(`ed25519:\S+`)

// TestServerBackup backs up one server and restores the backup as another one: all objects and
// Secrets are the same. A file that was cut or changed is refused, and so is existing data.
func TestServerBackup(t *testing.T) {
	program := daemonPath(t)
	from := filepath.Join(t.TempDir(), "from")
	d := startServer(t, from, freeAddress(t))
	d.createClusters(t, 0, 20)
	for _, ns := range []string{"team-a", "team-b"} {
		d.mustRequest(t, http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": ns}})
		d.mustRequest(t, http.MethodPost, "/api/v1/namespaces/"+ns+"/secrets", map[string]any{
			"metadata": map[string]any{"name": "login"}, "stringData": map[string]string{"password": plantedSecret},
		})
	}
	d.requireEncrypted(t)
	before := d.digestSettled(t)

	file := filepath.Join(t.TempDir(), "server.tar")
	r := runProgram(t, nil, program, "backup", "--data-dir="+from, "--out="+file)
	key := publicKey.FindString(r.stdout + r.stderr)
	if r.code != 0 || key == "" {
		t.Fatalf("backup ends with %d and prints the key %q: %s%s", r.code, key, r.stdout, r.stderr)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the backup has %v (%v), want 0600", info, err)
	}
	d.mustRequest(t, http.MethodDelete, "/api/v1/namespaces/team-b", nil) // not in the backup
	d.stop(t)

	checkRefusedBackups(t, file, key, from)
	to := filepath.Join(t.TempDir(), "to")
	mustSucceed(t, nil, program, "restore", file, "--data-dir="+to, "--signed-by="+key)
	restored := startServer(t, to, freeAddress(t))
	if after := restored.digestObjects(t); after != before {
		t.Errorf("the restored objects differ: %s, want %s", after, before)
	}
	restored.requireHold(t, func(command string) string { return mustSucceed(t, nil, program, command, "--data-dir="+to) })
}

// checkRefusedBackups restores files that must be refused. None leaves a directory.
func checkRefusedBackups(t *testing.T, file, key, existing string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(text)
	changed[len(changed)/2] ^= 1
	const otherKey = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	for _, tt := range []struct {
		name, reason string
		content      []byte
		args         []string
	}{
		{"cut", "a file that ends too early is not complete", text[:len(text)*2/3], []string{"--signed-by=" + key}},
		{"changed", "one other bit makes another file", changed, []string{"--signed-by=" + key}},
		{"not trusted", "without a key, anybody could have written the file", text, nil},
		{"signed by another", "the file is of another server", text, []string{"--signed-by=" + otherKey}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			bad, to := filepath.Join(dir, "bad.tar"), filepath.Join(dir, "data")
			if err := os.WriteFile(bad, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			r := runProgram(t, nil, append([]string{daemonPath(t), "restore", bad, "--data-dir=" + to}, tt.args...)...)
			if r.code == 0 || !strings.Contains(r.stderr, "[") {
				t.Errorf("%s: it ends with %d: %s", tt.reason, r.code, r.stderr)
			}
			if _, err := os.Stat(to); err == nil {
				t.Errorf("%s: the data directory exists", tt.reason)
			}
		})
	}
	t.Run("existing data", func(t *testing.T) {
		r := runProgram(t, nil, daemonPath(t), "restore", file, "--data-dir="+existing, "--signed-by="+key)
		requireRefusal(t, r, "data-dir-exists")
	})
}

// requireEncrypted fails the test if the planted Secret is in a file of the database.
func (d *daemon) requireEncrypted(t *testing.T) {
	t.Helper()
	read := 0
	err := filepath.WalkDir(filepath.Join(d.data, "etcd"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(plantedSecret)) {
			t.Errorf("%s has a Secret in plain text", path)
		}
		read += len(text)
		return err
	})
	if err != nil || read == 0 {
		t.Errorf("reading the database: %d bytes, %v", read, err)
	}
}

// requireHold fails the test unless the controllers wait for `slipwayd release`, and work
// afterwards. slipwayd runs a command of slipwayd on the machine of the server.
func (d *daemon) requireHold(t *testing.T, slipwayd func(command string) string) {
	t.Helper()
	out := slipwayd("status")
	if !strings.Contains(strings.ToLower(out), "hold") {
		t.Errorf("the status of a restored server does not show the hold: %s", out)
	}
	d.mustRequest(t, http.MethodDelete, "/api/v1/namespaces/team-a", nil)
	<-time.After(8 * time.Second) // the namespace controller takes five
	d.mustRequest(t, http.MethodGet, "/api/v1/namespaces/team-a", nil)
	slipwayd("release")
	eventually(t, time.Minute, "the deletion of a namespace after the release", func() error {
		if status, out, err := d.request(t.Context(), http.MethodGet, "/api/v1/namespaces/team-a", nil); status != http.StatusNotFound {
			return fmt.Errorf("%d %w: %s", status, err, out)
		}
		return nil
	})
}

// digestSettled returns the digest of all objects when the controllers have not changed one for a while.
func (d *daemon) digestSettled(t *testing.T) (is string) {
	t.Helper()
	eventually(t, 2*time.Minute, "objects that do not change", func() error {
		was := is
		<-time.After(3 * time.Second)
		if is = d.digestObjects(t); is != was {
			return errors.New("they change")
		}
		return nil
	})
	return is
}

// digestObjects returns a digest of all objects that users make, with the content of Secrets.
func (d *daemon) digestObjects(t *testing.T) string {
	t.Helper()
	h := sha256.New()
	objects := 0
	for _, path := range []string{
		"/api/v1/secrets", "/api/v1/namespaces/default/configmaps", "/api/v1/serviceaccounts", "/api/v1/namespaces",
		"/apis/slipway.dev/v1alpha1/clusters", "/apis/slipway.dev/v1alpha1/operations", "/apis/slipway.dev/v1alpha1/operationlogs",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	} {
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal(d.mustRequest(t, http.MethodGet, path, nil), &list); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, o := range list.Items {
			line, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(line))
		}
		slices.Sort(lines)
		for _, line := range lines {
			fmt.Fprintln(h, line)
		}
		objects += len(lines)
	}
	return fmt.Sprintf("%d objects, %s", objects, hex.EncodeToString(h.Sum(nil)))
}
