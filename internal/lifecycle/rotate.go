package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/pki"
)

// A RotateCARequest asks to rotate CAs or the service account key of a saved cluster.
type RotateCARequest struct {
	Name string
	Options
	// Names are the CAs and keys to rotate.
	Names []string
}

func (r RotateCARequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options}
}

func (r RotateCARequest) behaviour() behaviour { return rotateCA(r.Names) }

// A rotating is a rotation of CAs and keys, with the progress of each.
type rotating struct {
	// asked are the requested CAs and keys. A resume does not ask for them again.
	asked     []string
	rotations certs.Rotations
	// from maps the name of each rotated CA or key to the id of the old one.
	from map[string]string
}

// rotateCA rotates CAs or the service account key.
func rotateCA(names []string) behaviour {
	w := &rotating{asked: names}
	b := usual()
	b.wanted = func(_ context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
		return p.recorded.DeepCopy(), true, errors.Join(unrecorded(p.recorded), unknownRotations(w.asked))
	}
	b.writesManifests = w.writesManifests
	b.begin = w.resumeSameRotation
	b.observe = w.observe
	b.pipeline = func(p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.RotateCA(p.env, parts, w.rotations), nil
	}
	b.needs = func(p *prepared, h *engine.Host) bool {
		if slices.Contains(w.asked, certs.Cluster) || w.from[certs.Cluster] != "" {
			return facts.RunsKubelet(h.Roles) // a node that trusts only the old CA would lose its access
		}
		return needsPart(p, h)
	}
	b.summary = w.rotated
	b.save = func(_ *prepared, o *v1alpha1.OperationSpec) { o.Rotates = w.from }
	b.resume = func(o *v1alpha1.OperationSpec) { w.from = o.Rotates }
	return b
}

// writesManifests reports whether a new rotation begins in which kubeadm writes the
// manifests of all control planes in the saved version. During an unfinished upgrade
// this would upgrade components before their turn.
func (w *rotating) writesManifests() bool { return slices.Contains(w.asked, certs.Cluster) }

// lookers returns, by name, for each CA or key that RotateCA can rotate, the function
// that determines the progress of the rotation. from is the id of the old CA or key,
// "" if it is not known yet; the function returns that id.
func lookers() map[string]func(w *rotating, ctx context.Context, p *prepared, from string) (string, error) {
	return map[string]func(w *rotating, ctx context.Context, p *prepared, from string) (string, error){
		certs.Cluster:        (*rotating).lookAtCluster,
		certs.ServiceAccount: (*rotating).lookAtAccounts,
		certs.FrontProxy:     (*rotating).lookAtFrontProxy,
		certs.Etcd:           (*rotating).lookAtEtcd,
	}
}

// RotationNames returns the names of the CAs and keys that RotateCA can rotate.
func RotationNames() []string { return slices.Sorted(maps.Keys(lookers())) }

// unknownRotations refuses names that RotateCA does not know.
func unknownRotations(names []string) error {
	var list diag.List
	for _, name := range names {
		if slices.Contains(RotationNames(), name) {
			continue
		}
		hint := diag.DidYouMean(name, RotationNames())
		if hint == "" {
			hint = "use one of: " + strings.Join(RotationNames(), ", ")
		}
		list = append(list,
			diag.Diagnostic{
				ID: idUnknownRotation, Severity: diag.Error,
				Message: fmt.Sprintf("there is no CA or key %q to rotate", name), Hint: hint,
			})
	}
	return list.Err()
}

// resumeSameRotation resumes an interrupted rotation of exactly the requested CAs and keys.
// This matters at the end of a rotation, when the files on hosts no longer show that
// one was in progress.
func (w *rotating) resumeSameRotation(p *prepared) error {
	if p.continues != nil {
		return nil
	}
	ops, err := p.svc.Store.Operations().List(p.name)
	if err != nil {
		return err
	}
	asked := slices.Sorted(slices.Values(w.asked))
	for _, o := range history.UnfinishedRotations(ops) {
		if slices.Equal(slices.Sorted(maps.Keys(o.Spec.Rotates)), slices.Compact(asked)) {
			p.continues, w.from = o, o.Spec.Rotates
			p.done, _, err = p.svc.past.Steps(o.Name)
			return err
		}
	}
	return nil
}

// observe determines the old CA or key and the progress of an interrupted
// rotation. The pipeline is built from this.
func (w *rotating) observe(ctx context.Context, p *prepared) error {
	if err := dropUnjoinedNodes(p); err != nil {
		return err
	}
	if w.from == nil {
		w.from = map[string]string{}
	}
	if len(w.from) == 0 && p.continues == nil {
		for _, name := range w.asked {
			w.from[name] = "" // the current one
		}
	}
	names := slices.Sorted(maps.Keys(w.from))
	if err := unknownRotations(names); err != nil {
		return err // begun by a later version
	}
	if len(names) > 1 && slices.Contains(names, certs.Cluster) {
		return refused(idUnknownRotation,
			"the cluster CA must be rotated separately: its rotation needs the other CAs and keys unchanged",
			"rotate the cluster CA alone, and the others with another command")
	}
	for _, name := range names {
		from, err := lookers()[name](w, ctx, p, w.from[name])
		if err != nil {
			return err
		}
		w.from[name] = from
	}
	return nil
}

// dropUnjoinedNodes leaves out nodes that have not joined yet: they get the current CAs and
// keys when they join.
func dropUnjoinedNodes(p *prepared) error {
	coming := func(h *engine.Host) bool { return module.IsNode(h) && !module.IsJoined(h) }
	out := slices.DeleteFunc(slices.Clone(p.hosts), func(h *engine.Host) bool { return !coming(h) })
	p.hosts = slices.DeleteFunc(slices.Clone(p.hosts), coming)
	return closeAll(out)
}

// finished stands for the old CA or key once nothing trusts it. No real id equals it.
const finished = "finished"

// refuseOtherFile refuses a cluster whose components use another file than the rotated one,
// because of arguments with these names.
func refuseOtherFile(c *v1alpha1.Cluster, id, what, file string, names ...string) error {
	k := c.Spec.Kubernetes
	for _, args := range []map[string]string{k.APIServer.ExtraArgs, k.ControllerManager.ExtraArgs} {
		for _, name := range names {
			if args[name] != "" {
				return refused(id, "the cluster file sets "+name+" to "+args[name]+": "+what+" is not in "+file,
					"rotate the CA or key where its files are kept, or remove the argument from extraArgs and apply the file first")
			}
		}
	}
	return nil
}

// lookAtAccounts reads from every control plane the keys that verify service account
// tokens. from is the old key, "" if it is not known yet.
func (w *rotating) lookAtAccounts(ctx context.Context, p *prepared, from string) (string, error) {
	if err := refuseOtherFile(p.env.Cluster, idKeyElsewhere, "the service account key", certs.AccountPublic,
		"service-account-key-file", "service-account-signing-key-file", "service-account-signing-endpoint",
		"service-account-private-key-file"); err != nil {
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
			return "", refused(idRotationKey, h.Name+" has no "+certs.AccountPublic+": it is unknown which key its API server uses",
				"restore the file from a backup or from another control plane")
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
	r.From, r.Gone, r.Going = rotationProgress(all, from, r.Next)
	w.rotations.Accounts = r
	return r.From, nil
}

// rotationProgress determines the progress of a rotation from the ids that each host trusts and
// the id of the next CA or key. It returns the id of the old one, whether all hosts
// have dropped it, and whether some have.
func rotationProgress(all [][]string, from, next string) (goes string, gone, going bool) {
	if goes = from; goes == "" {
		goes = oldID(all, next)
	}
	// Hosts drop the old one last, when all of them trust the next one. Before that, a
	// host without the old one has not dropped it.
	last := next != "" && !slices.ContainsFunc(all, func(ids []string) bool { return !slices.Contains(ids, next) })
	gone = true
	for _, ids := range all {
		has := slices.Contains(ids, goes)
		gone, going = gone && !has, going || !has && last
	}
	return goes, gone, going
}

// oldID returns the id of the old CA or key. A rotation that has begun continues: its
// next CA or key is never taken for the old one.
func oldID(all [][]string, next string) string {
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

// accountKeys returns the keys in a file of a control plane, none if there is no file.
func accountKeys(ctx context.Context, h *engine.Host, file string) ([]pki.PublicKey, error) {
	text, err := fileOf(ctx, h, file)
	if text == nil || err != nil {
		return nil, err
	}
	keys, err := pki.PublicKeys(text)
	if err != nil {
		return nil, refused(idRotationKey, fmt.Sprintf("reading %s of %s: %v", file, h.Name, err), "restore the file from a backup")
	}
	return keys, nil
}

// fileOf returns the content of a file of a host, nil if there is no file.
func fileOf(ctx context.Context, h *engine.Host, file string) ([]byte, error) {
	results, err := h.Conn.Check(ctx, op.List{op.ReadFile{Path: file}})
	if err != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", file, h.Name, err)
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("reading %s of %s: %d results", file, h.Name, len(results))
	}
	if results[0].Error != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", file, h.Name, results[0].Error)
	}
	if results[0].Missing {
		return nil, nil
	}
	return results[0].Output, nil
}

// rotated describes what was rotated.
func (w *rotating) rotated(p *prepared, _ *Result) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(w.from)) {
		out = append(out, map[string][]string{
			certs.ServiceAccount: {
				"the service account key was rotated, and the old key is no longer used",
				"Tokens that were created manually before (kubectl create token) are now invalid",
			},
			certs.Cluster: {
				"the cluster CA was rotated, and the old CA is no longer used",
				"Earlier kubeconfigs are now invalid: distribute the new one (slipway kubeconfig)",
			},
			certs.Etcd:       {"the etcd CA was rotated, and the old CA is no longer trusted"},
			certs.FrontProxy: {"the front proxy CA was rotated, and the old CA is no longer trusted"},
		}[name]...)
	}
	return out
}
