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

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

// checkExplained wants an error that people can do something about, and that names a
// file.
func checkExplained(t *testing.T, what string, err error, id, file string) {
	t.Helper()
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != id || list[0].Hint == "" || !strings.Contains(list[0].Message, file) {
		t.Errorf("%s: %v, want %s with a remedy, about %s", what, err, id, file)
	}
}

// TestDamagedFiles_AreNamed damages every kind of file in turn. The error names the file;
// after it is moved away, all other files can be used.
func TestDamagedFiles_AreNamed(t *testing.T) {
	const (
		garbage    = "\x00\x00{\"seq\":\n"
		unreadable = "as a bad disk has it" // also for root: it is a directory
	)
	for _, tc := range []struct {
		name, file, content string // file: OP is the operation's directory
		read                func(*Store, string) error
		lost                error // once the file is moved away
	}{
		{
			"cluster", "clusters/prod/cluster.json", garbage,
			func(s *Store, _ string) error { return errorOf(s.Clusters().Load(t.Context(), "prod")) }, records.ErrNotFound,
		},
		{
			"cluster that is no file", "clusters/prod/cluster.json", unreadable,
			func(s *Store, _ string) error { return errorOf(s.Clusters().Load(t.Context(), "prod")) }, records.ErrNotFound,
		},
		{
			"cluster with copies nowhere", "clusters/prod/cluster.json",
			`{"metadata":{"name":"prod"},"spec":{"hosts":[{"name":"a"}],"etcd":{"backup":{"copies":[{"name":"vault"}]}}}}`,
			func(s *Store, _ string) error { return errorOf(s.Clusters().Load(t.Context(), "prod")) }, records.ErrNotFound,
		},
		{
			"cluster with copies by no key", "clusters/prod/cluster.json",
			`{"metadata":{"name":"prod"},"spec":{"hosts":[{"name":"a"}],"etcd":{"backup":{"copies":[{"name":"vault","ssh":{}}]}}}}`,
			func(s *Store, _ string) error { return errorOf(s.Clusters().Load(t.Context(), "prod")) }, records.ErrNotFound,
		},
		{
			"cluster with copies by half a key", "clusters/prod/cluster.json",
			`{"metadata":{"name":"prod"},"spec":{"hosts":[{"name":"a"}],"etcd":` +
				`{"backup":{"copies":[{"name":"vault","s3":{"accessKeyFrom":{"env":"A"}}}]}}}}`,
			func(s *Store, _ string) error {
				return errorOf(s.Clusters().Load(t.Context(), "prod"))
			}, records.ErrNotFound,
		},
		{
			"cluster of another name", "clusters/prod/cluster.json", `{"metadata":{"name":"other"},"spec":{"hosts":[{"name":"a"}]}}`,
			func(s *Store, _ string) error { return errorOf(s.Clusters().Load(t.Context(), "prod")) }, records.ErrNotFound,
		},
		{
			"cluster without hosts", "clusters/prod/cluster.json", `{"metadata":{"name":"prod"}}`,
			func(s *Store, _ string) error { return errorOf(s.Clusters().Load(t.Context(), "prod")) }, records.ErrNotFound,
		},
		{
			"cluster that is null", "clusters/prod/cluster.json", "null",
			func(s *Store, _ string) error { return errorOf(s.Clusters().Load(t.Context(), "prod")) }, records.ErrNotFound,
		},
		{"nodes", "clusters/prod/nodes.json", `[{`, func(s *Store, _ string) error {
			c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
			c.Status.NodeCounts.Total = 1
			return errorOf(s.Clusters().LoadNodes(t.Context(), c))
		}, nil},
		{"status", "clusters/prod/status.json", `{"phase":`, func(s *Store, _ string) error {
			return errorOf(s.Clusters().Load(t.Context(), "prod"))
		}, nil},
		{"operation", "OP/operation.json", "", func(s *Store, _ string) error {
			return errorOf(s.Operations().List(t.Context(), ""))
		}, nil},
		{
			"operation of a format without its cluster", "OP/operation.json", `{"spec":{"cluster":"prod","type":"create"}}`,
			func(s *Store, _ string) error { return errorOf(s.Operations().List(t.Context(), "prod")) }, nil,
		},
		{
			"operation that may be the latest", "OP/operation.json", garbage,
			func(s *Store, _ string) error { return errorOf(s.Operations().List(t.Context(), "prod")) }, nil,
		},
		{"plan", "OP/plan.json", garbage, func(s *Store, id string) error {
			return errorOf(s.Operations().LoadPlan(t.Context(), id))
		}, records.ErrNotFound},
		{
			"journal, when it is read", "OP/journal.jsonl", `{"seq":1}` + "\n" + garbage + `{"seq":2}` + "\n",
			func(s *Store, id string) error {
				return s.Journals().ReadEvents(t.Context(), id, func(event.Event) error { return nil })
			}, nil,
		},
		{
			"journal, when it is followed", "OP/journal.jsonl", garbage + `{"seq":2}` + "\n",
			func(s *Store, id string) error {
				return s.Journals().FollowEvents(t.Context(), id, func(event.Event) error { return nil })
			}, records.ErrNoEnd,
		},
		{
			"journal, when it goes on", "OP/journal.jsonl", garbage + `{"seq":2}` + "\n",
			func(s *Store, id string) error {
				j, err := s.Journals().Open(t.Context(), id)
				if err == nil {
					err = j.Close()
				}
				return err
			}, nil,
		},
		{
			"plan without a cluster", "OP/plan.json", `{"cluster":"prod"}`,
			func(s *Store, id string) error { return errorOf(s.Operations().LoadPlannedCluster(t.Context(), id)) }, records.ErrNotFound,
		},
		{
			"plan for another cluster", "OP/plan.json", `{"cluster":"prod","spec":{"metadata":{"name":"other"}}}`,
			func(s *Store, id string) error { return errorOf(s.Operations().LoadPlannedCluster(t.Context(), id)) }, records.ErrNotFound,
		},
		{"default that is no name", "default", "../x\n", func(s *Store, _ string) error {
			return errorOf(s.Preferences().DefaultCluster())
		}, nil},
		{"default that is no file", "default", unreadable, func(s *Store, _ string) error {
			return errorOf(s.Preferences().DefaultCluster())
		}, nil},
		{"manager id, empty", "manager-id", "\n", func(s *Store, _ string) error { return errorOf(s.ManagerID(t.Context())) }, nil},
		{"manager id, cut short", "manager-id", "0a1b", func(s *Store, _ string) error {
			return errorOf(s.ManagerID(t.Context()))
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			home := t.TempDir()
			s, err := Open(home)
			requireNoError(t, err)
			fillStore(t, s)
			ops, err := s.Operations().List(t.Context(), "prod")
			requireNoError(t, err)
			id := ops[0].Name
			file := filepath.Join(home, strings.Replace(tc.file, "OP", "operations/"+id, 1))
			requireNoError(t, os.Remove(file))
			if tc.content == unreadable {
				requireNoError(t, os.Mkdir(file, 0o700))
			} else {
				requireNoError(t, os.WriteFile(file, []byte(tc.content), 0o600))
			}
			checkExplained(t, "damaged", tc.read(s, id), idDamaged, file)
			requireNoError(t, os.Rename(file, file+".away"))
			if err := tc.read(s, id); !errors.Is(err, tc.lost) {
				t.Errorf("moved away: %v, want %v", err, tc.lost)
			}
		})
	}
}

func errorOf[T any](_ T, err error) error { return err }

// Remains of a crash, and other files next to a record, are not records.
func TestRecords_IgnoreRemains(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	requireNoError(t, err)
	fillStore(t, s)
	before, err := s.Operations().List(t.Context(), "")
	requireNoError(t, err)
	for _, file := range []string{
		"clusters/half/source.yaml", "clusters/half/.tmp-cluster.json-0a1b2c", "clusters/prod.bak/cluster.json", "clusters/notes",
		"operations/20261120-181502-create-0000/plan.json", "operations/20261120-181502-create-0001/.tmp-operation.json-0a",
		"operations/x.bak/operation.json",
	} {
		requireNoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, file)), 0o700))
		requireNoError(t, os.WriteFile(filepath.Join(home, file), []byte("{"), 0o600))
	}
	names, err := s.Clusters().List(t.Context())
	requireNoError(t, err)
	if d := cmp.Diff([]string{"prod"}, names); d != "" {
		t.Errorf("clusters (-want +got):\n%s", d)
	}
	after, err := s.Operations().List(t.Context(), "")
	requireNoError(t, err)
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("operations (-before +after):\n%s", d)
	}
	if _, err := s.Clusters().Load(t.Context(), "half"); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("half a cluster: %v", err)
	}
	requireNoError(t, s.Clusters().Save(t.Context(), clusterNamed("half", ""), nil)) // and can become a whole one
	requireNoError(t, errorOf(s.Clusters().Load(t.Context(), "half")))
}

// TestUnwritable_ExplainsTheError uses the errors of system calls for full disks and for
// directories of other users.
func TestUnwritable_ExplainsTheError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return // not Linux
	}
	requireNoError(t, err)
	home := t.TempDir()
	s, err := Open(home)
	requireNoError(t, err)
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EACCES, syscall.EPERM} {
		s.rename = func(from, to string) error { return &os.LinkError{Op: "rename", Old: from, New: to, Err: errno} }
		err := s.Clusters().Save(t.Context(), clusterNamed("prod", ""), nil)
		checkExplained(t, errno.Error(), err, idUnwritable, filepath.Join(home, "clusters/prod/cluster.json"))
		if strings.Count(err.Error(), home) != 1 {
			t.Errorf("%v: names the file more than once", err)
		}
	}
	s.rename = func(from, to string) error { return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EIO} }
	var list diag.List
	if err := s.Clusters().Save(t.Context(), clusterNamed("prod", ""), nil); errors.As(err, &list) || !errors.Is(err, syscall.EIO) {
		t.Errorf("a disk that fails is no full one: %v", err)
	}
	s.rename = os.Rename

	o, err := s.Operations().Create(t.Context(), time.Unix(0, 0), creation(), &plan.Plan{})
	requireNoError(t, err)
	opened, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	j := opened.(*journalFile)
	requireNoError(t, j.Append(event.Event{Type: event.Note}))
	good := j.f
	j.f = full
	checkExplained(t, "the journal", j.Append(event.Event{Type: event.Note}), idUnwritable, "/dev/full")
	j.f = good
	checkExplained(t, "the journal, when there is room again", j.Append(event.Event{Type: event.Note}), idUnwritable, "/dev/full")
	requireNoError(t, j.Close())
	requireNoError(t, full.Close())
}

// TestReadable_SkipsDamagedOperations: one damaged operation does not hide the others, and has no effect
// on other clusters.
func TestReadable_SkipsDamagedOperations(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	requireNoError(t, err)
	fillStore(t, s)
	ops, err := s.Operations().List(t.Context(), "")
	requireNoError(t, err)
	file := filepath.Join(home, "operations", ops[0].Name, "operation.json")
	requireNoError(t, os.WriteFile(file, []byte("{"), 0o600))
	requireNoError(t, s.writeJSON(filepath.Join(filepath.Dir(file), "plan.json"), &plan.Plan{Cluster: "prod"}))
	got, bad, err := s.Operations().ListReadable(t.Context(), "")
	requireNoError(t, err)
	if d := cmp.Diff(append([]v1alpha1.Operation(nil), ops[1:]...), got); d != "" {
		t.Errorf("the others (-want +got):\n%s", d)
	}
	checkExplained(t, "the damaged one", bad, idDamaged, file)
	for cluster, want := range map[string]int{ops[0].Spec.ClusterRef.Name: 1, "other": 0} {
		_, bad, err := s.Operations().ListReadable(t.Context(), cluster)
		requireNoError(t, err)
		if len(bad) != want {
			t.Errorf("cluster %s: %d damaged operations, want %d: its plan says whose it is", cluster, len(bad), want)
		}
	}
	requireNoError(t, errorOf(s.Operations().List(t.Context(), "other")))
}

// TestOpen_RefusesAFileAsHome: a home that cannot be a directory is rejected with a remedy.
func TestOpen_RefusesAFileAsHome(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	requireNoError(t, os.WriteFile(file, nil, 0o600))
	requireNoError(t, os.Symlink(filepath.Join(dir, "gone", "away"), filepath.Join(dir, "dangling")))
	for name, home := range map[string]string{
		"a file": file, "below a file": filepath.Join(file, "home"), "a device": os.DevNull, "a link to nothing": filepath.Join(dir, "dangling"),
		"too long": filepath.Join(dir, strings.Repeat("x", 300)),
	} {
		checkExplained(t, name, errorOf(Open(home)), idUnwritable, "")
	}
}

// TestPipes_AreNotWaitedFor has pipes without a writer in place of records.
func TestPipes_AreNotWaitedFor(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	requireNoError(t, err)
	fillStore(t, s)
	ops, err := s.Operations().List(t.Context(), "")
	requireNoError(t, err)
	for name, c := range map[string]struct {
		file string
		read func() error
	}{
		"journal": {filepath.Join("operations", ops[0].Name, "journal.jsonl"), func() error {
			return s.Journals().ReadEvents(t.Context(), ops[0].Name, func(event.Event) error { return nil })
		}},
		"lock":    {"clusters/prod/lock", func() error { return errorOf(s.Locks().Holder(t.Context(), "prod")) }},
		"cluster": {"clusters/prod/cluster.json", func() error { return errorOf(s.Clusters().Load(t.Context(), "prod")) }},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(home, c.file)
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			requireNoError(t, syscall.Mkfifo(path, 0o600))
			if err := c.read(); err == nil || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestList_HasClustersThatCannotBeRead replaces the records of clusters by links. A cluster that is not in the list would
// seem to be deleted.
func TestList_HasClustersThatCannotBeRead(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	requireNoError(t, err)
	for _, name := range []string{"file", "directory", "good"} {
		requireNoError(t, s.Clusters().Save(t.Context(), clusterNamed(name, ""), nil))
	}
	file := filepath.Join(home, "clusters", "file", "cluster.json")
	requireNoError(t, errors.Join(os.Remove(file), os.Symlink("/etc/hosts", file)))
	directory := filepath.Join(home, "clusters", "directory")
	requireNoError(t, errors.Join(os.RemoveAll(directory), os.Symlink(t.TempDir(), directory)))
	names, err := s.Clusters().List(t.Context())
	requireNoError(t, err)
	if d := cmp.Diff([]string{"directory", "file", "good"}, names); d != "" {
		t.Errorf("clusters (-want +got):\n%s", d)
	}
	for _, name := range names[:2] {
		if _, err := s.Clusters().Load(t.Context(), name); err == nil {
			t.Errorf("cluster %s was read", name)
		}
	}
}
