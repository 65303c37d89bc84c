package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/spec"
)

// maintains reports whether operations of a kind leave a cluster's settings unchanged
// and need no bundle.
func maintains(k Kind) bool { return aboutCertificates(k) || k == Lose || aboutEtcd(k) }

// aboutCertificates reports whether operations of a kind only change certificates and
// keys.
func aboutCertificates(k Kind) bool { return k == Renew || k == RotateCA }

// aboutEtcd reports whether operations of a kind only concern etcd.
func aboutEtcd(k Kind) bool { return k == Defrag || renewsData(k) }

// renewsData reports whether operations of a kind replace the etcd data.
func renewsData(k Kind) bool { return k == RestoreEtcd || k == RescueEtcd }

// beside reports whether operations of a kind do not finish an earlier unfinished
// operation, whatever their outcome.
func beside(k Kind) bool { return aside(k) || renewsData(k) }

// aside reports whether operations of a kind do not apply the cluster's description.
// They leave unfinished operations that do apply it alone.
func aside(k Kind) bool { return aboutCertificates(k) || k == Lose || alone(k) }

// alone reports whether an interrupted operation of a kind is not resumed but run again.
func alone(k Kind) bool { return prepares(k) || k == Defrag }

// prepares reports whether operations of a kind only prepare hosts, with or without a
// cluster on them.
func prepares(k Kind) bool { return k == InitOS || k == InitRegistry }

// isKind reports whether this version has operations of a kind. Another version may
// have begun operations of other kinds.
func isKind(k Kind) bool {
	return k == Create || k == Delete || k == rollback || changesHosts(k) || aboutCertificates(k) || aboutEtcd(k) || prepares(k)
}

// installs reports whether the operation needs a bundle.
func (p *prepared) installs() bool {
	return !p.removes() && p.request.Kind != InitOS && !maintains(p.request.Kind)
}

// maintained returns an error if the operation on etcd is not possible: the etcd is
// external, or the cluster's creation has not finished.
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
		return refused(idNotCreated, "cluster "+recorded.Name+" is not running yet: its creation has not finished",
			"finish the creation first: slipway resume "+recorded.Name)
	}
	return nil
}

// swapped refuses to change hosts while a restore or a rescue is unfinished: some etcd
// members may have the new data and others the previous data. Only that operation knows
// which, and stops what must not run in the meantime.
func (s *service) swapped(recorded *v1alpha1.Cluster) error {
	swaps, err := s.swaps(recorded.Name)
	if swaps == nil || err != nil {
		return err
	}
	id := idOperationUnfinished
	if Kind(swaps.Spec.Type) == RescueEtcd {
		id = idRescueUnfinished
	}
	return refused(id, "operation "+swaps.Name+" has begun to replace the etcd data of cluster "+recorded.Name+" and is unfinished",
		"finish the operation first: slipway resume "+recorded.Name)
}

// swaps returns the latest restore or rescue that has begun to replace the etcd data. It
// returns nil if there is none, or if that operation or a later restore or rescue has
// reached the point at which all members serve the new data.
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
		case hasStep(done, etcdbackup.StepReached):
			return nil, nil
		case hasStep(begun, etcdbackup.StepSwap):
			return &o, nil
		}
	}
	return nil, nil
}

// hasStep reports whether a step is in the set for any host.
func hasStep(steps map[string]bool, id string) bool {
	for step := range steps {
		if task, _, _ := strings.Cut(step, "@"); task == id {
			return true
		}
	}
	return false
}

// concernsMaintenance reports whether an operation on etcd has to query a host. A restore
// and a rescue query all hosts; a defragmentation queries hosts with a member, and the
// control planes, which keep the lock. Hosts that are declared lost are not queried.
func (p *prepared) concernsMaintenance(h v1alpha1.Host) bool {
	if p.isLost(h.Name) {
		return false
	}
	return renewsData(p.request.Kind) || spec.HasRole(h, v1alpha1.RoleControlPlane) || facts.RunsEtcd(p.env.Cluster, h.Roles)
}

// restoresOn reports whether a restore, a rescue or a CA rotation cannot continue without
// a host.
func (p *prepared) restoresOn(h v1alpha1.Host) bool {
	if p.request.Kind == RotateCA && (slices.Contains(p.request.Rotate, certs.Cluster) || p.request.rotates[certs.Cluster] != "") {
		return facts.RunsKubelet(h.Roles) // a node that trusts only the old CA would lose its access
	}
	return (renewsData(p.request.Kind) || p.request.Kind == RotateCA) && hasPart(p.env.Cluster, h)
}

// ignores reports whether the other hosts continue when one fails. In a restore or
// rescue they do not: some would have the new data and some the old data. In a CA
// rotation they do not either: one host would trust a CA that another has dropped. For
// these operations, IgnoreErrors only means that they begin without unreachable workers.
func (p *prepared) ignores() bool {
	return p.request.IgnoreErrors && !renewsData(p.request.Kind) && p.request.Kind != RotateCA
}

// won records the space that the defragmentation of a host's member freed.
func (p *prepared) won(host string, before, after int64) {
	p.wins.Lock()
	defer p.wins.Unlock()
	p.wins.lines = append(p.wins.lines, fmt.Sprintf("%s: %s, before %s", host, bytesize.Bytes(after), bytesize.Bytes(before)))
	p.wins.bytes += before - after
}

// keptUp describes the result of an operation on etcd.
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
	return append([]string{"the defragmentation freed " + bytesize.Bytes(max(p.wins.bytes, 0))}, p.wins.lines...)
}
