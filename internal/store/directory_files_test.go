package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

func clusterNamed(name, bundle string) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ClusterSpec{Bundle: bundle, Hosts: []v1alpha1.Host{{Name: "a", Address: "10.0.0.11"}}},
	}
}

func adminKubeconfig(t *testing.T) []byte {
	t.Helper()
	text, err := kubeconfig.Admin{
		Cluster: "prod", Server: "https://10.0.0.11:6443", CA: []byte("a"),
		Certificate: []byte("b"), Key: []byte("c"),
	}.Bytes()
	requireNoError(t, err)
	return text
}

// fillStore makes one of everything.
func fillStore(t *testing.T, s *Store) {
	t.Helper()
	id, err := s.ManagerID(t.Context())
	requireNoError(t, err)
	requireNoError(t, s.Clusters().Save(t.Context(), clusterNamed("prod", ""), &records.Source{Text: []byte(id)}))
	requireNoError(t, s.Clusters().SaveStatus(t.Context(), "prod", v1alpha1.ClusterStatus{}))
	requireNoError(t, s.Clusters().SaveNodes(t.Context(), "prod", []v1alpha1.NodeStatus{{Name: "a"}}))
	requireNoError(t, s.Kubeconfigs().Save(t.Context(), "prod", adminKubeconfig(t)))
	requireNoError(t, s.Preferences().SetDefaultCluster("prod"))
	_, err = s.Files(t.Context())
	requireNoError(t, err)
	l, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{})
	requireNoError(t, err)
	o, err := s.Operations().Create(t.Context(), time.Unix(0, 0), creation(), &plan.Plan{})
	requireNoError(t, err)
	j, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	requireNoError(t, j.Append(event.Event{Type: event.Note}))
	requireNoError(t, j.Close())
	requireNoError(t, l.Release())
}

func TestFiles_HaveModesAndOwner(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	top := t.TempDir()
	home := filepath.Join(top, "made", "on", "the", "way")
	const uid, gid = 1000, 1001
	s, err := Open(home, OwnedBy(uid, gid))
	requireNoError(t, err)
	fillStore(t, s)
	n := 0
	requireNoError(t, filepath.WalkDir(filepath.Join(top, "made"), func(path string, d fs.DirEntry, err error) error {
		requireNoError(t, err)
		info, err := d.Info()
		requireNoError(t, err)
		n++
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = fs.ModeDir | 0o700
		}
		if info.Mode() != want {
			t.Errorf("%s: mode %s, want %s", path, info.Mode(), want)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != gid {
			t.Errorf("%s: owner %d:%d, want %d:%d", path, st.Uid, st.Gid, uid, gid)
		}
		return nil
	}))
	if n < 18 {
		t.Errorf("%d files and directories seen: the walk missed some", n)
	}
}

func TestRoot_KeepsTheHomesOwner(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	home := t.TempDir()
	requireNoError(t, os.Chown(home, 1000, 1001))
	s, err := Open(home)
	requireNoError(t, err)
	requireNoError(t, s.Clusters().Save(t.Context(), clusterNamed("prod", ""), nil))
	info, err := os.Stat(filepath.Join(home, "clusters", "prod", "cluster.json"))
	requireNoError(t, err)
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 1000 || st.Gid != 1001 {
		t.Errorf("owner %d:%d: a root shell has taken a user's records", st.Uid, st.Gid)
	}
}

// TestCluster_ReadsOldSpellings reads one of a time when records kept addresses
// as the file spelt them.
func TestCluster_ReadsOldSpellings(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	requireNoError(t, err)
	requireNoError(t, s.Clusters().Save(t.Context(), clusterNamed("prod", ""), nil))
	record := `{"metadata": {"name": "prod"}, "spec": {"hosts": [{"name": "cp1", "address": "FD00:0::11", "roles": ["control-plane"]}]}}`
	requireNoError(t, os.WriteFile(filepath.Join(home, "clusters", "prod", "cluster.json"), []byte(record), 0o600))
	c, err := s.Clusters().Load(t.Context(), "prod")
	requireNoError(t, err)
	if got := c.Spec.Hosts[0].Address; got != "fd00::11" {
		t.Errorf("the host is at %q: it would be another than that of its file", got)
	}
}

func TestWrite_SurvivesACrash(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	requireNoError(t, err)
	requireNoError(t, s.Clusters().Save(t.Context(), clusterNamed("prod", "old"), nil))
	crash := errors.New("crash")
	s.rename = func(string, string) error { return crash }
	if err := s.Clusters().Save(t.Context(), clusterNamed("prod", "new"), nil); !errors.Is(err, crash) {
		t.Fatalf("error %v, want the crash", err)
	}

	s, err = Open(home)
	requireNoError(t, err)
	c, err := s.Clusters().Load(t.Context(), "prod")
	requireNoError(t, err)
	if c.Spec.Bundle != "old" {
		t.Errorf("bundle %q after the crash, want the old record whole", c.Spec.Bundle)
	}
	names, err := s.Clusters().List(t.Context())
	requireNoError(t, err)
	if len(names) != 1 {
		t.Errorf("clusters %v", names)
	}
	l, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{})
	requireNoError(t, err)
	entries, err := os.ReadDir(filepath.Join(home, "clusters", "prod"))
	requireNoError(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tmpPrefix) {
			t.Errorf("%s is left after the next lock", e.Name())
		}
	}
	requireNoError(t, l.Release())
}

func TestNewOperation_SurvivesACrash(t *testing.T) {
	s, err := Open(t.TempDir())
	requireNoError(t, err)
	crash := errors.New("crash")
	n := 0
	s.rename = func(from, to string) error {
		if n++; n == 2 {
			return crash // the plan is there, the operation not
		}
		return os.Rename(from, to)
	}
	_, err = s.Operations().Create(t.Context(), time.Unix(0, 0), creation(), &plan.Plan{})
	if !errors.Is(err, crash) {
		t.Fatalf("error %v, want the crash", err)
	}
	ops, err := s.Operations().List(t.Context(), "")
	requireNoError(t, err)
	if len(ops) != 0 {
		t.Errorf("%d operations, want none: it never began", len(ops))
	}
}

func TestJournal_FailureIsFinal(t *testing.T) {
	s, err := Open(t.TempDir())
	requireNoError(t, err)
	o, err := s.Operations().Create(t.Context(), time.Unix(0, 0), creation(), &plan.Plan{})
	requireNoError(t, err)
	opened, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	j := opened.(*journalFile)
	good := j.f
	broken, err := os.Open(good.Name())
	requireNoError(t, err)
	j.f = broken // opened for reading: every write fails
	first := j.Append(event.Event{Type: event.Note})
	j.f = good
	if second := j.Append(event.Event{Type: event.Note}); first == nil || !errors.Is(second, first) {
		t.Errorf("errors %v and then %v: want no event after a hole", first, second)
	}
	requireNoError(t, errors.Join(j.Close(), broken.Close()))
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Hosts allow a manager to take over from itself. A manager with a copy of the state is
// another manager.
func TestManagerID_ChangesInACopy(t *testing.T) {
	s, err := Open(t.TempDir())
	requireNoError(t, err)
	id, err := s.ManagerID(t.Context())
	requireNoError(t, err)
	raw, err := os.ReadFile(s.joinHome("manager-id"))
	requireNoError(t, err)
	other, err := Open(t.TempDir())
	requireNoError(t, err)
	requireNoError(t, os.WriteFile(other.joinHome("manager-id"), raw, 0o600))
	if of, err := other.ManagerID(t.Context()); err != nil || of == id {
		t.Errorf("the copy is manager %s, as the original (%v)", of, err)
	}
}

// creation returns the request to create cluster prod.
func creation() v1alpha1.OperationSpec {
	return v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "create"}
}
