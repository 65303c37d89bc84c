package kubeconfig

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/golden"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

func adminKubeconfig(server, ca string) []byte {
	return []byte(`apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: ` + ca + `
    server: ` + server + `
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: kubernetes-admin
  name: kubernetes-admin@kubernetes
current-context: kubernetes-admin@kubernetes
kind: Config
users:
- name: kubernetes-admin
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
`)
}

func prodAccess() Access {
	return Access{Cluster: "prod", Admin: adminKubeconfig("https://10.0.0.11:6443", "UFJPRA==")}
}

func readGolden(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestMergeAndRemove_RestoresOriginalFile runs over testdata/*.yaml: the golden file is
// the result of the merge, and removing the entries restores the original file.
func TestMergeAndRemove_RestoresOriginalFile(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			before := readGolden(t, name)
			if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := Merge(t.Context(), path, prodAccess(), MergeOptions{}, nil); err != nil {
				t.Fatal(err)
			}
			after := readGolden(t, path)
			golden.Check(t, strings.TrimSuffix(name, ".yaml")+".golden", after)
			sameWhenRepeated(t, path, after)
			if err := Remove(t.Context(), path, prodAccess(), nil); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(before, readGolden(t, path)); d != "" && !strings.Contains(name, "null") {
				t.Errorf("removing does not restore the file (-before +after):\n%s", d)
			}
		})
	}
}

func sameWhenRepeated(t *testing.T, path, text string) {
	t.Helper()
	old, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Merge(t.Context(), path, prodAccess(), MergeOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	now, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(old, now) || readGolden(t, path) != text {
		t.Error("merging again wrote the file again")
	}
	if now.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", now.Mode())
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	hidden, hiddenErr := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err := errors.Join(err, hiddenErr); err != nil || len(left)+len(hidden) != 1 {
		t.Errorf("files are left behind: %v %v %v", left, hidden, err)
	}
}

func TestMerge_CreatesFileWithPrivateDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "dir", "config")
	if err := Merge(t.Context(), path, prodAccess(), MergeOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("kubernetes-admin@kubernetes", "prod", "kubernetes-admin", "slipway-prod",
		"kubernetes", "slipway-prod").Replace(string(prodAccess().Admin))
	got := readGolden(t, path)
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		if !strings.Contains(got, strings.TrimLeft(line, "- ")) {
			t.Errorf("%q is missing in\n%s", line, got)
		}
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v %v, want 0700", info.Mode(), err)
	}
}

func TestMerge_SetsCurrentContextOnlyIfEmptyOrRequested(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	current := func() string {
		return regexp.MustCompile(`(?m)^current-context: (.*)$`).FindStringSubmatch(readGolden(t, path))[1]
	}
	edge := Access{Cluster: "edge", Admin: adminKubeconfig("https://10.0.0.99:6443", "RURHRQ==")}
	for _, step := range []struct {
		reason string
		do     func() error
		want   string
	}{
		{"the first becomes the current one", func() error { return Merge(t.Context(), path, prodAccess(), MergeOptions{}, nil) }, "prod"},
		{"a second does not", func() error { return Merge(t.Context(), path, edge, MergeOptions{}, nil) }, "prod"},
		{"unless asked", func() error { return Merge(t.Context(), path, edge, MergeOptions{Use: true}, nil) }, "edge"},
		{"removing another leaves it", func() error { return Remove(t.Context(), path, Access{Cluster: "prod"}, nil) }, "edge"},
		{"removing the current one leaves none", func() error { return Remove(t.Context(), path, edge, nil) }, `""`},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := current(); got != step.want {
			t.Errorf("current context %s, want %s: %s", got, step.want, step.reason)
		}
	}
	if err := Remove(t.Context(), filepath.Join(t.TempDir(), "none"), edge, nil); err != nil {
		t.Errorf("removing from a missing file: %v", err)
	}
}

func TestMerge_RefusesEntriesOfOtherClusters(t *testing.T) {
	entry := func(name, server, ca string) string {
		return "clusters:\n- cluster: {server: '" + server + "', certificate-authority-data: " + ca + "}\n  name: " + name +
			"\ncontexts:\n- context: {cluster: " + name + ", user: u, namespace: mine}\n  name: prod\n"
	}
	for _, tc := range []struct {
		name, reason, file string
		conflict           bool
	}{
		{
			"recreated", "the same server with a new CA is the same cluster",
			entry("slipway-prod", "https://10.0.0.11:6443", "T0xE"), false,
		},
		{"moved", "the same authority at a new address is this cluster", entry("slipway-prod", "https://10.0.0.77:6443", "UFJPRA=="), false},
		{"same name", "another cluster with that name would lose its entry", entry("slipway-prod", "https://10.9.9.9:6443", "T0xE"), true},
		{"foreign", "a context of another tool", entry("kind-prod", "https://127.0.0.1:1", "T0xE"), true},
		{"foreign, same server only", "the address may belong to another cluster now", entry("other", "https://10.0.0.11:6443", "T0xE"), true},
		{"foreign, same cluster", "kubeadm's own entry for it", entry("kubernetes", "https://10.0.0.11:6443", "UFJPRA=="), false},
		{"dangling", "its cluster is unknown", "contexts:\n- context: {cluster: gone}\n  name: prod\n", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Merge(t.Context(), path, prodAccess(), MergeOptions{}, nil)
			var list diag.List
			if (err != nil) != tc.conflict || tc.conflict && (!errors.As(err, &list) || list[0].ID != idConflict || list[0].Hint == "") {
				t.Fatalf("got %v: %s", err, tc.reason)
			}
			if !tc.conflict {
				return
			}
			if readGolden(t, path) != tc.file {
				t.Error("a refused merge changed the file")
			}
			if err := Remove(t.Context(), path, prodAccess(), nil); err != nil || tc.name == "namesake" && readGolden(t, path) != tc.file {
				t.Errorf("removing also removed the entries of another cluster: %v\n%s", err, readGolden(t, path))
			}
			if err := Merge(t.Context(), path, prodAccess(), MergeOptions{Replace: true}, nil); err != nil ||
				!strings.Contains(readGolden(t, path), "10.0.0.11") {
				t.Errorf("replacing: %v", err)
			}
		})
	}
}

func TestMerge_LeavesInvalidFilesUnchanged(t *testing.T) {
	for name, text := range map[string]string{
		"syntax": "a: b: c", "a list": "- a", "two documents": "a: b\n---\nc: d\n", "clusters": "clusters: {a: b}\n",
		"another kind": "apiVersion: v1\nkind: Pod\n", "no text": "\xff\xfe",
		"item": "users: [a]\n", "alias": "users:\n- &a {name: x}\n- *a\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var list diag.List
			if err := Merge(t.Context(), path, prodAccess(), MergeOptions{}, nil); !errors.As(err, &list) || list[0].ID != idInvalid ||
				readGolden(t, path) != text {
				t.Errorf("got %v, and the file is %q", err, readGolden(t, path))
			}
		})
	}
	if err := Merge(t.Context(), filepath.Join(t.TempDir(), "config"),
		Access{Cluster: "prod", Admin: []byte("kind: Config\n")}, MergeOptions{}, nil); err == nil {
		t.Error("an admin kubeconfig without a context was merged")
	}
}

// If root replaced /dev/null, the whole machine would lose it.
func TestMerge_LeavesDevicesAndPipesInPlace(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pipe", link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"a directory": dir, "a pipe": pipe, "a link to a pipe": link} {
		t.Run(name, func(t *testing.T) {
			var list diag.List
			if err := Merge(t.Context(), path, prodAccess(), MergeOptions{}, nil); !errors.As(err, &list) || list[0].ID != idInvalid {
				t.Errorf("merging: %v", err)
			}
			if err := Write(path, prodAccess(), nil); !errors.As(err, &list) || list[0].ID != idInvalid {
				t.Errorf("writing: %v", err)
			}
			if err := Remove(t.Context(), path, prodAccess(), nil); err != nil {
				t.Errorf("removing from a device: %v", err)
			}
		})
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the pipe was replaced: %v %v", info, err)
	}
	if _, err := os.Lstat(pipe + ".lock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a lock file remains next to the pipe: %v", err)
	}
}

func TestMerge_KeepsLinksAndFileOwners(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	dir := t.TempDir()
	target, link := filepath.Join(dir, "dotfiles", "config"), filepath.Join(dir, "config")
	if err := os.Symlink("dotfiles/config", link); err != nil {
		t.Fatal(err)
	}
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	if err := Merge(t.Context(), link, prodAccess(), MergeOptions{}, to); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Fatalf("the link was replaced: %v %v", info.Mode(), err)
	}
	for _, name := range []string{target, filepath.Dir(target)} {
		if uid, gid := ownerOf(t, name); uid != to.UID || gid != to.GID {
			t.Errorf("%s belongs to %d:%d, want %d:%d", name, uid, gid, to.UID, to.GID)
		}
	}
	if err := Remove(t.Context(), link, prodAccess(), nil); err != nil {
		t.Fatal(err)
	}
	if uid, gid := ownerOf(t, target); uid != to.UID || gid != to.GID {
		t.Errorf("an existing file changed its owner to %d:%d", uid, gid)
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	if err := Merge(t.Context(), filepath.Join(dir, "loop"), prodAccess(), MergeOptions{}, nil); err == nil {
		t.Error("a loop of links was followed")
	}
}

func TestMerge_KeepsAllConcurrentMerges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	var group sync.WaitGroup
	for _, name := range strings.Fields("a b c d e f g h") {
		group.Go(func() {
			if err := Merge(t.Context(), path, Access{Cluster: name, Admin: adminKubeconfig("https://10.0.0.1:6443", "QQ==")},
				MergeOptions{}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := strings.Count(readGolden(t, path), "cluster: slipway-"); n != 8 {
		t.Errorf("found %d of 8 merges:\n%s", n, readGolden(t, path))
	}
}

func TestMerge_RespectsLockOfKubectl(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Merge(t.Context(), path, prodAccess(), MergeOptions{}, nil); err != nil {
		t.Errorf("with the lock file of a dead process: %v", err)
	}
	if err := os.WriteFile(path+".lock", nil, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Merge(ctx, path, prodAccess(), MergeOptions{Use: true}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the wait for kubectl's lock did not end with the context: %v", err)
	}
	if _, err := os.Lstat(path + ".lock"); err != nil {
		t.Errorf("kubectl's lock was removed: %v", err)
	}
}

func TestWrite_WritesOnlyGivenAccess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "apart")
	access := prodAccess()
	access.Server = "https://203.0.113.7:6443"
	if err := Write(path, access, nil); err != nil {
		t.Fatal(err)
	}
	if got := readGolden(t, path); !strings.Contains(got, access.Server) || strings.Contains(got, "10.0.0.11") ||
		!strings.Contains(got, "current-context: prod") {
		t.Errorf("the separate file:\n%s", got)
	}
}

func TestDefaultPath_FollowsKubeconfigVariable(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for list, want := range map[string]string{
		"": "/home/me/.kube/config", "/none/a": "/none/a", "/none/a::" + there + ":/none/b": there, "/none/a:/none/b": "/none/b",
	} {
		t.Setenv("KUBECONFIG", list)
		if got := DefaultPath("/home/me"); got != want {
			t.Errorf("KUBECONFIG=%s: %s, want %s", list, got, want)
		}
	}
}

func FuzzMerge(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	access, err := prodAccess().toEntry()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseDocument(data)
		if err != nil {
			return
		}
		d.putEntry(access)
		text, err := d.encodeDocument()
		if err != nil {
			return
		}
		again, err := parseDocument(text)
		if err != nil {
			t.Fatalf("the written file cannot be read: %v\n%s", err, text)
		}
		if textOf(fieldOf(again.findItem(keyClusters, access.entryName), "cluster"), "server") == "" {
			t.Fatalf("the entry is missing:\n%s", text)
		}
	})
}
