package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/runtime"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec"
)

// reverts makes a request take an upgrade back, or go on with that. Hosts that have
// left since stay away.
func (s *service) reverts(r *Request, o *v1alpha1.Operation) error {
	recorded, err := s.Store.Cluster(o.Spec.Cluster)
	if err != nil {
		return err
	}
	to, err := s.planned(o.Name)
	if err != nil {
		return err
	}
	if Kind(o.Spec.Type) == Upgrade {
		was, err := s.origin(o.Spec.Cluster, to.Spec.Kubernetes.Version)
		if err != nil {
			return err
		}
		to = was
	}
	back := spec.Copy(recorded)
	back.Spec.Kubernetes.Version, back.Spec.Bundle, back.Spec.Addons = to.Spec.Kubernetes.Version, to.Spec.Bundle, to.Spec.Addons
	r.Kind, r.Name, r.Cluster, r.goesOn = Revert, o.Spec.Cluster, nil, back
	r.Removal.Force = r.Removal.Force || o.Spec.Force
	if r.Removal.DrainTimeout == 0 {
		r.Removal.DrainTimeout = o.Spec.DrainTimeout.Duration
	}
	if r.Rollout.MaxUnavailable == "" {
		r.Rollout.MaxUnavailable = o.Spec.MaxUnavailable
	}
	r.Source, err = s.sourceBefore(o.Spec.Cluster)
	return err
}

// loses makes a request for hosts to be given up one that leaves alone what an
// upgrade, a restore, or a change of the runtime, has begun, if that is why it is
// refused.
func (r *Request) loses(refusal error) bool {
	var list diag.List
	if !errors.As(refusal, &list) || !slices.Contains([]string{idUpgradeUnfinished, idMigrationAlone, idOperationUnfinished}, list[0].ID) || r.Kind != Remove || !r.Forget || len(r.Hosts) > 0 {
		return false
	}
	r.Kind, r.midst = Lose, list[0].ID
	return true
}

// givesUp chooses the pipeline that takes hosts off in the midst of something: off
// etcd and the API, or, while etcd is given other data, off the records alone.
func (p *prepared) givesUp(parts pipeline.Parts) error {
	swaps, err := p.svc.swaps(p.env.Cluster.Name)
	if p.strikes = swaps != nil; p.strikes {
		p.pipeline = pipeline.Strike(p.env, parts)
		return err
	}
	p.pipeline = pipeline.Lose(p.env, parts)
	return err
}

// stillThere refuses to take hosts off in the midst of something that are not
// gone: with them more would be done than to forget them.
func (p *prepared) stillThere() (list diag.List) {
	if p.request.Kind != Lose {
		return nil
	}
	for _, l := range p.env.Leaving {
		hint := "finish what was begun first: slipway resume " + p.env.Cluster.Name
		if p.continues != nil {
			hint = "it was given up, and may be off already: power it off for good, and go on with: slipway resume " + p.env.Cluster.Name
		}
		if !l.Gone {
			list = append(list, diag.Diagnostic{
				ID: cmp.Or(p.request.midst, idUpgradeUnfinished), Severity: diag.Error, Host: l.Name,
				Message: "answers, and in the midst of an upgrade, a restore of etcd, or a change of the runtime, only hosts that are gone for good are taken off",
				Hint:    hint,
			})
		}
	}
	return list
}

// lost says which data there are of before an upgrade, and what they lack.
func (s *service) lost(o *v1alpha1.Operation) string {
	set := s.kept(o)
	if set == nil {
		return "; no backup set of before it is on this machine"
	}
	if set.KeysOnly {
		return "; its keys of before it are in " + set.File + ", and the data of etcd are its owner's to have kept"
	}
	return fmt.Sprintf("; the data of before it (%s) are in %s, and all that was written since would be lost with them", o.Status.StartTime.UTC().Format(time.DateTime), set.File)
}

// past refuses to take back an upgrade that has come to its end, for that is why
// there is nothing unfinished.
func (s *service) past(name string, unfinished error) error {
	var list diag.List
	if !errors.As(unfinished, &list) || list[0].ID != idNothingUnfinished {
		return unfinished
	}
	ops, err := s.Store.Operations(name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool { return !beside(Kind(o.Spec.Type)) && o.Status.StartTime != nil })
	if at < 0 || Kind(ops[at].Spec.Type) != Upgrade {
		return unfinished
	}
	is, err := s.planned(ops[at].Name)
	if err != nil {
		return err
	}
	hint := "to have these data, with Kubernetes as it is now: slipway etcd restore " + name + " --from FILE"
	if is.Spec.Etcd.External != nil {
		hint = "to have the data of before, with Kubernetes as it is now, ask the owner of its etcd"
	}
	return refused(idUpgradeCommitted, "the upgrade to "+is.Spec.Kubernetes.Version+" has come to its end, and Kubernetes does not go back from there"+s.lost(&ops[at]), hint)
}

// hasRetired refuses to take back an upgrade that has begun to let go what leads back:
// all else of it is done.
func (s *service) hasRetired(o *v1alpha1.Operation) error {
	if Kind(o.Spec.Type) != Upgrade {
		return nil
	}
	_, begun, err := s.steps(o.Name)
	if err != nil {
		return err
	}
	for step := range begun {
		if strings.HasPrefix(step, runtime.StepRetire+"@") {
			return refused(idUpgradeCommitted, "the upgrade has done all but to let go, on hosts, what was there before it, and Kubernetes does not go back from there"+s.lost(o),
				"finish it: slipway resume "+o.Spec.Cluster)
		}
	}
	return nil
}

// wayBack refuses to go back to a version that does not know kinds of which there
// are objects by now: nobody could see them, or take them away. What the API
// servers make for themselves does not count.
func (p *prepared) wayBack(ctx context.Context) (diag.List, error) {
	if p.request.Kind != Revert {
		return nil, nil
	}
	newer, _, err := p.there()
	if err != nil || release.SameMinor(newer.Kubernetes, p.env.Release.Kubernetes) {
		return nil, err
	}
	if newer.Beyond {
		return kindsUnknown(newer.Kubernetes, p.env.Release.Kubernetes), nil
	}
	l := newLooker(p.svc, p.env)
	var servers []*hostLook
	for _, h := range p.hosts {
		if h.Facts != nil && h.HasRole(v1alpha1.RoleControlPlane) && module.Holds(h) {
			servers = append(servers, &hostLook{spec: h.Host, conn: h.Conn})
		}
	}
	var mu sync.Mutex
	var used []string
	asked := 0
	each(servers, func(h *hostLook) {
		ctx, cancel := context.WithTimeout(ctx, p.svc.looks.over)
		defer cancel()
		client, err := l.own(h)
		if err != nil {
			return // it is told that it does not serve
		}
		defer client.Close()
		for _, kind := range newer.Adds {
			objects, err := client.OfKind(ctx, kind)
			if err != nil {
				return
			}
			mu.Lock()
			for _, o := range objects {
				if name := kind + " " + o; !strings.HasPrefix(o, "kubernetes.io:") && !slices.Contains(used, name) {
					used = append(used, name)
				}
			}
			mu.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		asked++
	})
	if len(used) == 0 && asked == len(servers) {
		return nil, nil
	}
	if len(used) == 0 {
		return diag.List{{
			ID: idKindsInUse, Severity: diag.Warning,
			Message: fmt.Sprintf("%d of %d API servers could not be asked for objects of kinds that Kubernetes %s does not know: if there are any, nobody sees them after this",
				len(servers)-asked, len(servers), p.env.Release.Kubernetes),
			Hint: "if an API server of " + newer.Kubernetes + " can be made to answer, look for " + strings.Join(newer.Adds, ", "),
		}}, nil
	}
	slices.Sort(used)
	return p.inUse(used)
}

// inUse refuses to go back because of these objects.
func (p *prepared) inUse(used []string) (diag.List, error) {
	name := p.env.Cluster.Name
	hint := "delete them, if they can be done without; or finish the upgrade: slipway resume " + name
	if o, err := p.svc.latestUpgrade(name); err != nil {
		return nil, err
	} else if o != nil {
		hint += "; " + p.svc.instead(o)
	}
	return refused(idKindsInUse, fmt.Sprintf("Kubernetes %s does not know kinds of which there are objects: %s", p.env.Release.Kubernetes, strings.Join(used, ", ")), hint), nil
}

// instead says what a restore of the data of before an upgrade would do, and lose.
func (s *service) instead(o *v1alpha1.Operation) string {
	const again = "the data of before the upgrade again, without these and all else that was written since"
	set := s.kept(o)
	switch {
	case set == nil:
		return "no backup set of before it is on this machine"
	case set.KeysOnly:
		return "or have the owner of its etcd bring " + again
	}
	return "or have " + again + ": slipway etcd restore " + o.Spec.Cluster + " --from " + set.File
}

// kindsUnknown warns of kinds that the release table does not list.
func kindsUnknown(newer, older string) diag.List {
	return diag.List{{
		ID: idKindsInUse, Severity: diag.Warning,
		Message: fmt.Sprintf("which kinds Kubernetes %s has that %s does not know is not in the release table: if there are objects of one, nobody sees them after this", newer, older),
		Hint:    "look in the release notes of " + newer + " for kinds that are new in it",
	}}
}

// there is the release that a cluster goes back from, and the steps that were begun
// on the way there. Its components are not asked for, which a bundle alone may know
// that is gone by now.
func (p *prepared) there() (is release.Release, begun map[string]bool, err error) {
	o, err := p.svc.latestUpgrade(p.env.Cluster.Name)
	if err != nil {
		return is, nil, err
	}
	if o == nil {
		return p.env.Release, nil, nil
	}
	c, err := p.svc.planned(o.Name)
	if err != nil {
		return is, nil, err
	}
	version := c.Spec.Kubernetes.Version
	if is, err = p.svc.Catalogue.With(version, release.Components{}).Resolve(version); err != nil {
		return is, nil, err
	}
	_, begun, err = p.svc.steps(o.Name)
	return is, begun, err
}

// latestUpgrade is the latest upgrade of a cluster that has begun, nil if there is none.
func (s *service) latestUpgrade(name string) (*v1alpha1.Operation, error) {
	ops, err := s.Store.Operations(name)
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool { return Kind(o.Spec.Type) == Upgrade && o.Status.StartTime != nil })
	if at < 0 {
		return nil, err
	}
	return &ops[at], err
}
