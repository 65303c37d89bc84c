package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/records"
)

func testClusterFiles(t *testing.T, s Subject) {
	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("prod"), nil))
	wantFile := func(when string, want []byte) {
		t.Helper()
		got, err := s.Again().ClusterFiles().Load(t.Context(), "prod", records.RegistryHashes)
		if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %q, %v, want %q", when, got, err, want)
		}
	}
	wantFile("before any", nil)
	requireNoError(t, s.ClusterFiles().Save(t.Context(), "prod", records.RegistryHashes, []byte("one\x00\n")))
	wantFile("after the first", []byte("one\x00\n"))
	requireNoError(t, s.ClusterFiles().Save(t.Context(), "prod", records.RegistryHashes, []byte("two")))
	wantFile("after the second", []byte("two"))
	requireNoError(t, s.ClusterFiles().Save(t.Context(), "prod", records.RegistryHashes, nil))
	wantFile("after it was removed", nil)
	requireNoError(t, s.ClusterFiles().Save(t.Context(), "prod", records.RegistryHashes, nil))

	requireNoError(t, s.ClusterFiles().Save(t.Context(), "prod", records.RegistryHashes, []byte("three")))
	requireNoError(t, s.Clusters().Remove(t.Context(), "prod"))
	wantFile("after the cluster was removed", nil)

	err := s.ClusterFiles().Save(t.Context(), "../x", records.RegistryCA, []byte("x"))
	wantErr(t, "a file of an invalid name", err, records.ErrInvalidName)
	_, err = s.ClusterFiles().Load(t.Context(), "../x", records.RegistryCA)
	wantErr(t, "reading a file of an invalid name", err, records.ErrInvalidName)
	for _, place := range []string{s.ClusterFiles().Location("prod", records.RegistryCA), s.Kubeconfigs().Location("prod")} {
		if place == "" {
			t.Error("a message cannot name the place of a record")
		}
	}
}

// createClusterFile creates a file in several processes at the same time.
func createClusterFile(t *testing.T, s Subject) {
	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("prod"), nil))
	failed := errors.New("failed")
	_, err := s.ClusterFiles().LoadOrCreate(t.Context(), "prod", records.RegistryCAKey, func() ([]byte, error) { return nil, failed })
	wantErr(t, "content that cannot be made", err, failed)
	made := make(chan string)
	for i := range 8 {
		go func() {
			text, err := s.Again().ClusterFiles().LoadOrCreate(t.Context(), "prod", records.RegistryCAKey, func() ([]byte, error) {
				return fmt.Appendf(nil, "key %d", i), nil
			})
			if err != nil {
				text = []byte(err.Error())
			}
			made <- string(text)
		}()
	}
	var got []string
	for range 8 {
		got = append(got, <-made)
	}
	saved, err := s.ClusterFiles().Load(t.Context(), "prod", records.RegistryCAKey)
	requireNoError(t, err)
	if want := slices.Repeat([]string{string(saved)}, 8); len(saved) == 0 || !slices.Equal(want, got) {
		t.Errorf("callers got %q, saved is %q: want one content", got, saved)
	}
	again, err := s.ClusterFiles().LoadOrCreate(t.Context(), "prod", records.RegistryCAKey, func() ([]byte, error) { return nil, failed })
	if !bytes.Equal(again, saved) || err != nil {
		t.Errorf("the file is created again: %q, %v", again, err)
	}
}

func testBackups(t *testing.T, s Subject) {
	names, err := s.Backups().ListClusters(t.Context())
	if len(names) > 0 || err != nil {
		t.Errorf("clusters with backups before any: %v, %v", names, err)
	}
	for _, name := range []string{"prod", "lab"} {
		dir, err := s.Backups().Dir(name)
		requireNoError(t, err)
		made, err := s.Again().Backups().MakeDir(name)
		requireNoError(t, err)
		if info, err := os.Stat(dir); made != dir || err != nil || !info.IsDir() {
			t.Errorf("the directory %s was made at %s, %v", dir, made, err)
		}
		_, err = s.Backups().MakeDir(name)
		requireNoError(t, err)
	}
	_, err = s.Backups().MakeDir("../x")
	wantErr(t, "the directory of an invalid name", err, records.ErrInvalidName)
	names, err = s.Again().Backups().ListClusters(t.Context())
	if d := cmp.Diff([]string{"lab", "prod"}, names); d != "" || err != nil {
		t.Errorf("clusters with backups, %v (-want +got):\n%s", err, d)
	}

	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("prod"), nil))
	signers, err := s.Backups().LoadFormerSigners(t.Context(), "prod")
	if len(signers) > 0 || err != nil {
		t.Errorf("former signers before any: %v, %v", signers, err)
	}
	for _, adopted := range []struct{ key, former string }{{"second", "age-1"}, {"third", "age-2"}, {"third", "age-2"}} {
		requireNoError(t, s.Backups().AdoptKey(t.Context(), "prod", []byte(adopted.key), adopted.former))
	}
	signers, err = s.Again().Backups().LoadFormerSigners(t.Context(), "prod")
	if d := cmp.Diff([]string{"age-1", "age-2"}, signers); d != "" || err != nil {
		t.Errorf("former signers, %v (-want +got):\n%s", err, d)
	}
	key, err := s.Again().ClusterFiles().Load(t.Context(), "prod", records.BackupKey)
	if string(key) != "third" || err != nil {
		t.Errorf("the key is %q, %v, want the adopted one", key, err)
	}
}

// openFiles returns the records as files. The test closes them.
func openFiles(t *testing.T, s Subject) records.Files {
	t.Helper()
	f, err := s.Files(t.Context())
	requireNoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func kubeconfigAsFile(t *testing.T, s Subject) {
	saved, other := adminKubeconfig(t, "https://198.18.0.2:6443"), adminKubeconfig(t, "https://198.18.0.3:6443")
	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("prod"), nil))
	requireNoError(t, s.Kubeconfigs().Save(t.Context(), "prod", saved))
	f := openFiles(t, s)
	for _, tc := range []struct {
		name, reason string
		content      []byte
	}{
		{"saved", "it is the usual one", saved},
		{"other", "it has another address", other},
		{"other again", "two callers can use it", other},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path, release, err := f.Kubeconfig(t.Context(), "prod", tc.content)
			requireNoError(t, err)
			wantPrivateFile(t, path, tc.content)
			second, releaseSecond, err := f.Kubeconfig(t.Context(), "prod", tc.content)
			requireNoError(t, err)
			releaseSecond()
			wantPrivateFile(t, path, tc.content) // the first caller still uses it
			release()
			if _, err := os.Stat(second); tc.name != "saved" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: the file remains after its release: %v", tc.reason, err)
			}
		})
	}
	for _, bad := range []struct{ cluster, content, reason string }{
		{"prod", string(other) + "extensions: []\n", "it has another field"},
		{"prod", "", "it is empty"},
		{"../x", string(other), "the name is invalid"},
	} {
		if path, _, err := f.Kubeconfig(t.Context(), bad.cluster, []byte(bad.content)); err == nil {
			t.Errorf("a kubeconfig was written to %s: %s", path, bad.reason)
		}
	}
	left, err := s.Kubeconfigs().Load(t.Context(), "prod")
	if !bytes.Equal(left, saved) || err != nil {
		t.Errorf("the saved kubeconfig was changed to %q, %v", left, err)
	}
	if info, err := os.Stat(f.TempDir()); err != nil || !info.IsDir() {
		t.Errorf("the directory for temporary files: %v", err)
	}
	requireNoError(t, f.Close())
}

// wantPrivateFile checks the content of a file, and that other users cannot read it.
func wantPrivateFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	requireNoError(t, err)
	info, err := os.Stat(path)
	requireNoError(t, err)
	if !bytes.Equal(got, want) || info.Mode().Perm() != 0o600 {
		t.Errorf("%s has %q with mode %v, want %q", path, got, info.Mode(), want)
	}
}

// testKnownHosts appends host keys, as an SSH library does, in two processes.
func testKnownHosts(t *testing.T, s Subject) {
	first, second := openFiles(t, s), openFiles(t, s.Again())
	wantPrivateFile(t, first.KnownHosts(), nil)
	appendLine(t, first.KnownHosts(), "cp1 ssh-ed25519 AAAA")
	appendLine(t, second.KnownHosts(), "w1 ssh-ed25519 BBBB")
	requireNoError(t, first.Close())
	requireNoError(t, second.Close())
	third := openFiles(t, s.Again())
	appendLine(t, third.KnownHosts(), "w2 ssh-ed25519 CCCC")
	requireNoError(t, third.Close())
	last := openFiles(t, s)
	wantPrivateFile(t, last.KnownHosts(), []byte("cp1 ssh-ed25519 AAAA\nw1 ssh-ed25519 BBBB\nw2 ssh-ed25519 CCCC\n"))
	requireNoError(t, last.Close())
}

func appendLine(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	requireNoError(t, err)
	_, err = f.WriteString(line + "\n")
	requireNoError(t, errors.Join(err, f.Close()))
}

func clusterFileAsFile(t *testing.T, s Subject) {
	requireNoError(t, s.Clusters().Save(t.Context(), newCluster("prod"), nil))
	f := openFiles(t, s)
	path, err := f.ClusterFile(t.Context(), "prod", records.RegistryCA)
	requireNoError(t, err)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not saved: %v", err)
	}
	for _, content := range []string{"first", "second"} {
		requireNoError(t, s.ClusterFiles().Save(t.Context(), "prod", records.RegistryCA, []byte(content)))
		path, err := f.ClusterFile(t.Context(), "prod", records.RegistryCA)
		requireNoError(t, err)
		wantPrivateFile(t, path, []byte(content))
	}
	_, err = f.ClusterFile(t.Context(), "../x", records.RegistryCA)
	wantErr(t, "a file of an invalid name", err, records.ErrInvalidName)
	requireNoError(t, f.Close())
}
