package recordstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

// ErrFault is the error of a write that fails because of Faults.
var ErrFault = errors.New("injected fault")

// A Kind is how a write fails.
type Kind string

// The kinds of faults.
const (
	// Before the effect: nothing is saved.
	Before Kind = "before"
	// After the effect: the write is saved, but its answer is lost.
	After Kind = "after"
	// Since then, all writes fail before their effect, as without a connection.
	Since Kind = "since"
)

// Faults counts the writes of backends, and makes one of them fail. A write is a call that saves
// something. A call that only makes local files or directories is not a write.
type Faults struct {
	at   int
	kind Kind

	mu     sync.Mutex
	writes []string
}

// NewFaults returns faults that make the write with this number fail, from 1. With 0 no write
// fails.
func NewFaults(at int, kind Kind) *Faults { return &Faults{at: at, kind: kind} }

// Writes returns the names of the writes that were begun, such as Clusters.Save.
func (f *Faults) Writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.writes)
}

// Wrap returns a backend whose writes are counted and can fail. Its other methods are unchanged.
func (f *Faults) Wrap(b records.Backend) records.Backend { return faultyBackend{b, f} }

// begin counts a write. It returns how the write fails, "" if it does not.
func (f *Faults) begin(name string) Kind {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, name)
	n := len(f.writes)
	switch {
	case f.at > 0 && n > f.at && f.kind == Since:
		return Before
	case n != f.at:
		return ""
	case f.kind == Since:
		return Before
	}
	return f.kind
}

func faultOf(name string) error { return fmt.Errorf("%s: %w", name, ErrFault) }

// write carries out a write, unless it fails before its effect.
func (f *Faults) write(name string, do func() error) error {
	_, err := writeValue(f, name, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// writeValue is write for a method with a result.
func writeValue[T any](f *Faults, name string, do func() (T, error)) (v T, err error) {
	kind := f.begin(name)
	if kind == Before {
		return v, faultOf(name)
	}
	got, err := do()
	if err == nil && kind == After {
		return v, faultOf(name)
	}
	return got, err
}

type faultyBackend struct {
	records.Backend
	f *Faults
}

func (b faultyBackend) Clusters() records.Clusters { return faultyClusters{b.Backend.Clusters(), b.f} }

func (b faultyBackend) ClusterFiles() records.ClusterFiles {
	return faultyClusterFiles{b.Backend.ClusterFiles(), b.f}
}

func (b faultyBackend) Kubeconfigs() records.Kubeconfigs {
	return faultyKubeconfigs{b.Backend.Kubeconfigs(), b.f}
}
func (b faultyBackend) Locks() records.Locks { return faultyLocks{b.Backend.Locks(), b.f} }
func (b faultyBackend) Operations() records.Operations {
	return faultyOperations{b.Backend.Operations(), b.f}
}

func (b faultyBackend) Journals() records.Journals { return faultyJournals{b.Backend.Journals(), b.f} }

func (b faultyBackend) Backups() records.Backups { return faultyBackups{b.Backend.Backups(), b.f} }

type faultyClusters struct {
	records.Clusters
	f *Faults
}

func (c faultyClusters) Save(ctx context.Context, cluster *v1alpha1.Cluster, source *records.Source) error {
	return c.f.write("Clusters.Save", func() error { return c.Clusters.Save(ctx, cluster, source) })
}

func (c faultyClusters) KeepSource(ctx context.Context, name string) error {
	return c.f.write("Clusters.KeepSource", func() error { return c.Clusters.KeepSource(ctx, name) })
}

func (c faultyClusters) SaveStatus(ctx context.Context, name string, status v1alpha1.ClusterStatus) error {
	return c.f.write("Clusters.SaveStatus", func() error { return c.Clusters.SaveStatus(ctx, name, status) })
}

func (c faultyClusters) SaveNodes(ctx context.Context, name string, nodes []v1alpha1.NodeStatus) error {
	return c.f.write("Clusters.SaveNodes", func() error { return c.Clusters.SaveNodes(ctx, name, nodes) })
}

func (c faultyClusters) Remove(ctx context.Context, name string) error {
	return c.f.write("Clusters.Remove", func() error { return c.Clusters.Remove(ctx, name) })
}

type faultyClusterFiles struct {
	records.ClusterFiles
	f *Faults
}

// LoadOrCreate is a write only if the file does not exist.
func (c faultyClusterFiles) LoadOrCreate(ctx context.Context, name, file string, content func() ([]byte, error)) ([]byte, error) {
	const write = "ClusterFiles.LoadOrCreate"
	var kind Kind
	text, err := c.ClusterFiles.LoadOrCreate(ctx, name, file, func() ([]byte, error) {
		made, err := content()
		if err == nil {
			kind = c.f.begin(write)
		}
		if kind == Before {
			return nil, faultOf(write)
		}
		return made, err
	})
	if err == nil && kind == After {
		return nil, faultOf(write)
	}
	return text, err
}

func (c faultyClusterFiles) Save(ctx context.Context, name, file string, content []byte) error {
	return c.f.write("ClusterFiles.Save", func() error { return c.ClusterFiles.Save(ctx, name, file, content) })
}

type faultyKubeconfigs struct {
	records.Kubeconfigs
	f *Faults
}

func (k faultyKubeconfigs) Save(ctx context.Context, name string, content []byte) error {
	return k.f.write("Kubeconfigs.Save", func() error { return k.Kubeconfigs.Save(ctx, name, content) })
}

type faultyBackups struct {
	records.Backups
	f *Faults
}

func (b faultyBackups) AdoptKey(ctx context.Context, name string, key []byte, former string) error {
	return b.f.write("Backups.AdoptKey", func() error { return b.Backups.AdoptKey(ctx, name, key, former) })
}

type faultyOperations struct {
	records.Operations
	f *Faults
}

func (o faultyOperations) Create(
	ctx context.Context, now time.Time, spec v1alpha1.OperationSpec, p *plan.Plan,
) (*v1alpha1.Operation, error) {
	return writeValue(o.f, "Operations.Create", func() (*v1alpha1.Operation, error) { return o.Operations.Create(ctx, now, spec, p) })
}

func (o faultyOperations) SavePlan(ctx context.Context, op *v1alpha1.Operation, p *plan.Plan) error {
	return o.f.write("Operations.SavePlan", func() error { return o.Operations.SavePlan(ctx, op, p) })
}

func (o faultyOperations) Save(ctx context.Context, op *v1alpha1.Operation) error {
	return o.f.write("Operations.Save", func() error { return o.Operations.Save(ctx, op) })
}

func (o faultyOperations) Update(ctx context.Context, id string, change func(now *v1alpha1.Operation) error) error {
	return o.f.write("Operations.Update", func() error { return o.Operations.Update(ctx, id, change) })
}

func (o faultyOperations) RequestCancel(ctx context.Context, id string, r records.CancelRequest) error {
	return o.f.write("Operations.RequestCancel", func() error { return o.Operations.RequestCancel(ctx, id, r) })
}

type faultyLocks struct {
	records.Locks
	f *Faults
}

// Acquire can take a lock that its caller does not get: it is free when the process has ended.
func (l faultyLocks) Acquire(ctx context.Context, name string, who records.Holder) (records.Lock, error) {
	return writeValue(l.f, "Locks.Acquire", func() (records.Lock, error) {
		lock, err := l.Locks.Acquire(ctx, name, who)
		if err != nil {
			return nil, err
		}
		return faultyLock{lock, l.f}, nil
	})
}

func (l faultyLocks) BeginHold(ctx context.Context, name string) (string, error) {
	return writeValue(l.f, "Locks.BeginHold", func() (string, error) { return l.Locks.BeginHold(ctx, name) })
}

func (l faultyLocks) EndHold(ctx context.Context, name string, processes ...string) error {
	return l.f.write("Locks.EndHold", func() error { return l.Locks.EndHold(ctx, name, processes...) })
}

type faultyLock struct {
	records.Lock
	f *Faults
}

func (l faultyLock) SetHolder(ctx context.Context, who records.Holder) error {
	return l.f.write("Lock.SetHolder", func() error { return l.Lock.SetHolder(ctx, who) })
}

func (l faultyLock) Check(ctx context.Context) error {
	return l.f.write("Lock.Check", func() error { return l.Lock.Check(ctx) })
}

func (l faultyLock) Release() error {
	return l.f.write("Lock.Release", func() error { return l.Lock.Release() })
}

type faultyJournals struct {
	records.Journals
	f *Faults
}

func (j faultyJournals) Open(ctx context.Context, id string) (records.Journal, error) {
	return writeValue(j.f, "Journals.Open", func() (records.Journal, error) {
		open, err := j.Journals.Open(ctx, id)
		if err != nil {
			return nil, err
		}
		return &faultyJournal{Journal: open, f: j.f}, nil
	})
}

// A faultyJournal fails for good after a fault, as each Journal does.
type faultyJournal struct {
	records.Journal
	f *Faults

	mu   sync.Mutex
	fail error
}

func (j *faultyJournal) Append(e event.Event) error {
	return j.writeEvents("Journal.Append", func() error { return j.Journal.Append(e) })
}

func (j *faultyJournal) Sync() error { return j.writeEvents("Journal.Sync", j.Journal.Sync) }

func (j *faultyJournal) writeEvents(name string, do func() error) error {
	j.mu.Lock()
	fail := j.fail
	j.mu.Unlock()
	if fail != nil {
		return fail
	}
	err := j.f.write(name, do)
	if errors.Is(err, ErrFault) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.fail = err
	}
	return err
}

func (j *faultyJournal) Close() error { return j.f.write("Journal.Close", j.Journal.Close) }
