package lifecycle

import (
	"context"
	"errors"
	"maps"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/carotation"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/spec/hostroles"
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
		return p.recorded.DeepCopy(), true, errors.Join(unrecorded(p.recorded), carotation.CheckNames(w.asked))
	}
	b.writesManifests = w.writesManifests
	b.begin = w.resumeSameRotation
	b.observe = w.observe
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.RotateCA(p.env, parts, w.rotations), nil
	}
	b.needs = func(p *prepared, h *engine.Host) bool {
		if slices.Contains(w.asked, certs.Cluster) || w.from[certs.Cluster] != "" {
			return hostroles.RunsKubelet(h.Roles) // a node that trusts only the old CA would lose its access
		}
		return needsPart(p, h)
	}
	b.summary = w.rotated
	b.save = func(_ *prepared, o *v1alpha1.OperationParameters) { o.Rotates = w.from }
	b.resume = func(o *v1alpha1.OperationParameters) { w.from = o.Rotates }
	return b
}

// writesManifests reports whether a new rotation begins in which kubeadm writes the
// manifests of all control planes in the saved version. During an unfinished upgrade
// this would upgrade components before their turn.
func (w *rotating) writesManifests() bool { return slices.Contains(w.asked, certs.Cluster) }

// resumeSameRotation resumes an interrupted rotation of exactly the requested CAs and keys.
// This matters at the end of a rotation, when the files on hosts no longer show that
// one was in progress.
func (w *rotating) resumeSameRotation(ctx context.Context, p *prepared) error {
	if p.continues != nil {
		return nil
	}
	ops, err := p.svc.past.ListBegun(ctx, p.name)
	if err != nil {
		return err
	}
	asked := slices.Sorted(slices.Values(w.asked))
	for _, o := range operation.UnfinishedRotations(ops) {
		if slices.Equal(slices.Sorted(maps.Keys(o.Spec.Parameters.Rotates)), slices.Compact(asked)) {
			p.continues, w.from = o, o.Spec.Parameters.Rotates
			p.done, _, err = p.svc.past.Steps(ctx, o.Name)
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
	if err := carotation.CheckNames(names); err != nil {
		return err // begun by a later version
	}
	if len(names) > 1 && slices.Contains(names, certs.Cluster) {
		return diag.Refuse(carotation.IDUnknown,
			"the cluster CA must be rotated separately: its rotation needs the other CAs and keys unchanged",
			"rotate the cluster CA alone, and the others with another command")
	}
	query := carotation.Query{Env: p.env, Hosts: p.hosts, Now: p.svc.Now}
	for _, name := range names {
		from, err := query.FindProgress(ctx, name, w.from[name], &w.rotations)
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

// rotated describes what was rotated.
func (w *rotating) rotated(_ context.Context, p *prepared, _ *Result) (out []string) {
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
