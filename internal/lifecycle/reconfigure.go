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
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// reconfigures chooses the pipeline by which a cluster that runs becomes what its
// description says. What it has been since the latest operation that came to its
// end says whether it gets other settings, with which something may not start.
func (p *prepared) reconfigures(parts pipeline.Parts) error {
	if was, err := p.svc.before(p.env.Cluster.Name); err == nil { // else it is not known, and not gone by
		p.was = was
		now := &p.env.Cluster.Spec
		p.env.Reconfigures = !equal(settings(&was.Spec), settings(now))
		for _, h := range now.Hosts {
			if !slices.ContainsFunc(was.Spec.Hosts, func(b v1alpha1.Host) bool { return b.Name == h.Name && b.Address == h.Address }) {
				p.env.Coming = append(p.env.Coming, h.Name)
			}
		}
	}
	been, err := p.svc.since(p.env.Cluster)
	if err != nil {
		return err
	}
	p.env.OtherEtcd = slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool {
		return !equal(c.Spec.Etcd.ExtraArgs, p.env.Cluster.Spec.Etcd.ExtraArgs)
	})
	p.env.OtherProxy = slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool {
		was, is := c.Spec.Kubernetes, p.env.Cluster.Spec.Kubernetes
		return was.ProxyMode != is.ProxyMode || !maps.Equal(was.FeatureGates, is.FeatureGates)
	})
	for _, c := range been {
		p.env.KubeletStates = append(p.env.KubeletStates, spec.OutdatedKubeletStates(c.Spec.Kubernetes.Kubelet, p.env.Cluster.Spec.Kubernetes.Kubelet)...)
	}
	slices.Sort(p.env.KubeletStates)
	p.env.KubeletStates = slices.Compact(p.env.KubeletStates)
	p.env.Upgrade = p.request.Rollout
	p.env.Upgrade.Back = p.request.back
	migrates, err := p.migrates(been)
	switch {
	case err != nil:
		return err
	case migrates:
		p.pipeline, err = pipeline.Migrate(p.env, parts)
	default:
		p.pipeline, err = pipeline.Apply(p.env, parts)
	}
	return err
}

// asRecorded fills in what a file leaves open, as complete does, for what is to change
// nothing else: a default that came after the record is left out.
func (s *service) asRecorded(c, recorded *v1alpha1.Cluster) *v1alpha1.Cluster {
	wanted := s.complete(c, recorded)
	if recorded != nil {
		spec.KeepServing(wanted, c, recorded)
	}
	return wanted
}

// fromFile is what a file wants a cluster to be. A change of the container runtime, also
// one that has not come to its end, comes alone.
func (s *service) fromFile(c, recorded *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	wanted := s.complete(c, recorded)
	if !created(recorded) {
		return wanted, nil
	}
	been, err := s.since(recorded)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(append(been, recorded), func(was *v1alpha1.Cluster) bool { return spec.Docker(was) != spec.Docker(wanted) }) {
		return s.asRecorded(c, recorded), nil
	}
	return wanted, nil
}

// migrates says that what runs the containers of nodes is another than what has
// since the latest operation that came to its end. That is a change by itself: what
// a node does not serve with would not be known otherwise.
func (p *prepared) migrates(been []*v1alpha1.Cluster) (_ bool, err error) {
	if len(been) == 0 { // what is on record is all that is known
		been = []*v1alpha1.Cluster{p.recorded}
	}
	docker := p.env.Docker()
	p.env.Migrates = slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool { return spec.Docker(c) != docker })
	if !p.env.Migrates {
		return false, nil
	}
	if p.env.Between, err = p.svc.between(p.env.Cluster.Name); err != nil {
		return false, err
	}
	p.env.Upgrade.Resumed = p.continues != nil || p.request.back || len(been) > 1
	was, now := spec.Redacted(been[0]), spec.Redacted(p.env.Cluster) // plans have no passwords
	for _, c := range []*v1alpha1.Cluster{was, now} {
		c.Spec.ContainerRuntime, c.Spec.Bundle, c.Spec.BundleKeys = v1alpha1.ContainerRuntime{}, "", nil
		if own := c.Spec.Registry.Private; own != nil { // of containerd alone
			own.MirrorOf = nil
		}
	}
	if !sameButOrder(was, now) {
		return false, refused(idMigrationAlone, "the container runtime changes, and more than that",
			"apply the one first, and then the other: a change of spec.containerRuntime comes alone")
	}
	return true, nil
}

// between are the nodes on which a change of the runtime has begun to end what ran,
// since the latest operation that came to its end, and that have not come back into
// service.
func (s *service) between(cluster string) (out []string, err error) {
	ops, err := s.Store.Operations(cluster)
	if err != nil {
		return nil, err
	}
	if at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		return changesHosts(Kind(o.Spec.Type)) && !gaveUp(o) && o.Status.Phase == v1alpha1.OperationSucceeded
	}); at >= 0 {
		ops = ops[:at]
	}
	for _, o := range slices.Backward(ops) {
		err := s.Store.Read(o.Name, func(e event.Event) error {
			at := slices.Index(out, e.Host)
			switch {
			case e.Task == "reset.runtime" && e.Type == event.StepStarted && at < 0:
				out = append(out, e.Host)
			case e.Task == "upgrade.uncordon" && e.Type == event.StepFinished && (e.Outcome == event.Changed || e.Outcome == event.Unchanged) && at >= 0:
				out = slices.Delete(out, at, at+1)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moving refuses to have hosts come or go while nodes of a cluster are run by two
// runtimes: which is to run those that stay only the change of it knows.
func (s *service) moving(kind Kind, recorded *v1alpha1.Cluster) error {
	if kind != Add && kind != Remove {
		return nil
	}
	been, err := s.since(recorded)
	if err != nil || !slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool { return spec.Docker(c) != spec.Docker(been[0]) }) {
		return err
	}
	return refused(idMigrationAlone, "the change of cluster "+recorded.Name+" to another container runtime has not come to its end",
		"finish it first: slipway resume "+recorded.Name+"; or go back: slipway rollback "+recorded.Name+"; a host that is gone for good can be taken off before: slipway delete node NAME --forget")
}

// settings are what may be changed of a cluster that runs, and goes back by
// itself.
func settings(s *v1alpha1.ClusterSpec) []any {
	return []any{s.Kubernetes, s.Etcd, s.ContainerRuntime, s.Registry, s.DNS, s.System}
}

// places are the hosts of a description, without how they are logged in to.
func places(s *v1alpha1.ClusterSpec) (out []any) {
	for _, h := range s.Hosts {
		out = append(out, []any{h.Name, h.Address, h.InternalAddress, h.Roles})
	}
	return out
}

// reachedAs has hosts be logged in to as on record: how that is done may have changed
// since they were as they are described. Another machine in the place of one is
// reached in its own way.
func reachedAs(c, recorded *v1alpha1.Cluster) {
	now := spec.Copy(recorded)
	c.Spec.SSH = now.Spec.SSH
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		at := find(now.Spec.Hosts, h.Name)
		if at < 0 {
			continue
		}
		if is := now.Spec.Hosts[at]; is.Address == h.Address && is.InternalAddress == h.InternalAddress {
			h.SSH = is.SSH
		}
	}
}

// equal compares as records do: what was read from one is the same as before.
func equal(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// settle are the steps that give something its settings, or wait until it serves
// with them: what fails there fails by the settings, as far as anybody can tell.
var settle = []string{
	"os.", "registry.certificate", "registry.service", "registry.serves", "runtime.", "kubernetes.kubelet", "kubelet.", "etcd.service", "etcd.start", "etcd.running", "etcd.mend",
	"reset.runtime", "kubeadm.config", "kubeadm.audit", "kubeadm.init.", "kubeadm.member", "join.etcd", "join.settings", "kubernetes.proxy", "nodes.ready",
}

// goesBack says that a cluster which has got other settings goes back to those it
// had, because a node or its registry does not serve with them: not what was only to
// be mended, not hosts that come or go, nor what nobody could reach.
func (p *prepared) goesBack(ctx context.Context, res *Result) bool {
	if p.request.Kind != Apply || res.Outcome != event.Failed || p.request.KeepFailed || p.request.back || p.ignores() ||
		ctx.Err() != nil || len(p.env.Leaving) > 0 || !p.env.Reconfigures || !equal(places(&p.was.Spec), places(&p.env.Cluster.Spec)) {
		return false
	}
	stopped := func(f HostFailure) bool { return f.Host == "" && f.Task == "" } // it could not be recorded, or has lost its lock
	return slices.ContainsFunc(res.Failures, bySettings) && !slices.ContainsFunc(res.Failures, stopped)
}

// bySettings says that a step has failed that gives settings, and not because its
// host could not be reached, or another works on it.
func bySettings(f HostFailure) bool {
	if slices.Contains([]string{string(remote.Unreachable), string(remote.ConnectionLost), "Fenced", "PlanStale", "DiskFull"}, f.Reason) {
		return false
	}
	return slices.ContainsFunc(settle, func(step string) bool {
		return f.Task == step || strings.HasSuffix(step, ".") && strings.HasPrefix(f.Task, step)
	})
}

// revert takes a cluster back to the settings that it had, and says so in the
// result of what has failed. It is an operation of its own, the one that `slipway
// rollback` would begin: cut off, it is resumed as any other. Nobody gets in between.
func (p *prepared) revert(ctx context.Context, failed *Result, under *locks, sinks []event.Sink) {
	tell := func(host, message string) {
		for _, s := range sinks {
			note(s, host, message)
		}
	}
	root := &failed.Failures[slices.IndexFunc(failed.Failures, bySettings)]
	tell(root.Host, "does not serve with its new settings: all goes back to those before")
	back, err := p.back(ctx, under, sinks)
	if back != nil && back.Outcome == event.Cancelled {
		failed.Outcome = event.Cancelled // it goes on where it was stopped
		return
	}
	if err != nil || back.Outcome != event.Succeeded {
		failed.Failures = append(failed.Failures, notBack(root, back, err)...)
		return
	}
	failed.Reverted = true
	root.Detail = strings.TrimSpace(root.Reason + "\n" + root.Detail)
	root.Reason = idReverted
	root.Message += fmt.Sprintf("; its settings, and those of nodes changed before it, are as they were (%s)", back.Operation)
	root.Remedy = "the file still says what did not work: correct it, and apply it"
}

// back is the operation that takes this one back, under its locks: it has the leave to
// break another's no more.
func (p *prepared) back(ctx context.Context, under *locks, sinks []event.Sink) (_ *Result, err error) {
	quiet := make([]event.Sink, len(sinks))
	for i, sink := range sinks {
		quiet[i] = &backwards{sink}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	kept := under.hosts.beat(ctx, stop)
	name := p.env.Cluster.Name
	q, err := p.svc.PrepareRollback(ctx, name, Request{
		Name: name, IgnoreChecks: p.request.IgnoreChecks, Rollout: p.request.Rollout, back: true, under: under,
	}, nil)
	kept() // it takes the lock over
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	if lost := q.Plan().Removes; len(lost) > 0 { // nobody has said yes to that
		return nil, fmt.Errorf("going back would remove %s", strings.Join(lost, ", "))
	}
	return q.Apply(ctx, quiet...)
}

// notBack are the failures of a cluster that has not come back to the settings it
// had.
func notBack(root *HostFailure, back *Result, err error) []HostFailure {
	why := event.Failure{Reason: idRevertFailed, Remedy: "see why, then go on with: slipway rollback"}
	host := root.Host
	switch {
	case err != nil:
		why.Message = err.Error()
	case len(back.Failures) > 0:
		f := back.Failures[0]
		host, why.Message, why.Detail = f.Host, f.Title+": "+f.Message, f.Detail
	default:
		why.Message = "it ended " + string(back.Outcome)
	}
	return []HostFailure{{Host: host, Task: "revert", Title: "going back to the settings before", Failure: why}}
}

// backwards shows of an operation that nobody has asked for what it has done, as
// notes: the plan that is shown is another's.
type backwards struct{ to event.Sink }

var _ event.Sink = (*backwards)(nil)

// Emit implements event.Sink.
func (b *backwards) Emit(e event.Event) {
	if e.Type == event.StepFinished && (e.Outcome == event.Changed || e.Outcome == event.Failed) {
		note(b.to, e.Host, "back: "+e.Title)
	}
}

// unbounded refuses a number of nodes that is none.
func unbounded(r Request) error {
	if _, err := engine.Bound(r.Rollout.MaxUnavailable, 1); err != nil {
		return refused(idUpgradeHow, "how many workers may be out of service at once: "+err.Error(), "write a number, or a share of them such as 20%")
	}
	return nil
}

// exists refuses to create a cluster that is recorded.
func exists(recorded *v1alpha1.Cluster) error {
	hint := "change it with: slipway apply -f FILE"
	if recorded.Status.Phase != v1alpha1.PhaseRunning && recorded.Status.Operation != "" {
		hint = "continue with: slipway resume " + recorded.Name
	}
	return refused(idClusterExists, "cluster "+recorded.Name+" is recorded already", hint)
}
