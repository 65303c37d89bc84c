package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/iec"
	recovery "slipway.dev/slipway/internal/module/backup"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/spec"
)

// maintains says that operations of a kind leave a cluster's settings as they are,
// and need nothing of a bundle.
func maintains(k Kind) bool { return aboutCertificates(k) || k == Lose || aboutEtcd(k) }

// aboutCertificates says that operations of a kind are about certificates and
// keys alone.
func aboutCertificates(k Kind) bool { return k == Renew || k == RotateCA }

// aboutEtcd says that operations of a kind are about etcd alone.
func aboutEtcd(k Kind) bool { return k == Defrag || renewsData(k) }

// renewsData says that operations of a kind give etcd other data.
func renewsData(k Kind) bool { return k == RestoreEtcd || k == RescueEtcd }

// beside says that what operations of a kind come to says nothing of what was
// unfinished before them.
func beside(k Kind) bool { return aside(k) || renewsData(k) }

// aside says that an operation of a kind is none of those that make a cluster
// what it is described as: it leaves alone what of these is not finished.
func aside(k Kind) bool { return aboutCertificates(k) || k == Lose || alone(k) }

// alone says that nothing goes on from an operation of a kind that was cut off:
// it is done anew.
func alone(k Kind) bool { return prepares(k) || k == Defrag }

// prepares says that an operation of a kind is about hosts, whether there is a
// cluster on them or not.
func prepares(k Kind) bool { return k == InitOS || k == InitRegistry }

// isKind says that there are operations of a kind: another version of this program
// may have begun others.
func isKind(k Kind) bool {
	return k == Create || k == Delete || k == rollback || changesHosts(k) || aboutCertificates(k) || aboutEtcd(k) || prepares(k)
}

// installs says that the operation needs a bundle.
func (p *prepared) installs() bool {
	return !p.removes() && p.request.Kind != InitOS && !maintains(p.request.Kind)
}

// maintained refuses a cluster that cannot be maintained.
func (s *service) maintained(r *Request, recorded *v1alpha1.Cluster) error {
	what := "a defragmentation"
	switch r.Kind {
	case RestoreEtcd:
		what = "a restore"
	case RescueEtcd:
		what = "a rescue"
	}
	switch {
	case recorded.Spec.Etcd.External != nil:
		return external(recorded.Name, what)
	case !created(recorded):
		return refused(idNotCreated, "cluster "+recorded.Name+" has not come to run yet", "go on with: slipway resume "+recorded.Name)
	}
	return nil
}

// swapped refuses to change hosts while members of etcd may have the data of a restore
// or a rescue, and others those of before: only it knows which, and stops what must not
// run meanwhile.
func (s *service) swapped(recorded *v1alpha1.Cluster) error {
	swaps, err := s.swaps(recorded.Name)
	if swaps == nil || err != nil {
		return err
	}
	id := idOperationUnfinished
	without := "for a host that is gone for good: take it off the records (slipway delete node NAME --forget), and begin anew: slipway etcd restore " + recorded.Name + " --from FILE"
	if Kind(swaps.Spec.Type) == RescueEtcd {
		id = idRescueUnfinished
		without = "for one more host that is gone for good: begin anew, and name it too: slipway etcd rescue " + recorded.Name + " --lost " + strings.Join(append(slices.Clone(swaps.Spec.Nodes), "NAME"), ",") +
			"; for a worker: slipway resume " + recorded.Name + " --ignore-errors"
	}
	return refused(id, "operation "+swaps.Name+" has begun to give etcd of cluster "+recorded.Name+" other data, and has not come to its end",
		"finish it first: slipway resume "+recorded.Name+"; if it cannot, "+without)
}

// swaps is the restore or the rescue that has begun to put other data in their place,
// and since which none has come so far that all members serve them; nil if there is none.
// One after it that has not come so far as to begin changes nothing of that.
func (s *service) swaps(name string) (*v1alpha1.Operation, error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		kind := Kind(o.Spec.Type)
		if kind == Create || renewsData(kind) && o.Status.Phase == v1alpha1.OperationSucceeded {
			break
		}
		if !renewsData(kind) || o.Status.StartTime == nil {
			continue
		}
		done, begun, err := s.steps(o.Name)
		switch {
		case err != nil:
			return nil, err
		case hasStep(done, recovery.StepReached):
			return nil, nil
		case hasStep(begun, recovery.StepSwap):
			return &o, nil
		}
	}
	return nil, nil
}

// hasStep says that a step is among those of any host.
func hasStep(steps map[string]bool, id string) bool {
	for step := range steps {
		if task, _, _ := strings.Cut(step, "@"); task == id {
			return true
		}
	}
	return false
}

// concernsMaintenance says whether a host has to be asked: to defragment etcd,
// those with a member, and control planes, which keep the lock. Those that are
// declared lost are not.
func (p *prepared) concernsMaintenance(h v1alpha1.Host) bool {
	if p.isLost(h.Name) {
		return false
	}
	return renewsData(p.request.Kind) || spec.HasRole(h, v1alpha1.RoleControlPlane) || facts.RunsEtcd(p.env.Cluster, h.Roles)
}

// restoresOn says that a restore, or an exchange of authorities, cannot go on
// without a host.
func (p *prepared) restoresOn(h v1alpha1.Host) bool {
	if p.request.Kind == RotateCA && (slices.Contains(p.request.Rotate, certs.Cluster) || p.request.rotates[certs.Cluster] != "") {
		return facts.RunsKubelet(h.Roles) // a node that knows the old one alone would be let in by nobody
	}
	return (renewsData(p.request.Kind) || p.request.Kind == RotateCA) && hasPart(p.env.Cluster, h)
}

// ignores says that the other hosts go on when one fails. In a restore none does:
// some would have the new data, and some the old ones; nor when authorities are
// exchanged: one host would trust what another has dropped. There it means that it is
// begun without workers that do not answer.
func (p *prepared) ignores() bool {
	return p.request.IgnoreErrors && !renewsData(p.request.Kind) && p.request.Kind != RotateCA
}

// won takes note of what a host's member gave back.
func (p *prepared) won(host string, before, after int64) {
	p.wins.Lock()
	defer p.wins.Unlock()
	p.wins.lines = append(p.wins.lines, fmt.Sprintf("%s: %s, before %s", host, iec.Bytes(after), iec.Bytes(before)))
	p.wins.bytes += before - after
}

// keptUp says what maintenance has done.
func (p *prepared) keptUp(res *Result) []string {
	switch p.request.Kind {
	case RestoreEtcd:
		return p.restored(res)
	case RescueEtcd:
		return p.rescued(res)
	}
	p.wins.Lock()
	defer p.wins.Unlock()
	slices.Sort(p.wins.lines)
	return append([]string{"etcd gave back " + iec.Bytes(max(p.wins.bytes, 0))}, p.wins.lines...)
}
