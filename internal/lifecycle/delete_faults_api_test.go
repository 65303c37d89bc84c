//go:build apiserver

package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
	"slipway.dev/slipway/internal/store/kube"
)

// An apiFault makes one write to the API fail, as a server without room does: such a write is not repeated. A
// call of the records can have several writes.
type apiFault struct {
	at   string // the write, "" for none
	kind recordstest.Kind

	mu     sync.Mutex
	seen   []string
	count  map[string]int
	isOver bool // the write has failed
}

// begin counts a write. It returns how the write fails, "" if it does not.
func (f *apiFault) begin(name string) recordstest.Kind {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isOver && f.kind == recordstest.Since {
		return recordstest.Before
	}
	if f.count == nil {
		f.count = map[string]int{}
	}
	f.count[name]++
	name = fmt.Sprintf("%s %d", name, f.count[name])
	f.seen = append(f.seen, name)
	if name != f.at {
		return ""
	}
	f.isOver = true
	if f.kind == recordstest.Since {
		return recordstest.Before
	}
	return f.kind
}

// hasHappened reports whether the write has failed.
func (f *apiFault) hasHappened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isOver
}

// A faultyTransport sends requests, of which one write fails.
type faultyTransport struct {
	http.RoundTripper
	fault *apiFault
}

func (t *faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return t.RoundTripper.RoundTrip(r)
	}
	kind := t.fault.begin(nameWrite(r))
	if kind == recordstest.Before {
		if r.Body != nil {
			_ = r.Body.Close() // as each transport does
		}
		return refuseWrite(r)
	}
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && kind == recordstest.After {
		_ = answer.Body.Close() // the answer is lost
		return refuseWrite(r)
	}
	return answer, err
}

// nameWrite returns the name of a write, which is the same in each run.
func nameWrite(r *http.Request) string {
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/")
	_, path, _ = strings.Cut(path, "/") // without the namespace of the test
	resource, name, _ := strings.Cut(path, "/")
	if strings.HasPrefix(resource, "operation") || strings.HasPrefix(name, "slipway-plan.") {
		return r.Method + " " + resource // names of operations have a time
	}
	return strings.TrimSpace(r.Method + " " + resource + " " + name)
}

// refuseWrite returns the answer of a server that has no room for a write.
func refuseWrite(r *http.Request) (*http.Response, error) {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusInsufficientStorage, Message: "etcdserver: mvcc: database space exceeded",
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusInsufficientStorage, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}

// A deletedWorld is a world with a created cluster, which is deleted with a fault.
type deletedWorld struct {
	*world
	namespace string
	// open opens the records of a process, of which a write fails.
	open func(*apiFault) records.Backend
}

func newDeletedWorld(t *testing.T) *deletedWorld {
	w := &deletedWorld{world: newWorld(t, "cp1", "w1"), namespace: apiServer.NewNamespace(t)}
	dir := t.TempDir()
	w.open = func(f *apiFault) records.Backend {
		client := rest.CopyConfig(apiServer.Admin)
		client.Wrap(func(next http.RoundTripper) http.RoundTripper { return &faultyTransport{next, f} })
		return openInAPI(t, kube.Config{
			Client: client, Namespace: w.namespace, BackupDir: filepath.Join(dir, "backups"), TempDir: dir, LeaseTime: killLeaseTime,
		})
	}
	w.heal()
	w.createFromFile()
	return w
}

// heal ends all faults: the next calls are from other processes.
func (w *deletedWorld) heal() {
	w.world.open = func() records.Backend { return w.open(new(apiFault)) }
}

// deleteWithFault deletes the cluster. A write that only ends a lock or merges segments can fail without an
// error of the delete.
func (w *deletedWorld) deleteWithFault(f *apiFault) {
	backend := w.open(f)
	w.world.open = func() records.Backend { return backend }
	if p, err := w.service().Prepare(w.t.Context(), deleting(), nil); err == nil {
		_, err = p.Apply(w.t.Context())
		if err = errors.Join(err, p.Close()); err != nil {
			w.t.Logf("the delete has failed: %v", err)
		}
	}
	w.heal()
}

func deleting() Request { return DeleteRequest{Subject: Subject{Name: "prod"}} }

// deleteAgain deletes the cluster again, as a user does after an error. A cluster that is no longer saved has no
// hosts that could be changed: only the end of the first delete can be missing, which a resume saves.
func (w *deletedWorld) deleteAgain() {
	w.t.Helper()
	p, err := w.service().Prepare(w.t.Context(), deleting(), nil)
	if errors.Is(err, savedstate.ErrNotFound) {
		if _, ops := w.status(); ops[0] != "delete Succeeded" {
			w.resume(event.Succeeded)
		} else {
			w.waitForEndOfLock()
		}
		return
	}
	w.apply(w.prepared(p, err), event.Succeeded)
}

// waitForEndOfLock waits until the lock of an ended process counts as free without another process that takes it.
func (w *deletedWorld) waitForEndOfLock() {
	w.t.Helper()
	holder, err := w.records().Locks().Holder(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	if holder != nil {
		<-time.After(time.Until(holder.Expires) + killLeaseTime)
	}
}

// waitForLock waits until another process can take the lock of an ended process.
func (w *deletedWorld) waitForLock() {
	w.t.Helper()
	holder, err := w.records().Locks().Holder(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	if holder != nil {
		<-time.After(killLeaseTime)
	}
}

// wantNothingLeft checks that no host and no object has anything of the cluster. Its operations remain.
func (w *deletedWorld) wantNothingLeft() {
	w.t.Helper()
	w.bare()
	w.wantPhase("")
	w.wantNoLocks()
	client, err := kubernetes.NewForConfig(apiServer.Admin)
	if err != nil {
		w.t.Fatal(err)
	}
	secrets, err := client.CoreV1().Secrets(w.namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range secrets.Items {
		if s.Labels[v1alpha1.LabelCluster] == "prod" && !strings.HasPrefix(s.Name, "slipway-plan.") {
			w.t.Errorf("Secret %s is left", s.Name)
		}
	}
	if _, ops := w.status(); len(ops) == 0 || ops[0] != "delete Succeeded" {
		w.t.Errorf("operations %v", ops)
	}
}

// A deleteFault is a write of a delete, and how it fails.
type deleteFault struct {
	write string
	kind  recordstest.Kind
}

// TestDelete_EndsAfterRefusedWriteAPI refuses a write of a delete. A second delete then finishes. It refuses a part
// of the writes; with the tag long, each of them in three ways.
func TestDelete_EndsAfterRefusedWriteAPI(t *testing.T) {
	undisturbed, counted := newDeletedWorld(t), new(apiFault)
	undisturbed.deleteWithFault(counted)
	undisturbed.wantNothingLeft()
	var all []deleteFault
	for _, write := range counted.seen {
		for _, kind := range []recordstest.Kind{recordstest.Before, recordstest.After, recordstest.Since} {
			all = append(all, deleteFault{write, kind})
		}
	}
	faults := selectFaults(all)
	began := time.Now()
	slots := make(chan struct{}, managers)
	var happened atomic.Int32
	t.Run("at", func(t *testing.T) {
		for _, fault := range faults {
			t.Run(fmt.Sprintf("%s %s", fault.kind, fault.write), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				free := sync.OnceFunc(func() { <-slots })
				defer free()
				w, f := newDeletedWorld(t), &apiFault{at: fault.write, kind: fault.kind}
				w.deleteWithFault(f)
				free()
				if f.hasHappened() {
					happened.Add(1)
				}
				w.waitForLock()
				slots <- struct{}{}
				defer func() { <-slots }()
				w.wantNoEarlySuccess()
				w.deleteAgain()
				w.wantNothingLeft()
			})
		}
	})
	t.Logf("%d of %d faults happened, at %d writes; %s", happened.Load(), len(faults), len(counted.seen), time.Since(began).Round(time.Second))
	if n, least := int(happened.Load()), len(faults)*9/10; n < least { // some runs have fewer segments or renewals
		t.Errorf("only %d faults happened, want %d", n, least)
	}
	if !slices.ContainsFunc(counted.seen, func(w string) bool { return strings.HasPrefix(w, "DELETE secrets slipway.prod.spec") }) {
		t.Errorf("the writes %q have no removal of the cluster", counted.seen)
	}
}
