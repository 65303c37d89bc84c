//go:build long

package kube_test

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/store/kube"
)

// TestLoad_EightOperations appends to eight journals for a minute, with five forced writes a second
// each. As many segments are deleted again after a merge: these are ten writes of etcd a second for
// each operation. It prints the times of the writes, and limits what the server keeps. Most of the
// memory is the history of the watch cache, which has the writes of the last 75 seconds.
func TestLoad_EightOperations(t *testing.T) {
	const (
		operations = 8
		rate       = 5
		duration   = time.Minute
		events     = 5 // of each write
		maxFile    = 32 << 20
		maxMemory  = 64 << 20
	)
	dir := t.TempDir()
	s := openStore(t, kube.Config{
		Client: server.Admin, Namespace: server.NewNamespace(t), BackupDir: filepath.Join(dir, "backups"), TempDir: dir,
	})
	file, memory := databaseSize(t), heapSize()
	var (
		mu    sync.Mutex
		times []time.Duration
		g     sync.WaitGroup
		errs  = make(chan error, operations)
	)
	for range operations {
		o := beginOperation(t, s)
		g.Go(func() {
			j, err := s.Journals().Open(t.Context(), o.Name)
			if err != nil {
				errs <- err
				return
			}
			tick := time.NewTicker(time.Second / rate)
			defer tick.Stop()
			for n := 0; n < int(duration/time.Second)*rate && err == nil; n++ {
				<-tick.C
				for range events {
					err = errors.Join(err, j.Append(event.Event{
						Type: event.StepFinished, Time: time.Now(), Module: "kubeadm", Task: "kubeadm.join", Title: "Join the node",
						Host: "worker-17", Outcome: event.Changed, Operation: o.Name, Cluster: "prod",
					}))
				}
				began := time.Now()
				err = errors.Join(err, j.Sync())
				mu.Lock()
				times = append(times, time.Since(began))
				mu.Unlock()
			}
			errs <- errors.Join(err, j.Close())
		})
	}
	g.Wait()
	for range operations {
		requireNoError(t, <-errs)
	}
	slices.SortFunc(times, cmp.Compare[time.Duration])
	grownFile, grownMemory := databaseSize(t)-file, heapSize()-memory
	t.Logf("%d writes: median %s, p99 %s, longest %s; database %+d KiB, memory %+d KiB", len(times), times[len(times)/2],
		times[len(times)*99/100], times[len(times)-1], grownFile>>10, grownMemory>>10)
	if grownFile > maxFile || grownMemory > maxMemory {
		t.Errorf("the database has grown by %d bytes, memory by %d; the limits are %d and %d", grownFile, grownMemory, maxFile, maxMemory)
	}
}

// databaseSize returns the size of the files of etcd.
func databaseSize(t *testing.T) (size int64) {
	t.Helper()
	err := filepath.WalkDir(server.Dir.Path("etcd"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(e.Name()) != "" || e.Name() != "db" {
			return err
		}
		info, err := e.Info()
		size += info.Size()
		return err
	})
	requireNoError(t, err)
	if size == 0 {
		t.Fatal("there is no database of etcd")
	}
	return size
}

// heapSize returns the memory of this process, which runs the server, without garbage.
func heapSize() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
