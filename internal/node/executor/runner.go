//go:build linux

package executor

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/autobackup"
	"slipway.dev/slipway/internal/node/executor/certs"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemd"
	"slipway.dev/slipway/internal/node/op"
)

// A Runner executes operations on this host. One batch runs at a time; the lock's methods
// can be called concurrently.
type Runner struct {
	// Root is "/"; tests use another directory for files.
	Root string
	// State is the path of the state directory on disk; "" means DefaultState.
	State string
	// Path is the search path for programs; "" means DefaultPath.
	Path string
	// Blobs fetches content.
	Blobs host.BlobFetcher

	// disk is the zero value, except in tests of crashes.
	disk atomicfile.Disk
	// patience is displaceAfter, except in tests.
	patience time.Duration
	// etcdTime and kubeletTime replace the times of package health in tests.
	etcdTime, kubeletTime time.Duration
}

// Check reports what an apply would change, with one result for each operation in order.
// It only reads. Later operations see the future results of earlier ones in the list: a
// unit needs a restart if its file would change.
func (r *Runner) Check(ctx context.Context, ops op.List) []op.Result {
	results := make([]op.Result, len(ops))
	s, err := r.session(host.Batch{Ops: ops}, nil)
	s.Planning = true
	for i, o := range ops {
		results[i] = op.Result{Kind: o.Kind(), Target: o.Target()}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			results[i].Status, results[i].Error = op.Failed, host.FailureOf(err)
			continue
		}
		s.check(ctx, o, &results[i])
	}
	return results
}

// Apply applies operations in order, each checked again immediately before, and stops at
// the first failure. emit, if not nil, is called with output and transfers, but not
// concurrently. A batch with a fencing number below the highest seen is rejected, also
// between operations.
func (r *Runner) Apply(ctx context.Context, b host.Batch, emit func(opIndex int, p host.Progress)) []op.Result {
	var results []op.Result
	s, err := r.session(b, emit)
	for i, o := range b.Ops {
		res := op.Result{Kind: o.Kind(), Target: o.Target()}
		if err == nil {
			s.Index = i
			err = s.applyOne(ctx, o, &res)
		}
		if err != nil {
			res.Status, res.Error = op.Failed, host.FailureOf(err)
		}
		results = append(results, res)
		if res.Status == op.Failed {
			break
		}
	}
	return results
}

// session is one call of Check or Apply.
type session struct {
	*host.Host
	// patience is the time to wait for another helper of the same manager.
	patience time.Duration
}

func (r *Runner) session(b host.Batch, emit func(int, host.Progress)) (*session, error) {
	h := &host.Host{
		Root: r.Root, State: r.State, SearchPath: r.Path, Blobs: r.Blobs, Disk: r.disk, Lock: r.lockStore(),
		EtcdTime: r.etcdTime, KubeletTime: r.kubeletTime, Batch: b, Emit: emit, OperationOf: operationOf, Predicted: map[string]string{},
	}
	if h.Root == "" {
		h.Root = "/"
	}
	if h.State == "" {
		h.State = host.DefaultState
	}
	if h.SearchPath == "" {
		h.SearchPath = host.DefaultPath
	}
	if h.EtcdTime == 0 {
		h.EtcdTime = health.ElectionTime
	}
	if h.KubeletTime == 0 {
		h.KubeletTime = health.StartTime
	}
	s := &session{Host: h, patience: r.patience}
	if s.patience == 0 {
		s.patience = displaceAfter
	}
	return s, s.requireCurrentFence()
}

// requireCurrentFence rejects a batch of a displaced manager.
func (s *session) requireCurrentFence() error {
	if s.Batch.Fence == 0 {
		return nil
	}
	highest, err := s.Lock.HighestFence()
	if err != nil || s.Batch.Fence >= highest {
		return err
	}
	return &op.Error{
		Reason: "Fenced",
		Message: fmt.Sprintf("another manager has taken over this cluster (its fencing number is %d, this manager's is %d)",
			highest, s.Batch.Fence),
	}
}

func (s *session) applyOne(ctx context.Context, o op.Op, res *op.Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.requireCurrentFence(); err != nil {
		return err
	}
	if s.check(ctx, o, res); res.Status != op.Changed {
		return nil
	}
	if w, ok := o.(op.Wait); ok {
		return (&health.WaitOp{Op: w}).Apply(ctx, s.Host, res)
	}
	leave, waited, err := s.takeApplyLock(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if waited {
		// Another helper was working: the host may be in the wanted state now.
		if s.check(ctx, o, res); res.Status != op.Changed {
			return nil
		}
	}
	if err := systemd.NoteServing(ctx, s.Host); err != nil {
		return err
	}
	return s.apply(ctx, o, res)
}

// AutoSnapshot takes a snapshot of the host's own etcd member, verifies it, copies it, and
// tests it. The error is the reason why the result could not be written.
func (r *Runner) AutoSnapshot(ctx context.Context, job op.AutoSnapshot) (op.AutoSnapshotOutcome, error) {
	s, err := r.session(host.Batch{}, nil)
	if err != nil {
		return op.AutoSnapshotOutcome{}, err
	}
	return autobackup.TakeBackup(ctx, s.Host, job)
}

// AutoApprove approves requests for serving certificates that kubelets of the cluster are
// allowed to make, and returns the approved ones. The error has the reasons of others.
func (r *Runner) AutoApprove(ctx context.Context, job op.AutoApproval) (approved []string, err error) {
	s, err := r.session(host.Batch{}, nil)
	if err != nil {
		return nil, err
	}
	return certs.ApproveRequests(ctx, s.Host, job)
}
