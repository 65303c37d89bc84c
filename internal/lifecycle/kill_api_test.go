//go:build apiserver

package lifecycle

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube"
)

// A killTest kills managers that create a cluster, each at another point. The next manager finishes the
// create.
type killTest struct {
	faultTest
	undisturbed *world
	slots       chan struct{} // one for each manager that runs
	killed      atomic.Int32
	cpu         atomic.Int64 // of the processes that were killed
}

// startWorld returns a world whose records are in a new namespace of the API server.
func startWorld(t *testing.T) (w *world, namespace string) {
	w = newWorld(t, "cp1", "w1")
	namespace = apiServer.NewNamespace(t)
	dir := t.TempDir()
	w.open = func() records.Backend {
		return openInAPI(t, kube.Config{
			Client: apiServer.Admin, Namespace: namespace, BackupDir: filepath.Join(dir, "backups"), TempDir: dir, LeaseTime: killLeaseTime,
		})
	}
	return w, namespace
}

// createUndisturbed creates a cluster in a process that is not killed, and returns the points that it has
// reached.
func (kt *killTest) createUndisturbed(t *testing.T) (points []string) {
	w, namespace := startWorld(t)
	k := newKillPoints("")
	startManager(t, w, namespace, k).wait(t, w, k)
	kt.undisturbed = w
	return k.seen
}

// killAt kills a manager at a point, and finishes the create in this process.
func (kt *killTest) killAt(t *testing.T, point string) {
	kt.slots <- struct{}{}
	free := sync.OnceFunc(func() { <-kt.slots })
	defer free()
	w, namespace := startWorld(t)
	k := newKillPoints(point)
	m := startManager(t, w, namespace, k)
	if m.wait(t, w, k) {
		kt.killed.Add(1)
	} else {
		t.Logf("this run has not reached the point")
	}
	kt.cpu.Add(int64(m.cpu))
	free()
	w.wantDurableSteps(k.applied)
	<-time.After(killLeaseTime) // until the lock of the process has ended
	kt.slots <- struct{}{}
	defer func() { <-kt.slots }()
	finished := w.hasFinished()
	if !finished {
		kt.finish(w)
	}
	w.wantNoRepeatedSteps()
	w.afterCreate(kt.undisturbed)
	if finished { // only the lock on hosts can remain: the next operation takes it at once
		w.do(ApplyRequest{Subject: fromFile(w.changed(), "# second")}, event.Succeeded)
	}
	w.wantNoLocks()
}

// hasFinished reports whether a killed process has saved the success of its create.
func (w *world) hasFinished() bool {
	w.t.Helper()
	_, ops := w.status()
	return slices.Equal(ops, []string{"create Succeeded"})
}

// afterCreate checks a world whose create has finished. A killed process can hold the lock on hosts.
func (w *world) afterCreate(undisturbed *world) {
	w.t.Helper()
	w.same(undisturbed)
	w.sameRecords(undisturbed)
	if tokens := w.API.JoinTokens(); len(tokens) > 0 {
		w.t.Errorf("%d join tokens are left", len(tokens))
	}
}

// wantDurableSteps checks the journal that a killed process has left: the start of each step that has
// changed a host, and the end of each one but the last on the host.
func (w *world) wantDurableSteps(applied map[string][]string) {
	w.t.Helper()
	ops, err := w.records().Operations().List(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	started, finished := map[string]bool{}, map[string]bool{}
	if len(ops) > 0 {
		err = w.records().Journals().ReadEvents(w.t.Context(), ops[0].Name, func(e event.Event) error {
			switch e.Type {
			case event.StepStarted:
				started[e.Task+"@"+e.Host] = true
			case event.StepFinished:
				finished[e.Task+"@"+e.Host] = true
			}
			return nil
		})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for host, steps := range applied {
		for i, step := range steps {
			if on := step + "@" + host; !started[on] || i < len(steps)-1 && !finished[on] {
				w.t.Errorf("the journal has the start of %s: %t, its end: %t; %d steps followed", on, started[on], finished[on], len(steps)-1-i)
			}
		}
	}
}

// TestCreate_ResumesAfterKilledProcessAPI kills processes that create a cluster, and finishes the create. It
// kills at a part of the points that a create has; with the tag long, at all of them.
func TestCreate_ResumesAfterKilledProcessAPI(t *testing.T) {
	kt := &killTest{faultTest: faultsOfCreate(), slots: make(chan struct{}, managers)}
	all := kt.createUndisturbed(t)
	began := time.Now()
	points := selectPoints(all)
	t.Run("at", func(t *testing.T) {
		for _, point := range points {
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				kt.killAt(t, point)
			})
		}
	})
	writes := len(slices.DeleteFunc(slices.Clone(all), func(p string) bool { return !strings.Contains(p, " sent ") }))
	t.Logf("killed at %d points of %d, which has %d writes to the API; %s; %s of CPU in killed processes", kt.killed.Load(), len(all), writes,
		time.Since(began).Round(time.Second), time.Duration(kt.cpu.Load()).Round(time.Second))
	if n := int(kt.killed.Load()); n < minKilled {
		t.Errorf("only %d processes were killed, want %d", n, minKilled)
	}
}

// spreadPoints returns n of all points, at the same distance from each other. Some runs do not reach a
// point, because their writes have other numbers.
func spreadPoints[T any](all []T, n int) (out []T) {
	for i := range min(n, len(all)) {
		out = append(out, all[i*len(all)/min(n, len(all))])
	}
	return out
}
