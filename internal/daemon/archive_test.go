package daemon

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/server/adminclient"
	"slipway.dev/slipway/internal/server/datadir"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/store/kube/archive"
)

// openDataDir returns a new data directory without a server.
func openDataDir(t *testing.T) *datadir.Dir {
	t.Helper()
	d, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// openTestArchive opens an archive until the test ends, and returns the log of this.
func openTestArchive(t *testing.T, path string, d *datadir.Dir) (files serverArchive, log *lockedBuffer) {
	t.Helper()
	log = new(lockedBuffer)
	files = openArchive(t.Context(), path, d.Path(datadir.ArchiveDir), slog.New(slog.NewTextHandler(log, nil)))
	if files != nil {
		t.Cleanup(func() {
			if err := files.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return files, log
}

// saveFinished saves finished operations of a cluster, each with a journal.
func saveFinished(t *testing.T, b records.Backend, number int) {
	t.Helper()
	for range number {
		spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "apply"}
		o, err := b.Operations().Create(t.Context(), time.Now(), spec, &plan.Plan{Cluster: "prod"})
		if err != nil {
			t.Fatal(err)
		}
		j, err := b.Journals().Open(t.Context(), o.Name)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(j.Append(event.Event{Type: event.OperationFinished, Operation: o.Name, Outcome: event.Succeeded}), j.Close())
		now := metav1.Now()
		o.Status.State, o.Status.StartTime, o.Status.EndTime = v1alpha1.OperationSucceeded, &now, &now
		if err := errors.Join(err, b.Operations().Save(t.Context(), o)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestArchive_HasFinishedOperations limits the records of a cluster with an archive, with a directory that cannot be
// used, and without an archive.
func TestArchive_HasFinishedOperations(t *testing.T) {
	config, err := adminclient.Open(serverDir)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const number, objects = 8, 5 // Retain leaves five objects
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	unmounted := filepath.Join(t.TempDir(), "unmounted", "archive")
	for _, tc := range []struct {
		name, path  string
		left        int
		unavailable bool
	}{
		{"default", "", number, false},
		{"directory", elsewhere, number, false},
		{"unmounted", unmounted, number, true},
		{"none", withoutArchive, objects, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "archive-" + tc.name}}
			if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			d := openDataDir(t)
			files, log := openTestArchive(t, tc.path, d)
			if got := strings.Contains(log.String(), "cannot be used yet"); got != tc.unavailable {
				t.Errorf("the log has %q", log)
			}
			b, err := openRecords(kube.Config{
				Client: config, BackupDir: d.Path(datadir.SnapshotsDir), TempDir: d.Path("tmp"), Archive: files, WithoutArchive: files == nil,
			})(namespace.Name)
			if err != nil {
				t.Fatal(err)
			}
			saveFinished(t, b, number)
			err = b.(records.Retainer).Retain(t.Context(), "prod")
			if archive.IsUnavailable(err) != tc.unavailable || err != nil != tc.unavailable {
				t.Errorf("Retain: %v", err)
			}
			ops, damaged, err := b.Operations().ListReadable(t.Context(), "prod")
			if len(ops) != tc.left || err != nil || len(damaged) > 0 != tc.unavailable {
				t.Errorf("%d operations, %v, %v, want %d", len(ops), damaged, err, tc.left)
			}
			if tc.left < number || tc.unavailable {
				return
			}
			path := tc.path
			if path == "" {
				path = d.Path(datadir.ArchiveDir)
			}
			if names, err := filepath.Glob(filepath.Join(path, "archive-"+tc.name+"_prod_*.zst")); len(names) < number-objects || err != nil {
				t.Errorf("the archive has the files %q, %v", names, err)
			}
		})
	}
}

// TestServer_HasArchive checks the server that runs during the tests.
func TestServer_HasArchive(t *testing.T) {
	info, err := os.Stat(filepath.Join(serverDir, datadir.ArchiveDir))
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the archive in the data directory: %v, %v", info, err)
	}
}

// TestArchive_LeavesRoomForDatabase refuses files on a disk with little free space.
func TestArchive_LeavesRoomForDatabase(t *testing.T) {
	d := openDataDir(t)
	files, _ := openTestArchive(t, "", d)
	local, ok := files.(*localArchive)
	if !ok {
		t.Fatalf("the archive is a %T", files)
	}
	const disk = 10 << 30
	free := int64(disk / 2)
	local.freeBytes = func(string) (int64, int64, error) { return free, disk, nil }
	write := func(w io.Writer) error { _, err := w.Write([]byte("operation")); return err }
	if err := files.Put(t.Context(), "first", write); err != nil {
		t.Errorf("with room: %v", err)
	}
	free = 300 << 20 // the server still accepts writes
	if err := files.Put(t.Context(), "second", write); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("without room: %v", err)
	}
	if have, err := files.List(t.Context(), ""); len(have) != 1 || err != nil {
		t.Errorf("files %v, %v", have, err)
	}
}
