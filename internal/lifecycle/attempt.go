package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/noderemoval"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

// unfinished returns the latest operation of a cluster if it has not succeeded.
// It skips operations that never began: they changed nothing.
func (s *service) unfinished(name string) (*v1alpha1.Operation, error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return nil, err
	}
	recorded, err := s.record(name)
	if err != nil {
		return nil, err
	}
	message, hint := "the latest operation of cluster "+name+" succeeded", "change the cluster with: slipway apply -f FILE"
	if far, onward, ok := between(ops, recorded); ok {
		message, hint = far, onward
	}
	if len(ops) > 0 && ops[0].Status.Phase != v1alpha1.OperationSucceeded {
		switch Kind(ops[0].Spec.Type) {
		case InitOS:
			hint = "prepare the hosts again: slipway init os -f FILE"
		case InitRegistry:
			hint = "create the registry again: slipway init registry -f FILE"
		}
	}
	if cut := exchanges(ops); len(cut) > 0 {
		hint = "continue the interrupted rotation: slipway certs rotate-ca " + name + " --which " +
			strings.Join(slices.Sorted(maps.Keys(cut[0].Spec.Rotates)), ",")
	}
	ops = slices.DeleteFunc(ops, func(o v1alpha1.Operation) bool {
		if alone(Kind(o.Spec.Type)) && recorded != nil {
			return true // it concerns hosts or etcd, not the cluster
		}
		if k := Kind(o.Spec.Type); beside(k) && !alone(k) && o.Status.Phase == v1alpha1.OperationSucceeded {
			return true // it did not finish an earlier operation
		}
		// An operation that has not started may still have recorded the
		// cluster; then the status names it, or none yet.
		return o.Status.StartTime == nil && (recorded == nil || recorded.Status.Operation != o.Name && recorded.Status.Operation != "")
	})
	if len(ops) == 0 {
		return nil, fmt.Errorf("an operation of cluster %s: %w", name, ErrNotFound)
	}
	if ops[0].Status.Phase == v1alpha1.OperationSucceeded {
		return nil, refused(idNothingUnfinished, message, hint)
	}
	if kind := ops[0].Spec.Type; !isKind(Kind(kind)) {
		return nil, refused(idUnknownOperation,
			fmt.Sprintf("operation %s has a kind that this version of slipway does not know: %q", ops[0].Name, kind),
			"resume the operation with the version of slipway that started the operation")
	}
	return &ops[0], nil
}

// PrepareResume prepares to resume the latest unfinished operation.
func (s *service) PrepareResume(ctx context.Context, name string, r Request, progress event.Sink) (Prepared, error) {
	o, err := s.unfinished(name)
	if err != nil {
		return nil, err
	}
	done, _, err := s.steps(o.Name)
	if err != nil {
		return nil, err
	}
	recorded, err := s.record(name)
	if err != nil {
		return nil, err
	}
	wanted := recorded
	kind := Kind(o.Spec.Type)
	if recorded == nil || changesHosts(kind) { // otherwise hosts were only prepared or forgotten
		if wanted, err = s.planned(o.Name); err != nil {
			return nil, err
		}
	}
	switch {
	case recorded == nil:
		withPasswords(wanted, r.Cluster)
	case changesHosts(kind):
		wanted = goesOn(recorded, wanted)
		r.goesOn = wanted
	}
	changed, err := s.fileChanged(o, wanted, r)
	if err != nil {
		return nil, err
	}
	r.Kind, r.Name, r.Cluster = kind, name, nil
	if recorded == nil {
		r.Cluster = wanted
	}
	if aheadOf(wanted, o) {
		r.Source = nil
	}
	r.Nodes, r.Forget = o.Spec.Nodes, r.Forget || o.Spec.Forget
	r.Renew = Renewal{All: o.Spec.AllCertificates, Within: o.Spec.Within.Duration, Names: o.Spec.Certificates}
	r.rotates = o.Spec.Rotates
	r.Backup, r.Identity, r.restores = o.Spec.Backup, cmp.Or(r.Identity, o.Spec.Identity), o.Spec.Restores
	r.restoresVerified = o.Spec.Verified
	r.SetTrust = SetTrust{SignedBy: o.Spec.SignedBy, Unverified: o.Spec.Unverified, WithKeys: o.Spec.WithKeys}
	r.Removal.Force, r.KeepFailed = r.Removal.Force || o.Spec.Force, r.KeepFailed || o.Spec.KeepFailed
	r.Removal.DrainTimeout = cmp.Or(r.Removal.DrainTimeout, o.Spec.DrainTimeout.Duration)
	r.Rollout.MaxUnavailable = cmp.Or(r.Rollout.MaxUnavailable, o.Spec.MaxUnavailable)
	r.Version = o.Spec.Version
	r.IgnoreChecks = append(r.IgnoreChecks, o.Spec.IgnoredChecks...)
	p, err := s.prepare(ctx, &prepared{svc: s, request: r, continues: o, done: done}, progress)
	if err != nil {
		return nil, err
	}
	p.findings = append(p.findings, changed...)
	return p, nil
}

// fileChanged compares the description that a resume continues with to the cluster
// file. If a file is given, a difference is an error. Otherwise it compares with the
// file that the saved cluster was made from, if that exists, and a difference is a
// warning. It compares nothing if the operation removes the cluster or is about
// certificates.
func (s *service) fileChanged(o *v1alpha1.Operation, goesOn *v1alpha1.Cluster, r Request) (diag.List, error) {
	if kind := Kind(o.Spec.Type); kind == Delete || kind == rollback || aboutCertificates(kind) {
		return nil, nil
	}
	d := diag.Diagnostic{ID: idSpecChanged, Severity: diag.Error}
	if r.Cluster != nil {
		same, err := s.describes(asOf(goesOn, o, r.Cluster), r.Dir, goesOn)
		if same || err != nil {
			return nil, err
		}
		d.Message = "the file has changed since operation " + o.Name + " began; a resume would use the old version"
		d.Hint = "apply the new version: slipway apply -f " + cmp.Or(r.File, "FILE")
		return nil, diag.List{d}
	}
	source, err := s.Store.Source(goesOn.Name)
	if errors.Is(err, store.ErrNotFound) || err == nil && source.Path == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Reading a pipe or a terminal would block.
	if info, err := os.Stat(source.Path); err != nil || !info.Mode().IsRegular() {
		return nil, nil // a file that was moved away proves nothing
	}
	text, err := bounded.ReadFile(source.Path, bounded.Config)
	if err != nil || bytes.Equal(text, source.Text) {
		return nil, nil
	}
	loaded, err := reader(goesOn).Load(source.Path, text)
	if err == nil {
		same, err := s.describes(asOf(goesOn, o, loaded.Cluster), filepath.Dir(source.Path), goesOn)
		if same || err != nil || loaded.Cluster.Name != goesOn.Name {
			return nil, err
		}
	}
	d.Severity, d.Message = diag.Warning, source.Path+" has changed since operation "+o.Name+" began; this resume uses the old version"
	d.Hint = "to apply the new version instead: slipway apply -f " + source.Path
	return diag.List{d}, nil
}

// describes reports whether a cluster from a file in dir equals the saved one.
func (s *service) describes(c *v1alpha1.Cluster, dir string, recorded *v1alpha1.Cluster) (bool, error) {
	wanted := s.asRecorded(c, recorded)
	if err := spec.Absolute(wanted, spec.Paths{Dir: dir, Home: s.Home}); err != nil {
		return false, err
	}
	return same(wanted, recorded), nil
}

// steps returns two sets of steps of an operation. done has the steps that succeeded
// and must not be repeated; the engine uses it only for steps that are declared so.
// begun has the steps that may have changed something. A step that failed or was killed
// may have done all its work: if a later attempt finds nothing to do, the step may
// still have changed something earlier.
func (s *service) steps(id string) (done, begun map[string]bool, err error) {
	done, begun = map[string]bool{}, map[string]bool{}
	before := map[string]bool{} // begun in earlier attempts
	err = s.Store.Read(id, func(e event.Event) error {
		step := e.Task + "@" + e.Host
		switch {
		case e.Type == event.OperationStarted:
			before = maps.Clone(begun)
		case e.Type == event.StepStarted:
			begun[step] = true
		case e.Type == event.StepFinished && e.Outcome == event.Changed:
			done[step], begun[step] = true, true
		case e.Type == event.StepFinished && (e.Outcome == event.Unchanged && !before[step] || refusesPlace(e)) && !done[step]:
			delete(begun, step)
		}
		return nil
	})
	return done, begun, err
}

// refusesPlace reports whether a step failed because the machine to be replaced is
// running: that machine keeps its place in the cluster.
func refusesPlace(e event.Event) bool {
	return e.Outcome == event.Failed && e.Failure != nil && e.Failure.Reason == noderemoval.IDNodeRuns
}

// doneBefore returns what was done by all operations of a cluster since the latest one
// that succeeded: together they are one attempt. Steps from before a delete or a
// rollback do not count as done.
func (s *service) doneBefore(name string) (a attempts, err error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return a, err
	}
	a.done, a.begun = map[string]bool{}, map[string]bool{}
	again := false // at least a part of the earlier work was removed later
	for _, o := range ops {
		if beside(Kind(o.Spec.Type)) {
			continue // it concerns hosts, etcd data or certificates, not the cluster's description
		}
		if o.Status.Phase == v1alpha1.OperationSucceeded {
			break
		}
		if o.Spec.Type == string(Delete) || o.Spec.Type == rollback {
			again = true
			continue
		}
		steps, begun, err := s.steps(o.Name)
		if err != nil {
			return a, err
		}
		hosts, err := s.changed(o.Name, begun)
		if err != nil {
			return a, err
		}
		a.any, a.touched = true, append(a.touched, hosts...)
		maps.Copy(a.begun, begun)
		if !again {
			maps.Copy(a.done, steps)
		}
	}
	return a, nil
}

// attempts has the steps that were done since the latest successful operation.
type attempts struct {
	any     bool            // there is such an operation
	done    map[string]bool // see steps
	begun   map[string]bool
	touched []v1alpha1.Host // the changed hosts, as described at that time
}

// vacated reports whether the place of a host in the cluster may have been given to
// another machine: another machine began to join, or the removal of the host began.
func (a attempts) vacated(h v1alpha1.Host) bool {
	votes := spec.HasRole(h, v1alpha1.RoleControlPlane) || spec.HasRole(h, v1alpha1.RoleEtcd)
	for step := range a.begun {
		task, host, _ := strings.Cut(step, "@")
		own := host == h.Name && (strings.HasPrefix(task, "leave.") || strings.HasPrefix(task, "join."))
		if own || votes && (task == "leave.member" || strings.HasSuffix(task, ".make-room")) {
			return true
		}
	}
	return false
}

// changed returns the hosts that an operation keeps in the cluster and on which it has
// begun steps.
func (s *service) changed(operation string, steps map[string]bool) (hosts []v1alpha1.Host, err error) {
	if len(steps) == 0 {
		return nil, nil
	}
	c, err := s.planned(operation)
	if err != nil {
		return nil, err
	}
	for step := range steps {
		_, name, _ := strings.Cut(step, "@")
		at := find(c.Spec.Hosts, name)
		if at >= 0 && find(hosts, name) < 0 {
			hosts = append(hosts, c.Spec.Hosts[at])
		}
	}
	return hosts, nil
}

// among reports whether one of the hosts has the same address as h, whatever their names.
func among(hosts []v1alpha1.Host, h v1alpha1.Host) bool {
	return slices.ContainsFunc(hosts, func(o v1alpha1.Host) bool {
		return o.Address == h.Address && o.SSH.Port == h.SSH.Port || o.InternalAddress != "" && o.InternalAddress == h.InternalAddress
	})
}

// touchedSince returns the hosts of an existing cluster that were changed since its
// latest successful operation, without the hosts that were in the cluster then, which
// another machine may replace. placed lists the hosts that still have their places.
func (s *service) touchedSince(recorded *v1alpha1.Cluster) (touched, placed []v1alpha1.Host, err error) {
	a, err := s.doneBefore(recorded.Name)
	if !a.any || err != nil {
		return nil, nil, err
	}
	before, err := s.before(recorded.Name)
	if err != nil {
		return nil, nil, err
	}
	touched = slices.DeleteFunc(a.touched, func(h v1alpha1.Host) bool {
		return among(before.Spec.Hosts, h) || slices.ContainsFunc(recorded.Status.Nodes, func(n v1alpha1.NodeStatus) bool {
			return n.Name == h.Name && n.InternalIP == module.InternalAddress(h) && n.Version != ""
		})
	})
	return touched, slices.DeleteFunc(slices.Clone(before.Spec.Hosts), a.vacated), nil
}

// takesBack reports whether a host shall again be the machine that it was, and no other
// machine has taken its place.
func (p *prepared) takesBack(name string) bool {
	was, is := find(p.placed, name), find(p.env.Cluster.Spec.Hosts, name)
	return was >= 0 && is >= 0 && among(p.placed[was:was+1], p.env.Cluster.Spec.Hosts[is])
}

// leftBehind returns findings about hosts that an earlier attempt has changed and that
// the description no longer contains: nothing would reset them. In an existing cluster,
// a host whose name is missing is not reported, because it leaves the cluster in the
// usual way. If the previous machine still has its place, the finding is only a
// warning, so that you can return to that machine.
func (p *prepared) leftBehind() (list diag.List) {
	if p.recorded == nil {
		return nil
	}
	for _, was := range p.recorded.Spec.Hosts {
		if !among(p.touched, was) || among(p.env.Cluster.Spec.Hosts, was) {
			continue
		}
		d := diag.Diagnostic{
			ID: idHostLeft, Severity: diag.Error, Host: was.Name,
			Message: was.Address + " is no longer in the file, but has files of an earlier attempt",
			Hint:    "roll back that attempt first: slipway rollback " + p.recorded.Name,
		}
		if changesHosts(p.request.Kind) {
			if find(p.env.Cluster.Spec.Hosts, was.Name) < 0 {
				continue
			}
			d.Message = was.Address + " is no longer " + was.Name + ", but has files of an earlier attempt"
			if spec.HasRole(was, v1alpha1.RoleControlPlane) {
				d.Message += ", perhaps the keys of the cluster's CAs"
			}
			d.Hint = "remove the old host first, then add the other host; " +
				"to remove it (with --forget if it is permanently lost): slipway delete node " + was.Name
			if p.takesBack(was.Name) {
				d.Severity, d.Hint = diag.Warning, "reset the host after this operation: slipway delete node --host "+login(was)
			}
		}
		list = append(list, d)
	}
	return list
}

// login returns the user and address of a host in the form of --host.
func login(h v1alpha1.Host) string {
	if h.SSH.User == "" {
		return h.Address
	}
	return h.SSH.User + "@" + h.Address
}

// PrepareRollback prepares to roll back the latest unfinished operation: a create by
// resetting the hosts, an apply by applying the previous description, an upgrade by
// reversing its steps.
func (s *service) PrepareRollback(ctx context.Context, name string, r Request, progress event.Sink) (Prepared, error) {
	o, err := s.unfinished(name)
	if err != nil {
		return nil, s.past(name, err)
	}
	switch Kind(o.Spec.Type) {
	case Create, rollback:
		r.Kind, r.Name, r.Cluster = rollback, name, nil
	case Upgrade, Revert:
		if err := s.hasRetired(o); err != nil {
			return nil, err
		}
		if err := s.reverts(&r, o); err != nil {
			return nil, err
		}
	case Apply, Add, Remove:
		before, err := s.before(name)
		if err != nil {
			return nil, err
		}
		recorded, err := s.record(name)
		if err != nil {
			return nil, err
		}
		withPasswords(before, recorded)
		reachedAs(before, recorded)
		// Hosts that were to be added are removed, and the other way round.
		back := map[Kind]Kind{Apply: Apply, Add: Remove, Remove: Add}
		r.Kind, r.Name, r.Nodes = back[Kind(o.Spec.Type)], name, o.Spec.Nodes
		if r.Kind == Apply {
			r.Cluster = before
		} else {
			r.goesOn = before
		}
		if r.Source, err = s.sourceBefore(name); err != nil {
			return nil, err
		}
	default:
		return nil, refused(idNoWayBack, "operation "+o.Name+" ("+o.Spec.Type+") cannot be rolled back",
			"finish the operation: slipway resume "+name)
	}
	p, err := s.prepare(ctx, &prepared{svc: s, request: r}, progress)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// sourceBefore returns the previous cluster file, or empty text if it is not known: the
// saved file belongs to the operation that is rolled back.
func (s *service) sourceBefore(name string) ([]byte, error) {
	text, err := s.Store.KeptSource(name)
	if errors.Is(err, store.ErrNotFound) {
		return []byte{}, nil
	}
	return text, err
}

// before returns the description of the latest successful operation; if there is none,
// the description of the creation. Hosts that were force-removed since then are left out.
func (s *service) before(name string) (*v1alpha1.Cluster, error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, o := range ops {
		switch {
		case gaveUp(o):
			lost = append(lost, o.Spec.Nodes...)
		case o.Spec.Type == string(Create), changesHosts(Kind(o.Spec.Type)) && o.Status.Phase == v1alpha1.OperationSucceeded:
			return s.plannedFor(o.Name, lost)
		}
	}
	return nil, refused(idNoWayBack, "cluster "+name+" has no successful operation to roll back to", "continue with: slipway resume "+name)
}

// planned returns the cluster description of an operation's plan.
func (s *service) planned(operation string) (*v1alpha1.Cluster, error) {
	c, err := s.Store.Planned(operation)
	if err != nil {
		return nil, err
	}
	spec.Canonical(c) // in the form of the descriptions that it is compared with
	return c, nil
}

// plannedFor returns the same without the hosts that were force-removed since then.
func (s *service) plannedFor(operation string, lost []string) (*v1alpha1.Cluster, error) {
	c, err := s.planned(operation)
	if err == nil {
		spec.TakeOff(c, lost...)
	}
	return c, err
}

// gaveUp reports whether an operation removed lost hosts while another operation was
// unfinished. The rest of the cluster's description belongs to that other operation.
func gaveUp(o v1alpha1.Operation) bool {
	return Kind(o.Spec.Type) == Lose && o.Status.Phase == v1alpha1.OperationSucceeded
}

// withPasswords copies the passwords that are written in the cluster file itself from the
// saved cluster, because plans do not contain passwords.
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
