package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/diag/errorcode"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// An ApplyRequest asks to make a cluster match its description.
type ApplyRequest struct {
	Subject
	ApplyOptions
}

// ApplyOptions are the options of an apply: of a cluster file, or of a saved plan.
type ApplyOptions struct {
	Options
	// Removal configures how hosts leave the cluster.
	Removal Removal
	// MaxUnavailable limits how many workers at once get settings that need a restart of
	// a component: a number or a percentage; "" means one.
	MaxUnavailable string
	// Forget force-removes leaving hosts if they are unreachable or belong to another
	// cluster.
	Forget bool
	// KeepFailed keeps settings with which a node does not work. Otherwise a running
	// cluster is rolled back automatically to its previous settings.
	KeepFailed bool
}

func (r ApplyRequest) shared() sharedRequest {
	return sharedRequest{
		Subject: r.Subject, Options: r.Options, removal: r.Removal, rollout: module.Upgrade{MaxUnavailable: r.MaxUnavailable},
		forget: r.Forget, keepFailed: r.KeepFailed,
	}
}

func (r ApplyRequest) behaviour() behaviour { return applyDescription() }

// applyDescription makes a cluster match its description.
func applyDescription() behaviour {
	b := usual()
	b.begin = createInstead
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (made engine.Pipeline, err error) {
		parts.PruneBundles = true
		made, p.before, err = p.applyPipeline(ctx, parts)
		return made, err
	}
	b.summary = clusterReady
	b.rollBack = func(ctx context.Context, p *prepared, o *v1alpha1.Operation) (err error) {
		p.nodes = o.Spec.Parameters.Nodes
		p.request.Cluster, err = p.asBefore(ctx, o)
		return err
	}
	return b
}

// createInstead creates a cluster that never finished its creation.
func createInstead(ctx context.Context, p *prepared) error {
	if p.continues != nil || savedstate.IsCreated(p.recorded) {
		return nil
	}
	if err := p.become(p.kind.OnNewCluster()); err != nil {
		return err
	}
	before, err := p.svc.past.EarlierAttempts(ctx, p.name)
	p.done, p.touched = before.Done, before.Touched
	return err
}

// applyPipeline returns the pipeline that applies the description to a running cluster.
// It compares with the descriptions since the latest successful operation to decide
// whether settings change, with which a component may not start. was is the description
// of the latest successful operation, nil if it is not known.
func (p *prepared) applyPipeline(ctx context.Context, parts pipeline.Parts) (made engine.Pipeline, was *v1alpha1.Cluster, err error) {
	if was, err = p.svc.past.DescriptionBefore(ctx, p.env.Cluster.Name); err == nil { // otherwise it is unknown and not used
		now := &p.env.Cluster.Spec
		p.env.NewControlPlaneSettings = !equal(settings(&was.Spec), settings(now))
		for _, h := range now.Hosts {
			if !slices.ContainsFunc(was.Spec.Hosts, func(b v1alpha1.Host) bool { return b.Name == h.Name && b.Address == h.Address }) {
				p.env.Coming = append(p.env.Coming, h.Name)
			}
		}
	}
	been, err := p.svc.past.DescriptionsSince(ctx, p.env.Cluster)
	if err != nil {
		return made, was, err
	}
	p.env.NewEtcdSettings = slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool {
		return !equal(c.Spec.Etcd.ExtraArgs, p.env.Cluster.Spec.Etcd.ExtraArgs)
	})
	p.env.NewProxySettings = slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool {
		was, is := c.Spec.Kubernetes, p.env.Cluster.Spec.Kubernetes
		return was.ProxyMode != is.ProxyMode || !maps.Equal(was.FeatureGates, is.FeatureGates)
	})
	for _, c := range been {
		p.env.KubeletStates = append(p.env.KubeletStates,
			spec.OutdatedKubeletStates(c.Spec.Kubernetes.Kubelet, p.env.Cluster.Spec.Kubernetes.Kubelet)...)
	}
	slices.Sort(p.env.KubeletStates)
	p.env.KubeletStates = slices.Compact(p.env.KubeletStates)
	p.env.Upgrade = p.request.rollout
	p.env.Upgrade.IsRollback = p.under != nil
	migrates, err := p.changesRuntime(ctx, been)
	switch {
	case err != nil:
	case migrates:
		made, err = pipeline.ChangeRuntime(p.env, parts)
	default:
		made, err = pipeline.ApplyCluster(p.env, parts)
	}
	return made, was, err
}

// asRecorded fills in defaults like complete, for an operation that must change nothing
// else: it leaves out defaults that are newer than the saved cluster.
func (s *Service) asRecorded(c, recorded *v1alpha1.Cluster) *v1alpha1.Cluster {
	wanted := s.complete(c, recorded)
	if recorded != nil {
		spec.KeepServing(wanted, c, recorded)
	}
	return wanted
}

// fromFile returns the cluster that a file describes. During a change of the container
// runtime, also an unfinished one, nothing else may change.
func (s *Service) fromFile(ctx context.Context, c, recorded *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	wanted := s.complete(c, recorded)
	if !savedstate.IsCreated(recorded) {
		return wanted, nil
	}
	been, err := s.past.DescriptionsSince(ctx, recorded)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(append(been, recorded),
		func(was *v1alpha1.Cluster) bool { return spec.UsesDocker(was) != spec.UsesDocker(wanted) }) {
		return s.asRecorded(c, recorded), nil
	}
	return wanted, nil
}

// changesRuntime reports whether the container runtime differs from the one since the latest
// successful operation. Such a change must come alone: otherwise the reason why a node
// does not work afterwards would be unknown.
func (p *prepared) changesRuntime(ctx context.Context, been []*v1alpha1.Cluster) (_ bool, err error) {
	if len(been) == 0 { // only the saved description is known
		been = []*v1alpha1.Cluster{p.recorded}
	}
	docker := p.env.UsesDocker()
	p.env.NewRuntime = slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool { return spec.UsesDocker(c) != docker })
	if !p.env.NewRuntime {
		return false, nil
	}
	if p.env.MidRuntimeChange, err = p.svc.past.NodesBetweenRuntimes(ctx, p.env.Cluster.Name); err != nil {
		return false, err
	}
	p.env.Upgrade.Resumed = p.continues != nil || p.under != nil || len(been) > 1
	was, now := spec.RedactCluster(been[0]), spec.RedactCluster(p.env.Cluster) // plans have no passwords
	for _, c := range []*v1alpha1.Cluster{was, now} {
		c.Spec.ContainerRuntime, c.Spec.Bundle, c.Spec.BundleKeys = v1alpha1.ContainerRuntime{}, "", nil
		if own := c.Spec.Registry.Private; own != nil { // only containerd uses it
			own.MirrorOf = nil
		}
	}
	if !savedstate.HaveSameSpecInAnyOrder(was, now) {
		return false, diag.Refuse(idMigrationAlone, "the file changes the container runtime and other settings",
			"apply the change of spec.containerRuntime alone, and the other changes before or after it")
	}
	return true, nil
}

// settings returns the settings of a running cluster that can change and are rolled back
// automatically.
func settings(s *v1alpha1.ClusterSpec) []any {
	return []any{s.Kubernetes, s.Etcd, s.ContainerRuntime, s.Registry, s.DNS, s.System}
}

// places returns the hosts of a description without their SSH settings.
func places(s *v1alpha1.ClusterSpec) (out []any) {
	for _, h := range s.Hosts {
		out = append(out, []any{h.Name, h.Address, h.InternalAddress, h.Roles})
	}
	return out
}

// equal compares values by their JSON form, so that values read from the saved state
// equal the originals.
func equal(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// settle lists the steps that apply settings or wait until a component works with them.
// A failure of such a step is attributed to the settings.
var settle = []string{
	"os.", "registry.certificate", "registry.service", "registry.serves", "runtime.", "kubernetes.kubelet",
	"kubelet.", "etcd.service", "etcd.start", "etcd.running", "etcd.mend",
	"reset.runtime", "kubeadm.config", "kubeadm.audit", "kubeadm.init.", "kubeadm.member", "join.etcd",
	"join.settings", "kubernetes.proxy", "nodes.ready",
}

// A settingsRevert rolls back settings with which a node does not work.
type settingsRevert struct{ *prepared }

// revertsSettings reports whether changed settings of a cluster are rolled back automatically,
// because a node or the registry does not work with them. It returns false if no settings
// changed, if hosts are added or removed, if the failure has another cause, such as an
// unreachable host, and if the user excluded it with KeepFailed or IgnoreErrors.
func (p settingsRevert) revertsSettings(ctx context.Context, res *Result) bool {
	if !p.kind.RevertsFailedSettings() || res.Outcome != event.Failed || p.request.keepFailed || p.under != nil ||
		p.continuesOnFailure() ||
		ctx.Err() != nil || len(p.env.Leaving) > 0 || !p.env.NewControlPlaneSettings ||
		!equal(places(&p.before.Spec), places(&p.env.Cluster.Spec)) {
		return false
	}
	stopped := func(f HostFailure) bool { return f.Host == "" && f.Task == "" } // the operation could not be saved or lost its lock
	return slices.ContainsFunc(res.Failures, isFailureOfSettings) && !slices.ContainsFunc(res.Failures, stopped)
}

// isFailureOfSettings reports whether a step that applies settings failed, and not because its
// host is unreachable or in use by another manager.
func isFailureOfSettings(f HostFailure) bool {
	if slices.Contains([]string{string(remote.Unreachable), string(remote.ConnectionLost), "Fenced", "PlanStale", "DiskFull"}, f.Reason) {
		return false
	}
	return slices.ContainsFunc(settle, func(step string) bool {
		return f.Task == step || strings.HasSuffix(step, ".") && strings.HasPrefix(f.Task, step)
	})
}

// revertSettings rolls back the settings of a cluster and reports that in the result of the
// failed operation. The rollback is a separate operation, as with 'slipway rollback',
// and can be resumed. The locks are held in between.
func (p settingsRevert) revertSettings(ctx context.Context, failed *Result, under *locks, sinks []event.Sink) {
	tell := func(host, message string) {
		for _, s := range sinks {
			note(s, host, message)
		}
	}
	root := &failed.Failures[slices.IndexFunc(failed.Failures, isFailureOfSettings)]
	tell(root.Host, "does not work with its new settings: rolling back all settings")
	back, err := p.runRollback(ctx, under, sinks)
	if back != nil && back.Outcome == event.Cancelled {
		failed.Outcome = event.Cancelled // a resume continues where it was stopped
		return
	}
	if err != nil || back.Outcome != event.Succeeded {
		failed.Failures = append(failed.Failures, rollbackFailures(root, back, err)...)
		return
	}
	failed.Reverted = true
	root.Detail = strings.TrimSpace(root.Reason + "\n" + root.Detail)
	root.Reason, root.Code = idReverted, errorcode.Of(idReverted, nil)
	root.Message += fmt.Sprintf("; the settings of this host and of hosts changed before it were rolled back (%s)", back.Operation)
	root.Remedy = "correct the failed settings in the cluster file, then apply the file"
}

// runRollback runs the rollback of this operation under its locks. It does not inherit the
// permission to break another manager's lock.
func (p settingsRevert) runRollback(ctx context.Context, under *locks, sinks []event.Sink) (_ *Result, err error) {
	quiet := make([]event.Sink, len(sinks))
	for i, sink := range sinks {
		quiet[i] = &backwards{sink}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	kept := under.hosts.KeepAlive(ctx, stop)
	name := p.env.Cluster.Name
	r := sharedRequest{
		Subject: Subject{Name: name}, Options: Options{IgnoreChecks: p.request.IgnoreChecks}, rollout: p.request.rollout,
	}
	q, err := p.svc.prepareRollback(ctx, &prepared{svc: p.svc, request: r, under: under}, nil)
	kept() // the rollback takes over the lock
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	if lost := q.Plan().Removes; len(lost) > 0 { // the user has not confirmed a removal
		return nil, fmt.Errorf("the rollback would remove %s", strings.Join(lost, ", "))
	}
	return q.Apply(ctx, quiet...)
}

// rollbackFailures returns the failures of a rollback of settings that did not succeed.
func rollbackFailures(root *HostFailure, back *Result, err error) []HostFailure {
	why := event.Failure{
		Reason: idRevertFailed, Code: errorcode.Of(idRevertFailed, nil), Remedy: "fix the cause, then run: slipway rollback",
	}
	host := root.Host
	switch {
	case err != nil:
		why.Message = err.Error()
	case len(back.Failures) > 0:
		f := back.Failures[0]
		host, why.Message, why.Detail = f.Host, f.Title+": "+f.Message, f.Detail
	default:
		why.Message = "the rollback ended with outcome " + string(back.Outcome)
	}
	return []HostFailure{{Host: host, Task: "revert", Title: "roll back settings", Failure: why}}
}

// backwards shows the steps of an automatic rollback as notes, because the plan on the
// screen belongs to another operation.
type backwards struct{ to event.Sink }

var _ event.Sink = (*backwards)(nil)

// Emit implements event.Sink.
func (b *backwards) Emit(e event.Event) {
	if e.Type == event.StepFinished && (e.Outcome == event.Changed || e.Outcome == event.Failed) {
		note(b.to, e.Host, "rollback: "+e.Title)
	}
}
