package controlplane_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/internal/server/controlplane"
)

// TestRobustRestore_HasSameObjects takes a snapshot of the running server and starts another
// server with it: objects and Secrets are the same, and watches of the first server must list.
func TestRobustRestore_HasSameObjects(t *testing.T) {
	ctx := t.Context()
	namespace := server.NewNamespace(t)
	client := server.Client(t)
	_, err := client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "credentials"}, StringData: map[string]string{"password": "correct horse"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, newValue("value"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := digests(t, client, namespace)

	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	info := writeSnapshot(t, snapshot)
	t.Logf("snapshot: %+v", info)
	// A later write, which the restored server does not have.
	later, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, newValue("later"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	data := filepath.Join(t.TempDir(), "data")
	copyServer(t, server.Dir.Path(), data)
	if err := controlplane.RestoreSnapshot(ctx, snapshot, filepath.Join(data, "etcd")); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, data, "", serverOptions{})
	restored := c.client(t)
	if diff := compareDigests(want, digests(t, restored, namespace)); diff != "" {
		t.Error(diff)
	}
	// A client that has seen a later version than the snapshot's must list again.
	w, err := restored.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: later.ResourceVersion})
	if err == nil {
		event := <-w.ResultChan()
		w.Stop()
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from a version of the first server: %v", err)
	}
	made, err := restored.CoreV1().ConfigMaps(namespace).Create(ctx, newValue("new"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if before, after := version(t, later.ResourceVersion), version(t, made.ResourceVersion); after <= before {
		t.Errorf("the version is %d after the restore, and was %d before", after, before)
	}
	c.stop(t)
}

// writeSnapshot writes a snapshot of the running server to a file, and checks its description.
func writeSnapshot(t *testing.T, path string) controlplane.SnapshotInfo {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := server.Snapshot(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	if info.SHA256 != hex.EncodeToString(sum[:]) || info.Bytes != int64(len(text)) || info.Revision == 0 {
		t.Errorf("the snapshot of %d bytes is described as %+v", len(text), info)
	}
	return info
}

// copyServer copies a data directory without its database.
func copyServer(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"pki", "keys"} {
		copyPrivate(t, filepath.Join(from, dir), filepath.Join(to, dir))
	}
	text, err := os.ReadFile(filepath.Join(from, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	var info map[string]any
	if err := json.Unmarshal(text, &info); err != nil {
		t.Fatal(err)
	}
	info["started"] = true
	if text, err = json.Marshal(info); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "server.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyPrivate copies a directory. Only the current user can read the copy.
func copyPrivate(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Mkdir(filepath.Join(to, name), 0o700)
		}
		if !e.Type().IsRegular() { // a socket
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// digests returns the digest of each object of a namespace.
func digests(t *testing.T, client kubernetes.Interface, namespace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	maps, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range maps.Items {
		addDigest(t, out, "configmap "+o.Name, o)
	}
	secrets, err := client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range secrets.Items {
		addDigest(t, out, "secret "+o.Name, o)
	}
	return out
}

func addDigest(t *testing.T, to map[string]string, name string, object any) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	to[name] = fmt.Sprintf("%x", sha256.Sum256(text))
}

// compareDigests returns the first difference.
func compareDigests(want, got map[string]string) string {
	for name := range want {
		if got[name] != want[name] {
			return fmt.Sprintf("%s: digest %q instead of %q", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d objects instead of %d", len(got), len(want))
	}
	return ""
}

func version(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRobustRestore_RefusesDamagedSnapshots restores snapshots that are truncated or altered.
func TestRobustRestore_RefusesDamagedSnapshots(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "snapshot.db")
	writeSnapshot(t, whole)
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	altered := append([]byte(nil), text...)
	altered[len(altered)/2] ^= 1
	tests := []struct {
		name, reason string
		content      []byte
	}{
		{"empty", "a full disk leaves such a file", nil},
		{"truncated", "a transfer was interrupted", text[:len(text)/2]},
		{"without its checksum", "a file of another tool has none", text[:len(text)-sha256.Size]},
		{"altered", "a disk or a person has changed it", altered},
		{"foreign", "the wrong file was selected", []byte("not a snapshot")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot.db")
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := controlplane.RestoreSnapshot(t.Context(), path, filepath.Join(t.TempDir(), "etcd")); err == nil {
				t.Errorf("it was restored: %s", test.reason)
			} else {
				t.Log(err)
			}
		})
	}
}
