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
	"slipway.dev/slipway/internal/module/leave"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

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
	message, hint := "the latest operation of cluster "+name+" has succeeded", "change the cluster with: slipway apply -f FILE"
	if far, onward, ok := between(ops, recorded); ok {
		message, hint = far, onward
	}
	if len(ops) > 0 && ops[0].Status.Phase != v1alpha1.OperationSucceeded {
		switch Kind(ops[0].Spec.Type) {
		case InitOS:
			hint = "prepare the hosts with: slipway init os -f FILE"
		case InitRegistry:
			hint = "make the registry with: slipway init registry -f FILE"
		}
	}
	if cut := exchanges(ops); len(cut) > 0 {
		hint = "go on with the exchange that was cut off: slipway certs rotate-ca " + name + " --which " + strings.Join(slices.Sorted(maps.Keys(cut[0].Spec.Rotates)), ",")
	}
	ops = slices.DeleteFunc(ops, func(o v1alpha1.Operation) bool {
		if alone(Kind(o.Spec.Type)) && recorded != nil {
			return true // of the hosts, or of etcd, not of the cluster
		}
		if k := Kind(o.Spec.Type); beside(k) && !alone(k) && o.Status.Phase == v1alpha1.OperationSucceeded {
			return true // what was unfinished before it still is
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
		return nil, refused(idUnknownOperation, fmt.Sprintf("operation %s is one of a kind that this version does not know, %q", ops[0].Name, kind),
			"go on with the version of slipway that began it")
	}
	return &ops[0], nil
}

// PrepareResume continues the latest unfinished operation.
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
	if recorded == nil || changesHosts(kind) { // else hosts that were prepared alone, or forgotten
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

// fileChanged compares what a resume goes on with to the file: the one that is
// given, which is refused if it says something else; else the one that the
// record was made from, if it is still there, of which it is told. What takes
// a cluster away asks no file.
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
		d.Message = "the file has changed since operation " + o.Name + " began; a resume would go on with the old one"
		d.Hint = "use the new one with: slipway apply -f " + cmp.Or(r.File, "FILE") + "; or resume without -f"
		return nil, diag.List{d}
	}
	source, err := s.Store.Source(goesOn.Name)
	if errors.Is(err, store.ErrNotFound) || err == nil && source.Path == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// A pipe or a terminal would be waited for.
	if info, err := os.Stat(source.Path); err != nil || !info.Mode().IsRegular() {
		return nil, nil // what was moved away says nothing
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
	d.Severity, d.Message = diag.Warning, source.Path+" has changed since operation "+o.Name+" began; this goes on with what it was then"
	d.Hint = "use the file as it is now with: slipway apply -f " + source.Path
	return diag.List{d}, nil
}

// describes says whether a cluster from a file in dir is what is recorded.
func (s *service) describes(c *v1alpha1.Cluster, dir string, recorded *v1alpha1.Cluster) (bool, error) {
	wanted := s.asRecorded(c, recorded)
	if err := spec.Absolute(wanted, spec.Paths{Dir: dir, Home: s.Home}); err != nil {
		return false, err
	}
	return same(wanted, recorded), nil
}

// steps are those of an operation that succeeded and shall not be repeated (the
// engine asks only for those that are declared so), and those that have begun
// and may have changed something: one that failed or was killed may have done
// a part, or all of it: that an attempt finds nothing left to do there is not
// to say that nothing was done.
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

// refusesPlace says that a machine was found to run whose place another was to
// take: that one stays in it.
func refusesPlace(e event.Event) bool {
	return e.Outcome == event.Failed && e.Failure != nil && e.Failure.Reason == leave.IDNodeRuns
}

// doneBefore is what is done over all operations of a cluster since the latest
// that succeeded or took something away: they are one attempt.
func (s *service) doneBefore(name string) (a attempts, err error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return a, err
	}
	a.done, a.begun = map[string]bool{}, map[string]bool{}
	again := false // what was done was taken away since, at least in part
	for _, o := range ops {
		if beside(Kind(o.Spec.Type)) {
			continue // of the hosts, of etcd's data, of certificates: not of what becomes of the cluster
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

// attempts is what was done since the latest operation that succeeded.
type attempts struct {
	any     bool            // there is such a one
	done    map[string]bool // see steps
	begun   map[string]bool
	touched []v1alpha1.Host // those that were changed, as they were described then
}

// vacated says that the place of a host in the cluster was perhaps given to
// another machine: that one began to join, or the host began to be taken out of
// the cluster.
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

// changed are the hosts that an operation was to leave in the cluster, and on
// which it has begun steps.
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

// among says that one of the hosts is where another is, whatever their names.
func among(hosts []v1alpha1.Host, h v1alpha1.Host) bool {
	return slices.ContainsFunc(hosts, func(o v1alpha1.Host) bool {
		return o.Address == h.Address && o.SSH.Port == h.SSH.Port || o.InternalAddress != "" && o.InternalAddress == h.InternalAddress
	})
}

// touchedSince are the hosts of a cluster that exists which were changed since it
// was as wanted, without those that were in it then: another machine may replace
// these. Those that still have their places are told, too.
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

// takesBack says that a host is to be the machine again that it was, and that
// no other has taken the place of.
func (p *prepared) takesBack(name string) bool {
	was, is := find(p.placed, name), find(p.env.Cluster.Spec.Hosts, name)
	return was >= 0 && is >= 0 && among(p.placed[was:was+1], p.env.Cluster.Spec.Hosts[is])
}

// leftBehind are hosts that an attempt at creating or changing the cluster has
// changed and that are missing from the description now: nobody would put them
// back. Of a cluster that exists, one that is missing by its name leaves; and one
// that was to take a place which its machine still has keeps nobody from going
// back to that.
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
			Message: was.Address + " is not in the file any more, and has on it what an earlier attempt put there",
			Hint:    "take that back first: slipway rollback " + p.recorded.Name + "; or leave the host in the file",
		}
		if changesHosts(p.request.Kind) {
			if find(p.env.Cluster.Spec.Hosts, was.Name) < 0 {
				continue
			}
			d.Message = was.Address + " is not " + was.Name + " any more, and has on it what an earlier attempt put there"
			if spec.HasRole(was, v1alpha1.RoleControlPlane) {
				d.Message += ", perhaps the keys of the cluster's authorities"
			}
			d.Hint = "take it off first: slipway delete node " + was.Name + " (--forget if it is gone for good); then add the other one"
			if p.takesBack(was.Name) {
				d.Severity, d.Hint = diag.Warning, "put it back as it was, after this: slipway delete node --host "+login(was)
			}
		}
		list = append(list, d)
	}
	return list
}

// login is where a host is logged in to, as flags have it.
func login(h v1alpha1.Host) string {
	if h.SSH.User == "" {
		return h.Address
	}
	return h.SSH.User + "@" + h.Address
}

// PrepareRollback takes the latest unfinished operation back: a create by
// putting the hosts back as they were, an apply by applying what was before, an
// upgrade by the way it came.
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
		// Hosts that were to come go, and the other way round.
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
		return nil, refused(idNoWayBack, "operation "+o.Name+" ("+o.Spec.Type+") cannot be taken back", "finish it with: slipway resume "+name)
	}
	p, err := s.prepare(ctx, &prepared{svc: s, request: r}, progress)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// sourceBefore is the file of what was before; none, if it is not known: what is
// there belongs to what is taken back.
func (s *service) sourceBefore(name string) ([]byte, error) {
	text, err := s.Store.KeptSource(name)
	if errors.Is(err, store.ErrNotFound) {
		return []byte{}, nil
	}
	return text, err
}

// before is the description that the latest successful operation went by; of a
// cluster that none has made whole, that of the creation by which it came to
// run. Hosts that were given up since are not in it.
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
	return nil, refused(idNoWayBack, "cluster "+name+" has no successful operation to go back to", "continue with: slipway resume "+name)
}

// planned is the description that an operation's plan was made for.
func (s *service) planned(operation string) (*v1alpha1.Cluster, error) {
	c, err := s.Store.Planned(operation)
	if err != nil {
		return nil, err
	}
	spec.Canonical(c) // like what it is compared with
	return c, nil
}

// plannedFor is the same without hosts that were given up since.
func (s *service) plannedFor(operation string, lost []string) (*v1alpha1.Cluster, error) {
	c, err := s.planned(operation)
	if err == nil {
		spec.TakeOff(c, lost...)
	}
	return c, err
}

// gaveUp says that an operation has taken hosts off that were gone for good, in the
// midst of another: what the cluster is to be otherwise is that one's.
func gaveUp(o v1alpha1.Operation) bool {
	return Kind(o.Spec.Type) == Lose && o.Status.Phase == v1alpha1.OperationSucceeded
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
