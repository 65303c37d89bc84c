package lifecycle

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/bundlesource"
	"slipway.dev/slipway/internal/lifecycle/clusterlock"
	"slipway.dev/slipway/internal/lifecycle/journal"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module/kubeadm"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/status"
)

// lateBlobs serves the blobs of a bundle that is opened after hosts are connected.
type lateBlobs struct {
	of     *bundlesource.Source
	backup *backups.OpenedSet // its snapshot is served too
}

func (l *lateBlobs) OpenBlob(digest string, offset int64) (io.ReadCloser, error) {
	if l.backup.HasBlob(digest) {
		return l.backup.OpenBlob(digest, offset)
	}
	if l.of == nil || l.of.OpenedBundle() == nil {
		return nil, errors.New("the bundle is not open yet")
	}
	return l.of.OpenedBundle().OpenBlob(digest, offset)
}

// run returns an engine run over the hosts.
func (p *prepared) run(operation string, fence uint64) *engine.Run {
	return &engine.Run{
		Hosts: p.hosts, Operation: operation, Cluster: p.env.Cluster.Name, Fence: fence,
		IgnoreErrors: p.continuesOnFailure(), Done: p.done,
	}
}

// isSettled reports whether there is nothing to do and nothing to finish.
func (p *prepared) isSettled() bool {
	return p.plan.IsEmpty() && p.continues == nil && len(p.Failures()) == 0 &&
		(!p.kind.SetsStatus() ||
			p.recorded != nil && p.recorded.Status.Phase == v1alpha1.PhaseRunning && !p.kind.RemovesCluster())
}

// locks holds the locks of a cluster: on this machine and on its control planes.
type locks struct {
	records records.Lock
	hosts   *clusterlock.Lock
}

// lockRecords takes the cluster's lock on this machine, unless the operation that is
// rolled back already holds it.
func (p *prepared) lockRecords(ctx context.Context) (lock records.Lock, release func() error, err error) {
	if p.under != nil {
		return p.under.records, func() error { return nil }, nil
	}
	name := p.env.Cluster.Name
	lock, err = p.svc.Records.Locks().Acquire(ctx, name, records.Holder{})
	var held *records.HeldError
	switch {
	case errors.As(err, &held):
		return nil, nil, &LockedError{Cluster: name, Operation: held.Holder.Operation, Holder: held.Holder.String()}
	case err != nil:
		return nil, nil, err
	}
	return lock, lock.Release, nil
}

// Apply applies the plan under the cluster's locks. If a node does not work with its new
// settings, Apply rolls them back under the same locks.
func (p *prepared) Apply(ctx context.Context, sinks ...event.Sink) (res *Result, err error) {
	if err := p.refusePaused(); err != nil {
		return nil, err
	}
	e, settled := execution{p}, p.isSettled()
	if settled && !p.changesSavedState() && p.formerSigner == "" {
		return e.unchanged(), nil
	}
	lock, release, err := p.lockRecords(ctx)
	if err != nil {
		return nil, err
	}
	defer func(ctx context.Context) {
		if err = errors.Join(err, release()); err == nil {
			e.retainRecords(ctx, res)
		}
	}(ctx)
	saving := context.WithoutCancel(ctx) // a request to stop must not stop halfway through the records
	if err := p.current(saving); err != nil {
		return nil, err
	}
	if settled {
		return e.unchanged(), e.recordSettled(saving)
	}
	o, err := p.operation(saving)
	if err != nil {
		return nil, err
	}
	if err := lock.SetHolder(saving, records.Holder{Operation: o.Name}); err != nil {
		return nil, err
	}
	ctx, stopWatch := p.svc.WatchCancel(ctx, o.Name, lock.Holder())
	defer stopWatch()
	ctx, stopWaiting := endWhenLost(ctx, lock)
	defer stopWaiting()
	hostLock, err := hostLocks{p}.lockHosts(ctx, o.Name)
	if err != nil {
		if lost := lock.Check(saving); lost == nil {
			err = errors.Join(err, e.abandon(ctx, o, err))
		}
		return nil, err
	}
	defer hostLock.Release(context.WithoutCancel(ctx))
	if err := lock.Check(saving); err != nil {
		return nil, err
	}
	o.Status.Executor = records.DescribeExecutor(lock, hostLock.Fence())
	if err := e.begin(saving, o); err != nil {
		return nil, err
	}
	events, err := p.svc.Records.Journals().Open(saving, o.Name)
	if err != nil {
		return nil, err
	}
	rec := journal.NewRecorder(events, events.LastSeq(), p.svc.Now, sinks)
	revert := settingsRevert{p}
	held := &locks{records: lock, hosts: hostLock}
	res, err = e.execute(ctx, o, rec, held)
	if res != nil && ctx.Err() != nil {
		res.Cancelled = context.Cause(ctx)
	}
	if err = errors.Join(err, events.Close()); err == nil && revert.revertsSettings(ctx, res) {
		revert.revertSettings(ctx, res, held, sinks)
	}
	return res, err
}

// endWhenLost returns a context that ends when a lock is lost. stop releases it.
func endWhenLost(ctx context.Context, lock records.Lock) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with ctx
		select {
		case <-lock.NotifyLost():
			cancel(records.ErrLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// An execution runs the pipeline of an operation and saves its progress.
type execution struct{ *prepared }

// unchanged returns the result if there is nothing to do.
func (p execution) unchanged() *Result {
	return &Result{Cluster: p.env.Cluster.Name, Outcome: event.Succeeded, Kubeconfig: p.kubeconfig()}
}

// recordSettled saves the changes that a plan without steps makes on this machine. The
// caller holds the lock.
func (p execution) recordSettled(ctx context.Context) error {
	if err := p.adoptSigner(ctx); err != nil || !p.changesSavedState() {
		return err
	}
	err := p.svc.Records.Clusters().Save(ctx, p.env.Cluster, p.request.savedSource())
	return errors.Join(err, p.svc.Records.Clusters().KeepSource(ctx, p.env.Cluster.Name))
}

// changesSavedState reports whether the description to save differs from the saved one, for
// example in a password, although no step is needed.
func (p *prepared) changesSavedState() bool {
	return p.kind.ChangesCluster() && p.recorded != nil && !savedstate.HaveSameSpec(p.recorded, p.env.Cluster)
}

// current refuses a plan if another operation has changed the cluster since the plan
// was made. The caller holds the lock.
func (p *prepared) current(ctx context.Context) error {
	if !p.kind.DependsOnState() {
		return nil
	}
	if p.continues != nil {
		o, err := p.svc.Records.Operations().Load(ctx, p.continues.Name)
		if err != nil {
			return err
		}
		if o.Status.State == v1alpha1.OperationSucceeded {
			return &StaleError{} // another process has finished it
		}
	}
	now, err := p.svc.Saved(ctx, p.env.Cluster.Name)
	if err != nil {
		return err
	}
	was := p.recorded
	if (now == nil) != (was == nil) || now != nil && (now.Status.Operation != was.Status.Operation ||
		now.Status.Phase != was.Status.Phase || spec.DigestOf(now) != spec.DigestOf(was)) {
		return &StaleError{}
	}
	return nil
}

// operation returns the operation that continues, or a new one.
func (p *prepared) operation(ctx context.Context) (*v1alpha1.Operation, error) {
	if p.continues != nil {
		return p.continues, nil
	}
	parameters := p.parameters()
	if o := p.requested; o != nil {
		o.Spec.Parameters, o.Status.State = parameters, v1alpha1.OperationPending
		return o, p.svc.Records.Operations().SavePlan(ctx, o, p.plan)
	}
	return p.svc.Records.Operations().Create(ctx, p.svc.Now(), v1alpha1.OperationSpec{
		ClusterRef: v1alpha1.ClusterReference{Name: p.env.Cluster.Name, UID: p.svc.object().ID.UID},
		Kind:       string(p.kind), Parameters: parameters,
	}, p.plan)
}

// parameters returns the details of the request. Planning has determined some of them.
func (p *prepared) parameters() v1alpha1.OperationParameters {
	parameters := v1alpha1.OperationParameters{
		IgnoredChecks: p.request.IgnoreChecks, TakeOver: p.request.TakeOver, Nodes: p.nodes,
		Force: p.request.removal.Force, Forget: p.request.forget, KeepFailed: p.request.keepFailed,
		DrainTimeout:   metav1.Duration{Duration: p.request.removal.DrainTimeout},
		MaxUnavailable: p.request.rollout.MaxUnavailable,
	}
	if p.requested != nil {
		parameters.Operation = p.requested.Spec.Parameters.Operation
	}
	p.behaviour.save(p, &parameters)
	return parameters
}

// begin saves the cluster, then the operation's name in the cluster's status, then the
// operation's start. After an interruption in between, the operation can be resumed if
// the cluster's status names it; otherwise it never began.
func (p execution) begin(ctx context.Context, o *v1alpha1.Operation) error {
	if !p.kind.RemovesCluster() && (p.continues == nil || p.kind.ChangesVersion()) && p.kind.SetsStatus() {
		// Leaving hosts stay in the saved cluster until they have left.
		if err := p.svc.Records.Clusters().Save(ctx, p.env.WithLeaving(), p.request.savedSource()); err != nil {
			return err
		}
	}
	if err := p.adoptSigner(ctx); err != nil {
		return err
	}
	if err := p.note(ctx, o, p.noteBegin); err != nil {
		return err
	}
	o.Status.State = v1alpha1.OperationRunning
	if o.Status.StartTime == nil {
		now := metav1.NewTime(p.svc.Now())
		o.Status.StartTime = &now
	}
	o.Status.Attempt++
	o.Status.EndTime, o.Status.Reason, o.Status.ErrorCode, o.Status.Message = nil, "", "", ""
	if p.onlyRecords {
		o.Status.Reason = reasonRemoving
	}
	return p.svc.Records.Operations().Save(ctx, o)
}

// note saves the cluster status that an operation sets. Operations that only concern
// hosts, certificates or lost nodes set none.
func (p execution) note(ctx context.Context, o *v1alpha1.Operation, change func(*v1alpha1.ClusterStatus) error) error {
	c, err := p.svc.Saved(ctx, p.env.Cluster.Name)
	if c == nil || err != nil || !p.kind.SetsStatus() {
		return err
	}
	st := c.Status
	if err := change(&st); err != nil {
		return err
	}
	st.Operation = o.Name
	st.Version, st.Plugin = p.env.Release.Kubernetes, p.env.Cluster.Spec.Network.Plugin
	st.Endpoint = p.env.APIEndpoint()
	return p.svc.Records.Clusters().SaveStatus(ctx, c.Name, st)
}

// noteBegin sets the status while the operation runs.
func (p execution) noteBegin(st *v1alpha1.ClusterStatus) (err error) {
	now := status.SettledPhase(st.Phase) // we hold the lock: no other operation runs
	st.Phase, err = status.MovePhase(now, status.PhaseDuring(p.kind, now))
	if p.kind.RemovesCluster() {
		p.noteCreated(st, metav1.ConditionFalse, "Removing")
	}
	return err
}

// noteEnd sets the status after the operation.
func (p execution) noteEnd(ctx context.Context, st *v1alpha1.ClusterStatus, end event.Outcome) (err error) {
	st.Phase, err = status.MovePhase(st.Phase, status.PhaseAfter(p.kind, end, st.Phase))
	if !p.kind.RemovesCluster() && (end == event.Succeeded || end == event.Partial) {
		p.noteCreated(st, metav1.ConditionTrue, "Running")
		err = errors.Join(err, p.noteNodes(ctx, st, p.nodeStatuses(ctx)))
	}
	return err
}

func (p execution) noteCreated(st *v1alpha1.ClusterStatus, is metav1.ConditionStatus, reason string) {
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{
		Type: savedstate.ConditionCreated, Status: is, Reason: reason, LastTransitionTime: metav1.NewTime(p.svc.Now()),
	})
}

// execute runs the pipeline and saves its outcome.
func (p execution) execute(ctx context.Context, o *v1alpha1.Operation, rec *journal.Recorder, held *locks) (*Result, error) {
	start := p.svc.Now()
	asked := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	beats := held.hosts.KeepAlive(ctx, stop)
	defer beats()
	first := event.Event{
		Type: event.OperationStarted, Operation: o.Name, Cluster: p.env.Cluster.Name,
		Kind: string(p.kind), Digest: p.plan.Digest,
	}
	if err := errors.Join(rec.Emit(first), p.tellLost(rec, o.Name)); err != nil {
		return nil, err
	}
	notes := rec.NoteSink(o.Name, first.Cluster)
	endNote := noteCancel(asked, notes)
	run := p.run(o.Name, held.hosts.Fence())
	run.Emit, run.Sync = rec.Emit, rec.Sync
	p.connections.SetSink(notes)
	out, err := run.Apply(ctx, p.pipeline, p.plan.Steps)
	p.connections.SetSink(nil)
	endNote()
	if out == nil {
		return nil, err
	}
	if lost := held.records.Check(context.WithoutCancel(ctx)); lost != nil {
		return nil, errors.Join(lost, err) // another process can continue the operation, and saves its end
	}
	if asked.Err() != nil && errors.Is(err, context.Cause(asked)) {
		err = nil // the caller stopped it: this is not a failure
	}
	saving := context.WithoutCancel(ctx)
	res := p.result(saving, o, out, p.svc.Now().Sub(start))
	if err != nil {
		res.Outcome, res.Failures = event.Failed, append(res.Failures, HostFailure{Title: endedRun, Failure: *explainFailure(err)})
	}
	if res.Outcome != event.Succeeded && p.mayHaveJoinTokens(saving, o) && !errors.Is(err, clusterlock.ErrLost) {
		p.deleteJoinTokens(saving, o, held.hosts.Fence())
	}
	return res, p.finish(saving, o, rec, res)
}

// tellLost records the hosts that do not take part as failed.
func (p execution) tellLost(rec *journal.Recorder, operation string) error {
	for _, f := range p.lost {
		e := event.Event{Type: event.StepFinished, Operation: operation, Cluster: p.env.Cluster.Name, Outcome: event.Failed}
		e.Task, e.Title, e.Host, e.Failure = f.Task, f.Title, f.Host, &f.Failure
		if err := rec.Emit(e); err != nil {
			return err
		}
	}
	return nil
}

func (p execution) result(ctx context.Context, o *v1alpha1.Operation, out *engine.Result, took time.Duration) *Result {
	res := &Result{
		Operation: o.Name, Cluster: p.env.Cluster.Name, Outcome: event.Succeeded, Duration: took,
		Changed: out.Changed, Nodes: p.nodes, Kubeconfig: p.kubeconfig(),
	}
	for _, f := range out.Failures {
		res.Failures = append(res.Failures, HostFailure{Host: f.Host, Task: f.Task, Title: f.Title, Failure: f.Failure})
	}
	failedSteps := len(res.Failures) > 0
	res.Failures = append(res.Failures, p.lost...)
	res.undone = out.Skipped
	for _, f := range res.Failures {
		res.undone = append(res.undone, f.Host)
	}
	switch {
	case out.Cancelled && !failedSteps:
		res.Outcome = event.Cancelled
	case failedSteps && !p.continuesOnFailure():
		res.Outcome = event.Failed
	case len(res.Failures) > 0 && p.firstFailed(res.Failures):
		res.Outcome = event.Failed
	case out.Cancelled:
		res.Outcome = event.Cancelled
	case len(res.Failures) > 0:
		res.Outcome = event.Partial
	case out.Paused:
		res.Outcome = event.Paused
	}
	if res.Outcome == event.Succeeded || res.Outcome == event.Partial {
		res.Ready = p.behaviour.summary(ctx, p.prepared, res)
	}
	p.behaviour.finish(p.prepared, o, res)
	return res
}

// firstFailed reports whether the first control plane or the manager failed, or any host
// of an operation that cannot succeed partly: then the operation has failed as a whole.
// If the cluster is removed, no host is special.
func (p execution) firstFailed(failures []HostFailure) bool {
	first := p.env.FirstControlPlane().Name
	return slices.ContainsFunc(failures, func(f HostFailure) bool {
		return f.Host == "" || f.Host == first && !p.kind.RemovesCluster() || !p.kind.CanSucceedPartly()
	})
}

// count returns a number with its noun, for users.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func (p *prepared) kubeconfig() string {
	if p.kind.RemovesCluster() || p.kind.PreparesHosts() {
		return ""
	}
	return p.svc.Records.Kubeconfigs().Location(p.env.Cluster.Name)
}

// refusePaused refuses to apply a cluster file that pauses its cluster. The plan can be made.
func (p *prepared) refusePaused() error {
	if c := p.request.Cluster; c == nil || !c.Spec.Paused || p.kind.RemovesCluster() {
		return nil
	}
	return diag.Refuse(idClusterPaused, "cluster "+p.name+" is paused in its file",
		"to change the cluster, remove spec.paused from the file, or set it to false")
}

// mayHaveJoinTokens reports whether the operation has begun to create a join token, in this
// attempt or an earlier one. A create that fails before that can lack an API server.
func (p execution) mayHaveJoinTokens(ctx context.Context, o *v1alpha1.Operation) bool {
	begun := false
	err := p.svc.Records.Journals().ReadEvents(ctx, o.Name, func(e event.Event) error {
		begun = begun || e.Type == event.StepStarted && kubeadm.CreatesToken(e.Task)
		return nil
	})
	return begun || err != nil
}

// deleteJoinTokens deletes join tokens after an operation that did not succeed. It is not a
// part of the operation: tokens expire within an hour anyway.
func (p execution) deleteJoinTokens(ctx context.Context, o *v1alpha1.Operation, fence uint64) {
	ctx, cancel := context.WithTimeout(ctx, p.svc.waits.cleanup)
	defer cancel()
	end := pipeline.RevokeJoinTokens(p.env)
	run := p.run(o.Name, fence)
	found, err := run.Check(ctx, end)
	switch {
	case err != nil:
	case len(found.Failures) > 0:
		err = errors.New(found.Failures[0].Failure.Message)
	case slices.ContainsFunc(found.Steps, func(s plan.Step) bool { return s.State == plan.Pending }):
		err = errors.New("no API server is known")
	default:
		_, err = p.run(o.Name, fence).Apply(ctx, end, found.Steps)
	}
	if err != nil {
		p.svc.Log.Warn("join tokens may remain; they expire within an hour", "error", err)
	}
}
