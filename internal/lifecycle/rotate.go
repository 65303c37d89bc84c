package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// lookers find out of each that RotateCA can exchange, by its name, how far that
// has come. from is what goes, by its id, "" if that is to be found out; so is
// what is returned.
func lookers() map[string]func(p *prepared, ctx context.Context, from string) (string, error) {
	return map[string]func(p *prepared, ctx context.Context, from string) (string, error){
		certs.Cluster:        (*prepared).lookAtCluster,
		certs.ServiceAccount: (*prepared).lookAtAccounts,
		certs.FrontProxy:     (*prepared).lookAtFrontProxy,
		certs.Etcd:           (*prepared).lookAtEtcd,
	}
}

// RotationNames are what RotateCA can exchange, by name.
func RotationNames() []string { return slices.Sorted(maps.Keys(lookers())) }

// unknownRotations refuses names of what there is none of to exchange.
func unknownRotations(names []string) error {
	var list diag.List
	for _, name := range names {
		if slices.Contains(RotationNames(), name) {
			continue
		}
		hint := diag.DidYouMean(name, RotationNames())
		if hint == "" {
			hint = "there are: " + strings.Join(RotationNames(), ", ")
		}
		list = append(list, diag.Diagnostic{ID: idUnknownRotation, Severity: diag.Error, Message: fmt.Sprintf("there is no %q to exchange", name), Hint: hint})
	}
	return list.Err()
}

// exchanges are the exchanges of a cluster's authorities and keys that have begun and
// have not come to their ends, latest first: what was done beside them has finished
// none, but for another exchange of the same.
func exchanges(ops []v1alpha1.Operation) (out []*v1alpha1.Operation) {
	var done []string
	for i, o := range ops {
		names := slices.Sorted(maps.Keys(o.Spec.Rotates))
		left := slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(done, name) })
		switch {
		case Kind(o.Spec.Type) != RotateCA || o.Status.StartTime == nil || !left:
		case o.Status.Phase == v1alpha1.OperationSucceeded:
			done = append(done, names...)
		default:
			out = append(out, &ops[i])
		}
	}
	return out
}

// sameExchange has an exchange go on that was cut off, if it is of all that is asked
// for and of nothing else: at its very end the files do not tell that anything was
// exchanged.
func (p *prepared) sameExchange(cluster string) error {
	if p.request.Kind != RotateCA || p.continues != nil {
		return nil
	}
	ops, err := p.svc.Store.Operations(cluster)
	if err != nil {
		return err
	}
	asked := slices.Sorted(slices.Values(p.request.Rotate))
	for _, o := range exchanges(ops) {
		if slices.Equal(slices.Sorted(maps.Keys(o.Spec.Rotates)), slices.Compact(asked)) {
			p.continues, p.request.rotates = o, o.Spec.Rotates
			p.done, _, err = p.svc.steps(o.Name)
			return err
		}
	}
	return nil
}

// lookAtRotation finds out what goes, and how far an exchange has come that was
// cut off: what the pipeline is made of.
func (p *prepared) lookAtRotation(ctx context.Context) error {
	if p.request.Kind != RotateCA {
		return nil
	}
	if err := p.dropComing(); err != nil {
		return err
	}
	if p.request.rotates == nil {
		p.request.rotates = map[string]string{}
	}
	if len(p.request.rotates) == 0 && p.continues == nil {
		for _, name := range p.request.Rotate {
			p.request.rotates[name] = "" // that of now
		}
	}
	names := slices.Sorted(maps.Keys(p.request.rotates))
	if err := unknownRotations(names); err != nil {
		return err // begun by a later version
	}
	if len(names) > 1 && slices.Contains(names, certs.Cluster) {
		return refused(idUnknownRotation, "the cluster's authority is exchanged by itself: everything that is done for it goes by the other keys", "exchange one, and then the others")
	}
	for _, name := range names {
		from, err := lookers()[name](p, ctx, p.request.rotates[name])
		if err != nil {
			return err
		}
		p.request.rotates[name] = from
	}
	return nil
}

// dropComing leaves out nodes that have not joined yet: they get what the others have
// when they do.
func (p *prepared) dropComing() error {
	coming := func(h *engine.Host) bool { return module.IsNode(h) && !module.Holds(h) }
	out := slices.DeleteFunc(slices.Clone(p.hosts), func(h *engine.Host) bool { return !coming(h) })
	p.hosts = slices.DeleteFunc(slices.Clone(p.hosts), coming)
	return closeAll(out)
}

// finished is what goes when nothing verifies with it any more: no key has this id.
const finished = "finished"

// elsewhere refuses a cluster whose programs are told to go by something else than
// the file that is exchanged: by arguments of these names.
func elsewhere(c *v1alpha1.Cluster, id, what, file string, names ...string) error {
	k := c.Spec.Kubernetes
	for _, args := range []map[string]string{k.APIServer.ExtraArgs, k.ControllerManager.ExtraArgs} {
		for _, name := range names {
			if args[name] != "" {
				return refused(id, "the cluster's file has "+name+" be "+args[name]+": "+what+" is not in "+file,
					"exchange it where it is kept, or take the argument out of extraArgs and apply that first")
			}
		}
	}
	return nil
}

// lookAtAccounts asks every control plane which keys it verifies tokens of
// service accounts with. from is the key that goes, "" if that is to be found out.
func (p *prepared) lookAtAccounts(ctx context.Context, from string) (string, error) {
	if err := elsewhere(p.env.Cluster, idKeyElsewhere, "the key of service accounts", certs.AccountPublic,
		"service-account-key-file", "service-account-signing-key-file", "service-account-signing-endpoint", "service-account-private-key-file"); err != nil {
		return "", err
	}
	r := certs.AccountRotation{From: from}
	var all [][]string
	for _, h := range p.hosts {
		if !h.HasRole(v1alpha1.RoleControlPlane) {
			continue
		}
		keys, err := accountKeys(ctx, h, certs.AccountPublic)
		if err != nil {
			return "", err
		}
		if len(keys) == 0 {
			return "", refused(idRotationKey, h.Name+" has no "+certs.AccountPublic+": it is not known what its API server goes by", "see: slipway cluster-info")
		}
		if p.env.IsFirst(h) {
			next, err := accountKeys(ctx, h, certs.NextPublic)
			if err != nil {
				return "", err
			}
			if len(next) > 0 {
				r.Next = next[0].ID
			}
		}
		var ids []string
		for _, k := range keys {
			ids = append(ids, k.ID)
			if !slices.ContainsFunc(r.Known, func(have pki.PublicKey) bool { return have.ID == k.ID }) {
				r.Known = append(r.Known, k)
			}
		}
		all = append(all, ids)
	}
	r.From, r.Gone, r.Going = howFar(all, from, r.Next)
	p.rotations.Accounts = r
	return r.From, nil
}

// howFar finds out of an exchange, by the ids that each host trusts and by that of
// what comes, what goes, "" if that is to be found out, and whether it is gone from
// all hosts, or from some.
func howFar(all [][]string, from, next string) (goes string, gone, going bool) {
	if goes = from; goes == "" {
		goes = elder(all, next)
	}
	// What goes does so last, when all trust a next one that is known. Where
	// they do not, a host without it is none that has dropped it.
	last := next != "" && !slices.ContainsFunc(all, func(ids []string) bool { return !slices.Contains(ids, next) })
	gone = true
	for _, ids := range all {
		has := slices.Contains(ids, goes)
		gone, going = gone && !has, going || !has && last
	}
	return goes, gone, going
}

// elder is what goes. An exchange that was begun is gone on with: what has come by
// it is not exchanged for another, nor is what is left of it.
func elder(all [][]string, next string) string {
	var known []string
	for _, id := range slices.Concat(all...) {
		if !slices.Contains(known, id) {
			known = append(known, id)
		}
	}
	for _, id := range slices.Backward(known) {
		if id != next {
			return id
		}
	}
	return finished
}

// accountKeys are those in a file of a control plane; none if it is not there.
func accountKeys(ctx context.Context, h *engine.Host, file string) ([]pki.PublicKey, error) {
	text, err := fileOf(ctx, h, file)
	if text == nil || err != nil {
		return nil, err
	}
	keys, err := pki.PublicKeys(text)
	if err != nil {
		return nil, refused(idRotationKey, fmt.Sprintf("reading %s of %s: %v", file, h.Name, err), "put it back from a backup")
	}
	return keys, nil
}

// fileOf is what is in a file of a host; nil if it is not there.
func fileOf(ctx context.Context, h *engine.Host, file string) ([]byte, error) {
	results, err := h.Conn.Check(ctx, op.List{op.ReadFile{Path: file}})
	if err != nil {
		return nil, fmt.Errorf("looking at %s of %s: %w", file, h.Name, err)
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("looking at %s of %s: %d answers", file, h.Name, len(results))
	}
	if results[0].Error != nil {
		return nil, fmt.Errorf("looking at %s of %s: %w", file, h.Name, results[0].Error)
	}
	if results[0].Missing {
		return nil, nil
	}
	return results[0].Output, nil
}

// rotated says what was exchanged.
func (p *prepared) rotated() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(p.request.rotates)) {
		out = append(out, map[string][]string{
			certs.ServiceAccount: {
				"service accounts have another key, and nothing goes by the old one any more",
				"Tokens that were made by hand before (kubectl create token) are worth nothing now",
			},
			certs.Cluster: {
				"the cluster has another authority, and nothing goes by the old one any more",
				"Kubeconfigs that were given out are worth nothing now: hand the new one on (slipway kubeconfig)",
			},
			certs.Etcd:       {"etcd has another authority, and nothing trusts the old one any more"},
			certs.FrontProxy: {"the front proxy has another authority, and nothing trusts the old one any more"},
		}[name]...)
	}
	return out
}
