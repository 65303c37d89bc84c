package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/diag/errorcode"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/bundlesource"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	addons "slipway.dev/slipway/internal/module/addon"
	"slipway.dev/slipway/internal/module/noderemoval"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/module/upgrade"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/p2p"
	"slipway.dev/slipway/internal/spec"
)

// prepared implements Prepared.
type prepared struct {
	svc     *Service
	kind    operation.Kind
	request sharedRequest
	name    string // of the cluster
	// behaviour is how operations of this kind are prepared.
	behaviour behaviour
	// nodes are the hosts that the request adds, removes, reboots or declares lost.
	nodes   []string
	env     module.Env
	hosts   []*engine.Host      // the hosts that take part
	content *p2p.Content        // what is sent to them
	addons  []addonsource.Addon // the add-ons of the cluster
	told    diag.List           // findings about the add-ons
	// keepAddons leaves the add-ons in the cluster unchanged, because they cannot be read.
	keepAddons bool
	lost       []HostFailure // hosts that do not take part, with IgnoreErrors
	unknown    []HostFailure // steps that could not be checked, with IgnoreErrors
	findings   diag.List
	pipeline   engine.Pipeline
	plan       *plan.Plan
	bundle     *bundlesource.Source
	// target is the description that an operation resumes or rolls back to; nil if the
	// request determines it.
	target *v1alpha1.Cluster
	// under has the locks of the failed operation whose settings this one rolls back
	// automatically; nil otherwise. The nodes that got the settings last come first.
	under *locks
	// way lists the versions of the upgrade path, with the add-ons of each.
	way []hop
	// returned are hosts that are no longer in the saved cluster and are reset.
	returned []module.LeavingHost
	// requested is the operation that is saved already, nil if this one becomes a new one.
	requested *v1alpha1.Operation
	// continues is the resumed operation, nil for a new one.
	continues *v1alpha1.Operation
	done      map[string]bool
	// onlyRecords saves the end of a resumed delete: the hosts are reset, and the cluster is removed.
	onlyRecords bool
	// touched are hosts that earlier attempts have changed, as described at that time.
	touched []v1alpha1.Host
	// placed are the hosts from before these attempts that still have their places in
	// the cluster.
	placed   []v1alpha1.Host
	recorded *v1alpha1.Cluster
	// seen are all nodes of the saved cluster, when they were last seen.
	seen []v1alpha1.NodeStatus
	// before is the description before a change of settings; nil if it is not known.
	before *v1alpha1.Cluster
	// reconnect is how long a lost connection to a host is dialled again, because the
	// operation restarts hosts; 0 means the usual time.
	reconnect   time.Duration
	connections hostconn.Notes // receives the notes about lost connections
	// queriesAll queries all hosts, whichever hosts change.
	queriesAll bool
	blobs      lateBlobs // what content serves
	// marks are files to look for on hosts, which may have lost them.
	marks []string
	// formerSigner is the manager's public key before it takes over the key of the
	// hosts; "" if it keeps its key.
	formerSigner string
}

var _ Prepared = (*prepared)(nil)

func (p *prepared) Plan() *plan.Plan        { return p.plan }
func (p *prepared) Findings() diag.List     { return p.findings }
func (p *prepared) Failures() []HostFailure { return slices.Concat(p.lost, p.unknown) }

// Close closes the connections.
func (p *prepared) Close() error {
	if p.content != nil && p.content.BytesSent() > 0 {
		p.svc.Log.Debug("content sent to hosts", "bytes", p.content.BytesSent())
		p.content = nil // logged once
	}
	return errors.Join(closeAll(p.hosts), p.bundle.Close(), p.behaviour.close())
}

// Prepare observes, checks and plans. The error is a diag.List for refused input (nothing
// was touched), *LockedError, or another. progress, which may be nil, receives events about
// connecting, checking and building the bundle.
func (s *Service) Prepare(ctx context.Context, r Request, progress event.Sink) (Prepared, error) {
	p, err := s.prepare(ctx, s.start(r), progress)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s *Service) prepare(ctx context.Context, p *prepared, progress event.Sink) (_ *prepared, err error) {
	p.request.IgnoreErrors = p.request.IgnoreErrors || p.request.forget && p.kind.RemovesCluster()
	wanted, err := p.subject(ctx)
	if err != nil {
		return nil, err
	}
	p.name = wanted.Name
	if err := p.behaviour.begin(ctx, p); err != nil {
		return nil, err
	}
	if p.kind.ChangesCluster() && p.continues == nil {
		if p.touched, p.placed, err = s.past.TouchedHosts(ctx, p.recorded); err != nil {
			return nil, err
		}
	}
	if p.env, err = s.bundles.Environment(ctx, wanted); err != nil {
		return nil, err
	}
	if p.env.Removal = p.request.removal; p.kind.ChangesCluster() {
		p.env.Leaving = append(p.leaving(wanted), p.returned...)
	}
	differs := p.fileDiffers(ctx, wanted)
	if len(differs) > 0 {
		p.request.Source = nil // the saved file differs
	}
	if err := p.behaviour.prepare(ctx, p, progress); err != nil {
		return nil, err
	}
	if err := p.load(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := s.connect(ctx, p, progress); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.findings = append(p.findings, differs...)
	if err := s.makePlan(ctx, p); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := p.behaviour.planned(p); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// connect connects to the hosts and checks them.
func (s *Service) connect(ctx context.Context, p *prepared, progress event.Sink) error {
	c, staying := p.asked()
	p.content = p2p.New(&p.blobs)
	hosts, found := s.observe(ctx, c, p, progress)
	p.hosts = hosts
	if ctx.Err() != nil {
		return context.Cause(ctx) // hosts are unreachable because of the cancellation then
	}
	complete(p.env.Cluster, hosts, found)
	p.content.SetHosts(addresses(hosts))
	p.bundle = s.bundles.NewSource(p.env, bundlesource.ArchitecturesOf(hosts))
	p.blobs.of = p.bundle
	options := precheck.Options{
		Level: p.kind.Precheck(), Ignore: p.request.IgnoreChecks, Recorded: p.recorded != nil, Upgrades: p.beginsUpgrade(),
	}
	var unfit diag.List // problems of the bundle are reported together with all others
	if p.kind.NeedsBundle() {
		if _, err := p.bundle.Have(ctx); err != nil && !errors.As(err, &unfit) {
			return err
		}
		options.Architectures = p.bundle.Architectures()
	}
	if savedstate.IsCreated(p.recorded) && (p.kind.ChangesCluster() || p.kind.NeedsCluster()) {
		p.env.Leader = findLeader(p.env.Cluster.Name, found[:staying])
	}
	p.env.SignsApart = slices.ContainsFunc(p.hosts, func(h *engine.Host) bool { return p.env.IsFirst(h) && module.SignsApart(h) })
	more, err := p.behaviour.findings(ctx, p, options, progress)
	if err != nil {
		return err
	}
	checks := hostChecks{p}
	p.findings = slices.Concat(p.told, p.behaviour.warnings(p), checks.findLeftBehindHosts(),
		checks.precheckHosts(c, found, staying, options), unfit, checks.refuseWithoutLeader(found[:staying]),
		checks.refuseWithoutEtcdData(found[:staying]), checks.notServing(ctx, found[:staying]), more, p.behaviour.hostFindings(p))
	if p.request.IgnoreErrors {
		if err := checks.dropLost(found[:staying]); err != nil {
			return err
		}
	} else {
		checks.offerRest(found[:staying])
	}
	if err := p.findings.Err(); err != nil {
		return cmp.Or(hostLocks{p}.refuseOtherManager(ctx), p.refuseDuringDelete(ctx), err)
	}
	if err := errors.Join(p.behaviour.observe(ctx, p), p.findSigner(ctx)); err != nil {
		return err
	}
	p.plan = &plan.Plan{FactsDigest: facts.DigestOf(found)}
	return nil
}

// reasonToDrop returns the reason why a host does not take part, nil if there is none: it
// could not be queried, or its removal has begun, or, with --forget, it has any other
// error.
func (p hostChecks) reasonToDrop(host string, err error) *event.Failure {
	var re *remote.Error
	switch {
	case errors.As(err, &re):
		return &event.Failure{
			Reason: string(re.Reason), Code: errorcode.Of(string(re.Reason), err), Message: re.Cause, Remedy: re.Remedy,
		}
	case err != nil:
		return explainFailure(err)
	}
	i := slices.IndexFunc(p.findings, func(d diag.Diagnostic) bool {
		return d.Host == host && d.Severity == diag.Error && (p.request.forget || d.ID == idHostLeaves)
	})
	if i < 0 {
		return nil
	}
	f := p.findings[i]
	return &event.Failure{Reason: f.ID, Code: errorcode.Of(f.ID, nil), Message: f.Message, Remedy: f.Hint}
}

// hostsLeftOut returns the hosts of the description that do not take part.
func (p *prepared) hostsLeftOut() []v1alpha1.Host {
	return slices.DeleteFunc(slices.Clone(p.env.Cluster.Spec.Hosts), func(h v1alpha1.Host) bool {
		return slices.ContainsFunc(p.hosts, func(part *engine.Host) bool { return part.Name == h.Name })
	})
}

// choosePipeline picks the pipeline.
func (p *prepared) choosePipeline(ctx context.Context) (err error) {
	p.env.Absent = p.hostsLeftOut()
	parts := pipeline.Parts{Bundle: p.bundle, State: savedstate.ModuleState{Records: p.svc.Records}, Owner: "slipway", Addons: p.addons}
	p.pipeline, err = p.behaviour.pipeline(ctx, p, parts)
	p.pipeline.Kind = string(p.kind)
	return err
}

func (s *Service) makePlan(ctx context.Context, p *prepared) error {
	if err := p.choosePipeline(ctx); err != nil {
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
	if err := p.refuseUnchecked(res.Failures); err != nil {
		return err
	}
	c := p.svc.withoutFilesDir(p.env.Cluster)
	specText, err := specBytes(c)
	if err != nil {
		return err
	}
	pl := p.plan
	if object := p.svc.Object; object != nil {
		pl.ClusterUID, pl.Files = string(object.ID.UID), object.FileDigests
	}
	pl.Cluster, pl.Operation = c.Name, string(p.kind)
	pl.SpecDigest, pl.Steps, pl.Spec = spec.DigestOf(c), res.Steps, specText
	pl.Removes = slices.Concat(p.losses(), p.behaviour.losses(p), addons.ListDataLoss(res.Steps))
	if p.kind.RemovesCluster() {
		pl.Removes = p.describeRemovals()
	} else if p.kind.NeedsBundle() {
		if err := p.noteBundle(ctx); err != nil {
			return err
		}
	}
	return pl.Seal()
}

// describeRemovals describes, for users, the data that is lost: the cluster data on the hosts,
// and, if all hosts were queried and have none, the saved state.
func (p *prepared) describeRemovals() (out []string) {
	for _, h := range p.env.Cluster.Spec.Hosts {
		if slices.ContainsFunc(p.plan.Steps, func(s plan.Step) bool { return s.Host == h.Name }) {
			out = append(out, "host "+h.Name+" and all cluster data on it")
		}
	}
	if p.request.forget {
		for _, f := range p.lost {
			out = append(out, "the saved state of host "+f.Host+"; all cluster data remains on the host: "+f.Message)
		}
	}
	if len(out) == 0 && len(p.Failures()) == 0 {
		out = append(out, "the saved state of cluster "+p.env.Cluster.Name+" and its kubeconfig: its hosts have no cluster data")
	}
	return out
}

// noteBundle adds the source of the bundle to the plan.
func (p *prepared) noteBundle(ctx context.Context) error {
	if b := p.bundle.OpenedBundle(); b != nil {
		from := "cached"
		if p.env.Cluster.Spec.Bundle != "" {
			from = p.env.Cluster.Spec.Bundle
		}
		p.plan.BundleDigest = b.Digest()
		p.plan.Bundle = &plan.BundleNote{Kubernetes: b.Manifest().Kubernetes, Source: from, SizeBytes: b.Size()}
		return nil
	}
	est, err := bundle.EstimateBuild(ctx, p.bundle.BuildOptions())
	if err != nil {
		return err
	}
	p.plan.Bundle = &plan.BundleNote{Kubernetes: est.Kubernetes, Source: est.Source, SizeBytes: est.SizeBytes, Compile: est.Compile}
	return nil
}

// refuseUnchecked refuses a plan if steps could not be checked, with one line for each. With
// IgnoreErrors, these are warnings and count as failures of their hosts.
func (p *prepared) refuseUnchecked(failures []engine.Failure) error {
	var list diag.List
	for _, f := range failures {
		d := diag.Diagnostic{ID: idCheckFailed, Severity: diag.Error, Host: f.Host, Message: f.Title + ": " + f.Message}
		if slices.Contains([]string{
			op.IDLedgerLost, op.IDEtcdQuorum, op.IDEtcdUnhealthy, op.IDEtcdMoved,
			op.IDAuthorityNoKey, op.IDAuthorityExpired, op.IDCertificateForeign, module.IDDrainBlocked, upgrade.IDUnready,
			idEncryptionAlone, idEncryptionLost, spec.IDEncryptionForeign, noderemoval.IDOtherName,
			noderemoval.IDNodeRuns, noderemoval.IDHostRuns,
		}, f.Reason) {
			d.ID = f.Reason
		}
		d.Hint = cmp.Or(f.Remedy, "fix the cause, or continue with the other hosts: --ignore-errors")
		// Without a quorum no other host could continue. And if the other hosts
		// continued, a running host could lose something, such as its etcd member.
		if p.continuesOnFailure() && f.Reason != op.IDEtcdQuorum && f.Reason != noderemoval.IDHostRuns {
			d.Severity = diag.Warning
			p.unknown = append(p.unknown, HostFailure{Host: f.Host, Task: f.Task, Title: f.Title, Failure: f.Failure})
			p.findings = append(p.findings, d)
		}
		list = append(list, d)
	}
	return list.Err()
}

// Savable refuses a plan that would lack passwords: plans contain none, and the saved
// state has only the passwords of the existing cluster.
func (p *prepared) Savable() error {
	later := spec.RedactCluster(p.env.Cluster)
	savedstate.CopyPasswords(later, p.recorded)
	if savedstate.HaveSameSpec(later, p.env.Cluster) {
		return nil
	}
	return diag.Refuse(idPlanNoPassword,
		"the plan does not contain the passwords of the file, and they are not in the saved state: applied later, the plan could not log in",
		"use passwordFrom instead of password, or apply the file itself: slipway apply -f FILE")
}

// PrepareSaved plans again for the cluster of a saved plan. It returns a *StaleError with
// the difference if the plan would have another effect now.
func (s *Service) PrepareSaved(ctx context.Context, saved *plan.Plan, o ApplyOptions, progress event.Sink) (Prepared, error) {
	c, err := records.ClusterOfPlan(saved)
	if err != nil {
		return nil, diag.Refuse(idPlanChanged, "the plan is damaged: "+err.Error(), "copy the plan again, or make a new plan")
	}
	recorded, err := s.Saved(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	savedstate.CopyPasswords(c, recorded)
	subject := Subject{Cluster: c, Name: c.Name, Dir: s.object().FilesDir}
	p := &prepared{svc: s, request: ApplyRequest{Subject: subject, ApplyOptions: o}.shared()}
	if recorded != nil && !savedstate.HaveSameSpec(c, recorded) {
		p.request.Source = []byte{} // the saved file differs
	}
	kind := operation.Kind(saved.Operation)
	switch {
	case kind.RemovesCluster():
		p.request.Cluster = nil
	case kind.CreatesCluster():
		kind = operation.Apply // Apply creates a cluster that was never created
	}
	if err := p.become(kind); err != nil {
		return nil, err
	}
	p, err = s.prepare(ctx, p, progress)
	if err != nil {
		return nil, err
	}
	if p.plan.Digest != saved.Digest {
		return nil, errors.Join(&StaleError{Difference: plan.Diff(saved, p.plan)}, p.Close())
	}
	return p, nil
}

// Precheck observes the hosts and returns all findings of all hosts; for an upgrade, also everything that
// could obstruct the upgrade.
func (s *Service) Precheck(ctx context.Context, r Request, progress event.Sink) (diag.List, error) {
	p := s.start(r)
	if !p.kind.ChangesVersion() {
		if err := p.become(operation.Apply); err != nil {
			return nil, err
		}
	}
	wanted, err := p.subject(ctx)
	if err != nil {
		return nil, err
	}
	if p.env, err = s.bundles.Environment(ctx, wanted); err != nil {
		return nil, err
	}
	switch {
	case p.kind.ChangesVersion():
	case savedstate.IsCreated(p.recorded):
		p.env.Leaving = p.leaving(wanted)
	default:
		if err := p.become(p.kind.OnNewCluster()); err != nil {
			return nil, err
		}
	}
	if err := p.load(ctx); err != nil {
		return nil, err
	}
	err = s.connect(ctx, p, progress)
	var list diag.List
	if errors.As(err, &list) {
		err = nil // the findings are the result
		if p.findings.Err() == nil {
			p.findings = append(p.findings, list...)
		}
	}
	return p.findings, errors.Join(err, p.Close())
}
