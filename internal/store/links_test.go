package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestRoot_DoesNotFollowLinks creates links in the state of a user and works on them as root, as
// under sudo: no file elsewhere is read or changed, removed, or given to the user.
func TestRoot_DoesNotFollowLinks(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	const uid, gid = 1000, 1001
	for _, tc := range []struct {
		name string
		link string // below the home; OP is the directory of an operation
		to   string // below the directory of others
		do   func(s *Store, op string) error
	}{
		{"lock", "clusters/prod/lock", "shadow", func(s *Store, _ string) error {
			return errorOf(s.Locks().Acquire(t.Context(), "prod", records.Holder{}))
		}},
		{"holder of the lock", "clusters/prod/lock", "shadow", func(s *Store, _ string) error {
			return errorOf(s.Locks().Holder(t.Context(), "prod"))
		}},
		{"journal", "operations/OP/journal.jsonl", "shadow", func(s *Store, op string) error {
			return errorOf(s.Journals().Open(t.Context(), op))
		}},
		{"journal that is read", "operations/OP/journal.jsonl", "shadow", func(s *Store, op string) error {
			return s.Journals().ReadEvents(t.Context(), op, func(event.Event) error { return nil })
		}},
		{"source", "clusters/prod/source.yaml", "shadow", func(s *Store, _ string) error {
			return errorOf(s.Clusters().LoadSource(t.Context(), "prod"))
		}},
		{"kubeconfig", "clusters/prod/kubeconfig", "shadow", func(s *Store, _ string) error {
			return errorOf(s.Kubeconfigs().Load(t.Context(), "prod"))
		}},
		{"cluster", "clusters/prod", "etc", func(s *Store, _ string) error {
			return s.Clusters().Save(t.Context(), clusterNamed("prod", ""), nil)
		}},
		{"status", "clusters/prod", "etc", func(s *Store, _ string) error {
			return s.Clusters().SaveStatus(t.Context(), "prod", v1alpha1.ClusterStatus{})
		}},
		{
			"kubeconfig that is saved", "clusters/prod", "etc",
			func(s *Store, _ string) error { return s.Kubeconfigs().Save(t.Context(), "prod", adminKubeconfig(t)) },
		},
		{"removal", "clusters/prod", "etc", func(s *Store, _ string) error { return s.Clusters().Remove(t.Context(), "prod") }},
		{"operations", "operations", "etc", func(s *Store, _ string) error {
			return errorOf(s.Operations().Create(t.Context(), time.Unix(0, 0), creation(), &plan.Plan{}))
		}},
		{"operations that are listed", "operations", "etc", func(s *Store, _ string) error {
			return errorOf(s.Operations().List(t.Context(), ""))
		}},
		{"clusters", "clusters", "etc", func(s *Store, _ string) error {
			return s.Clusters().Save(t.Context(), clusterNamed("lab", ""), nil)
		}},
		{"backups", "backups", "etc", func(s *Store, _ string) error { return errorOf(s.Backups().MakeDir("prod")) }},
		{"backups of a cluster", "backups/prod", "etc", func(s *Store, _ string) error { return errorOf(s.Backups().MakeDir("prod")) }},
		{"default", "default", "shadow", func(s *Store, _ string) error { return errorOf(s.Preferences().DefaultCluster()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			home, others := filepath.Join(top, "home"), filepath.Join(top, "others")
			s, err := Open(home, OwnedBy(uid, gid))
			requireNoError(t, err)
			fillStore(t, s)
			requireNoError(t, errorOf(s.Backups().MakeDir("lab")))
			ops, err := s.Operations().List(t.Context(), "")
			requireNoError(t, err)
			op := ops[0].Name
			requireNoError(t, os.MkdirAll(filepath.Join(others, "etc"), 0o755))
			requireNoError(t, os.WriteFile(filepath.Join(others, "shadow"), []byte("root:x\n"), 0o600))
			requireNoError(t, os.WriteFile(filepath.Join(others, "etc", "passwd"), []byte("root\n"), 0o644))
			link := filepath.Join(home, tc.link)
			if tc.link == "operations/OP/journal.jsonl" {
				link = filepath.Join(home, "operations", op, "journal.jsonl")
			}
			requireNoError(t, os.RemoveAll(link))
			requireNoError(t, os.Symlink(filepath.Join(others, tc.to), link))
			requireNoError(t, os.Lchown(link, uid, gid))
			before := listTree(t, others)
			s, err = Open(home, OwnedBy(uid, gid))
			requireNoError(t, err)
			var list diag.List
			if err := tc.do(s, op); !errors.As(err, &list) || list[0].ID != idForeign || list[0].Hint == "" {
				t.Errorf("error %v, want %s with a remedy", err, idForeign)
			}
			if d := cmp.Diff(before, listTree(t, others)); d != "" {
				t.Errorf("files of others (-before +after):\n%s", d)
			}
		})
	}
}

// TestLinks_ToOwnDirectoriesAreFollowed: links to directories of the user's are followed.
func TestLinks_ToOwnDirectoriesAreFollowed(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	top := t.TempDir()
	home, disk := filepath.Join(top, "home"), filepath.Join(top, "disk")
	for _, dir := range []string{home, disk, filepath.Join(disk, "clusters"), filepath.Join(disk, "backups")} {
		requireNoError(t, os.Mkdir(dir, 0o700))
		requireNoError(t, os.Chown(dir, 1000, 1001))
	}
	for _, name := range []string{"clusters", "backups"} {
		requireNoError(t, os.Symlink(filepath.Join(disk, name), filepath.Join(home, name)))
		requireNoError(t, os.Lchown(filepath.Join(home, name), 1000, 1001))
	}
	s, err := Open(home, OwnedBy(1000, 1001))
	requireNoError(t, err)
	fillStore(t, s)
	requireNoError(t, errorOf(s.Backups().MakeDir("prod")))
	for _, file := range []string{"clusters/prod/cluster.json", "backups/prod"} {
		requireNoError(t, errorOf(os.Stat(filepath.Join(disk, file))))
	}
}

// TestReads_CreateNoDirectory: commands that only read make no directory.
func TestReads_CreateNoDirectory(t *testing.T) {
	home := filepath.Join(t.TempDir(), "none")
	s, err := Open(home)
	requireNoError(t, err)
	names, err := s.Clusters().List(t.Context())
	requireNoError(t, err)
	ops, err := s.Operations().List(t.Context(), "")
	requireNoError(t, err)
	if len(names)+len(ops) > 0 {
		t.Errorf("clusters %v and operations %v of a home that is not there", names, ops)
	}
	if _, err := s.Clusters().Load(t.Context(), "prod"); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("cluster: error %v, want records.ErrNotFound", err)
	}
	requireNoError(t, errorOf(s.Locks().Holder(t.Context(), "prod")))
	requireNoError(t, errorOf(s.Preferences().DefaultCluster()))
	requireNoError(t, errorOf(s.Backups().ListClusters(t.Context())))
	if _, err := os.Stat(home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading has made %s: %v", home, err)
	}
}

// listTree returns the files below a directory: modes, owners and content.
func listTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	requireNoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		requireNoError(t, err)
		info, err := d.Info()
		requireNoError(t, err)
		content := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			requireNoError(t, err)
			content = string(b)
		}
		st := info.Sys().(*syscall.Stat_t)
		all[path] = info.Mode().String() + " " + cmp.Diff(uint32(0), st.Uid) + content
		return nil
	}))
	return all
}
