package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// rollback is the type of an operation that takes another back.
const rollback = "rollback"

// prepared is a plan with open connections.
type prepared struct {
	svc      *service
	request  Request
	env      module.Env
	hosts    []*engine.Host // those that take part
	lost     []HostFailure  // those that do not, with IgnoreErrors
	findings diag.List
	pipeline engine.Pipeline
	plan     *plan.Plan
	bundle   *source
	// continues is the operation that goes on, nil for a new one.
	continues *v1alpha1.Operation
	done      map[string]bool
	recorded  *v1alpha1.Cluster
}

var _ Prepared = (*prepared)(nil)

func (p *prepared) Plan() *plan.Plan    { return p.plan }
func (p *prepared) Findings() diag.List { return p.findings }
func (p *prepared) Close() error        { return closeAll(p.hosts) }

// Prepare observes, checks and plans.
func (s *service) Prepare(ctx context.Context, r Request, progress event.Sink) (Prepared, error) {
	p, err := s.prepare(ctx, &prepared{svc: s, request: r}, progress)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s *service) prepare(ctx context.Context, p *prepared, progress event.Sink) (_ *prepared, err error) {
	wanted, recorded, err := s.subject(p.request)
	if err != nil {
		return nil, err
	}
	p.recorded = recorded
	if p.request.Kind == Apply && p.continues == nil && !created(recorded) {
		p.request.Kind = Create // what never came to run is still to be created
		if p.done, err = s.doneBefore(wanted.Name); err != nil {
			return nil, err
		}
	}
	if p.env, err = s.environment(wanted); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, p, progress); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := s.makePlan(ctx, p); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// connect reaches the hosts and judges them.
func (s *service) connect(ctx context.Context, p *prepared, progress event.Sink) error {
	c := p.env.Cluster
	blobs := &lateBlobs{}
	hosts, found := s.observe(ctx, c, blobs, progress)
	p.hosts = hosts
	if ctx.Err() != nil {
		return context.Cause(ctx) // that hosts did not answer is no wonder then
	}
	complete(c, hosts, found)
	p.bundle = newSource(s, p.env, hosts)
	blobs.of = p.bundle
	options := precheck.Options{
		Operation: string(p.request.Kind), Ignore: p.request.IgnoreChecks, Recorded: p.recorded != nil,
	}
	var unfit diag.List // what is wrong with the bundle is told with all else
	if !p.removes() && p.request.Kind != InitOS {
		if _, err := p.bundle.Have(ctx); err != nil && !errors.As(err, &unfit) {
			return err
		}
		options.Architectures = p.bundle.architectures()
	}
	p.findings = append(precheck.Findings(c, found, options), unfit...)
	if p.request.IgnoreErrors {
		if err := p.dropLost(found); err != nil {
			return err
		}
	}
	if err := p.findings.Err(); err != nil {
		return err
	}
	p.plan = &plan.Plan{FactsDigest: facts.Digest(found)}
	return nil
}

// dropLost goes on without the hosts that cannot be reached; they stay failed
// in the result. The first control plane cannot be done without, unless the
// cluster is taken away.
func (p *prepared) dropLost(found []facts.Host) error {
	var lost []*engine.Host
	kept := p.hosts[:0:0]
	for i, h := range p.hosts {
		err := found[i].Err
		if err == nil || p.env.IsFirst(h) && !p.removes() {
			kept = append(kept, h)
			continue
		}
		f := event.Failure{Reason: "Error", Message: err.Error()}
		var re *remote.Error
		if errors.As(err, &re) {
			f = event.Failure{Reason: string(re.Reason), Message: re.Cause, Remedy: re.Remedy}
		}
		lost = append(lost, h)
		p.lost = append(p.lost, HostFailure{Host: h.Name, Task: "connect", Title: "connecting", Failure: f})
		for i, d := range p.findings {
			if d.Host == h.Name { // told, but nothing is refused for it
				p.findings[i].Severity = diag.Warning
			}
		}
	}
	p.hosts = kept
	return closeAll(lost)
}

// choose picks the pipeline.
func (p *prepared) choose() error {
	parts := pipeline.Parts{Bundle: p.bundle, Kubeconfigs: kubeconfigs{p.svc.Store}, Owner: "slipway"}
	switch p.request.Kind {
	case Create:
		p.pipeline = pipeline.Create(p.env, parts)
	case Apply:
		p.pipeline = pipeline.Apply(p.env, parts)
	case Delete, rollback:
		p.pipeline = pipeline.Delete(p.env)
	case InitOS:
		p.pipeline = pipeline.InitOS(p.env)
	default:
		return fmt.Errorf("there is no operation %q", p.request.Kind)
	}
	return nil
}

func (s *service) makePlan(ctx context.Context, p *prepared) error {
	if err := p.choose(); err != nil {
		return err
	}
	run := p.run("", 0)
	res, err := run.Check(ctx, p.pipeline)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if list := checkFailures(res.Failures); len(list) > 0 && !p.request.IgnoreErrors {
		return list
	}
	c := p.env.Cluster
	specText, err := specBytes(c)
	if err != nil {
		return err
	}
	pl := p.plan
	pl.Cluster, pl.Operation = c.Name, string(p.request.Kind)
	pl.SpecDigest, pl.Steps, pl.Spec = spec.Digest(c), res.Steps, specText
	if p.removes() {
		for _, h := range c.Spec.Hosts {
			pl.Removes = append(pl.Removes, "host "+h.Name+" and all that the cluster keeps on it")
		}
	} else if p.request.Kind != InitOS {
		if err := p.noteBundle(ctx); err != nil {
			return err
		}
	}
	return pl.Seal()
}

func (p *prepared) removes() bool {
	return p.request.Kind == Delete || p.request.Kind == rollback
}

// noteBundle says in the plan where the bundle comes from.
func (p *prepared) noteBundle(ctx context.Context) error {
	if b := p.bundle.opened.Load(); b != nil {
		from := "cached"
		if p.env.Cluster.Spec.Bundle != "" {
			from = p.env.Cluster.Spec.Bundle
		}
		p.plan.BundleDigest = b.Digest()
		p.plan.Bundle = &plan.BundleNote{Kubernetes: b.Manifest().Kubernetes, Source: from, SizeBytes: b.Size()}
		return nil
	}
	est, err := bundle.EstimateBuild(ctx, p.bundle.options())
	if err != nil {
		return err
	}
	p.plan.Bundle = &plan.BundleNote{Kubernetes: est.Kubernetes, Source: est.Source, SizeBytes: est.SizeBytes, Compile: est.Compile}
	return nil
}

// checkFailures are hosts that could not be checked, one line each.
func checkFailures(failures []engine.Failure) diag.List {
	var list diag.List
	for _, f := range failures {
		list = append(list, diag.Diagnostic{
			ID: idCheckFailed, Severity: diag.Error, Host: f.Host,
			Message: f.Title + ": " + f.Message, Hint: f.Remedy,
		})
	}
	return list
}

// PrepareSaved plans again for the cluster of a saved plan, and refuses if
// the outcome is another.
func (s *service) PrepareSaved(ctx context.Context, saved *plan.Plan, r Request, progress event.Sink) (Prepared, error) {
	c := &v1alpha1.Cluster{}
	if err := json.Unmarshal(saved.Spec, c); err != nil {
		return nil, fmt.Errorf("reading the cluster in the plan: %w", err)
	}
	recorded, err := s.record(c.Name)
	if err != nil {
		return nil, err
	}
	withPasswords(c, recorded)
	r.Kind, r.Cluster, r.Name = Kind(saved.Operation), c, c.Name
	switch r.Kind {
	case Delete:
		r.Cluster = nil
	case Create:
		r.Kind = Apply // which creates what was never created
	}
	p, err := s.prepare(ctx, &prepared{svc: s, request: r}, progress)
	if err != nil {
		return nil, err
	}
	if p.plan.Digest != saved.Digest {
		return nil, errors.Join(&StaleError{Difference: plan.Diff(saved, p.plan)}, p.Close())
	}
	return p, nil
}

// unfinished is the latest operation of a cluster, if it has not succeeded.
// Those that never began are passed over: they changed nothing.
func (s *service) unfinished(name string) (*v1alpha1.Operation, error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return nil, err
	}
	recorded, err := s.record(name)
	if err != nil {
		return nil, err
	}
	ops = slices.DeleteFunc(ops, func(o v1alpha1.Operation) bool {
		if o.Spec.Type == string(InitOS) && recorded != nil {
			return true // of the hosts, not of the cluster
		}
		// An operation that has not started may still have recorded the
		// cluster; then the status names it, or none yet.
		return o.Status.StartTime == nil && (recorded == nil || recorded.Status.Operation != o.Name && recorded.Status.Operation != "")
	})
	if len(ops) == 0 {
		return nil, fmt.Errorf("an operation of cluster %s: %w", name, ErrNotFound)
	}
	if ops[0].Status.Phase == v1alpha1.OperationSucceeded {
		return nil, refused(idNothingUnfinished, "the latest operation of cluster "+name+" has succeeded", "change the cluster with: slipway apply -f FILE")
	}
	return &ops[0], nil
}

// PrepareResume continues the latest unfinished operation.
func (s *service) PrepareResume(ctx context.Context, name string, r Request, progress event.Sink) (Prepared, error) {
	o, err := s.unfinished(name)
	if err != nil {
		return nil, err
	}
	done, err := s.onceDone(o.Name)
	if err != nil {
		return nil, err
	}
	recorded, err := s.record(name)
	if err != nil {
		return nil, err
	}
	if r.Cluster != nil {
		wanted := s.complete(r.Cluster, recorded)
		if err := spec.Absolute(wanted, spec.Paths{Dir: r.Dir, Home: s.Home}); err != nil {
			return nil, err
		}
		if recorded != nil && spec.Digest(recorded) != spec.Digest(wanted) {
			return nil, refused(idSpecChanged, "the file has changed since operation "+o.Name+" began; a resume would continue with the old one",
				"use the new one with: slipway apply -f FILE; or resume without -f")
		}
	}
	r.Kind, r.Name, r.Cluster = Kind(o.Spec.Type), name, nil
	if recorded == nil { // hosts that were prepared alone
		if r.Cluster, err = s.planned(o.Name); err != nil {
			return nil, err
		}
	}
	r.IgnoreChecks = append(r.IgnoreChecks, o.Spec.IgnoredChecks...)
	p, err := s.prepare(ctx, &prepared{svc: s, request: r, continues: o, done: done}, progress)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// onceDone are the steps of an operation that succeeded and shall not be
// repeated; the engine asks only for those that are declared so.
func (s *service) onceDone(id string) (map[string]bool, error) {
	done := map[string]bool{}
	err := s.Store.Read(id, func(e event.Event) error {
		if e.Type == event.StepFinished && e.Outcome == event.Changed {
			done[e.Task+"@"+e.Host] = true
		}
		return nil
	})
	return done, err
}

// doneBefore is onceDone over all operations of a cluster since the latest
// that succeeded or took something away: they are one attempt.
func (s *service) doneBefore(name string) (map[string]bool, error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, o := range ops {
		if o.Status.Phase == v1alpha1.OperationSucceeded || o.Spec.Type == string(Delete) || o.Spec.Type == rollback {
			break
		}
		done, err := s.onceDone(o.Name)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, done)
	}
	return all, nil
}

// PrepareRollback takes the latest unfinished operation back: a create by
// putting the hosts back as they were, an apply by applying what was before.
func (s *service) PrepareRollback(ctx context.Context, name string, r Request, progress event.Sink) (Prepared, error) {
	o, err := s.unfinished(name)
	if err != nil {
		return nil, err
	}
	switch Kind(o.Spec.Type) {
	case Create, rollback:
		r.Kind, r.Name, r.Cluster = rollback, name, nil
	case Apply:
		before, err := s.before(name)
		if err != nil {
			return nil, err
		}
		recorded, err := s.record(name)
		if err != nil {
			return nil, err
		}
		withPasswords(before, recorded)
		r.Kind, r.Name, r.Cluster = Apply, name, before
	default:
		return nil, refused(idNoWayBack, "operation "+o.Name+" ("+o.Spec.Type+") cannot be taken back", "finish it with: slipway resume "+name)
	}
	p, err := s.prepare(ctx, &prepared{svc: s, request: r}, progress)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// before is the description that the latest successful operation went by.
func (s *service) before(name string) (*v1alpha1.Cluster, error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		if o.Status.Phase != v1alpha1.OperationSucceeded || o.Spec.Type != string(Create) && o.Spec.Type != string(Apply) {
			continue
		}
		return s.planned(o.Name)
	}
	return nil, refused(idNoWayBack, "cluster "+name+" has no successful operation to go back to", "continue with: slipway resume "+name)
}

// planned is the description that an operation's plan was made for.
func (s *service) planned(operation string) (*v1alpha1.Cluster, error) {
	p, err := s.Store.Plan(operation)
	if err != nil {
		return nil, err
	}
	c := &v1alpha1.Cluster{}
	if err := json.Unmarshal(p.Spec, c); err != nil {
		return nil, fmt.Errorf("reading the plan of operation %s: %w", operation, err)
	}
	return c, nil
}

// withPasswords puts passwords that stand in the file itself, and so in no
// plan, back from the record.
func withPasswords(c, recorded *v1alpha1.Cluster) {
	if recorded == nil {
		return
	}
	c.Spec.SSH.Password = cmp.Or(c.Spec.SSH.Password, recorded.Spec.SSH.Password)
	known := map[string]string{}
	for _, h := range recorded.Spec.Hosts {
		known[h.Name] = h.SSH.Password
	}
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		h.SSH.Password = cmp.Or(h.SSH.Password, known[h.Name])
	}
}

// Precheck reports all findings of all hosts.
func (s *service) Precheck(ctx context.Context, r Request, progress event.Sink) (diag.List, error) {
	r.Kind = Apply
	wanted, _, err := s.subject(r)
	if err != nil {
		return nil, err
	}
	p := &prepared{svc: s, request: r}
	if p.env, err = s.environment(wanted); err != nil {
		return nil, err
	}
	p.request.Kind = Create
	err = s.connect(ctx, p, progress)
	var list diag.List
	if errors.As(err, &list) {
		err = nil // that is the answer
	}
	return p.findings, errors.Join(err, p.Close())
}
