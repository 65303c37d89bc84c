// Package addon makes objects of add-ons: manifests and charts, from files, the
// network and the cache. It asks no cluster, so that all that is wrong with an
// add-on is known before anything is touched.
package addon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// Identifiers of what is wrong with add-ons, each with an entry in
// docs/guide/errors.md; they never change.
const (
	// IDKubernetes: an add-on does not work with the cluster's version. It can be
	// passed over.
	IDKubernetes = "addons"
	// IDUnusable: what an add-on is made of cannot be read, or is not that.
	IDUnusable = "addon-unusable"
	// IDDownload: a manifest or a chart cannot be had from where it is.
	IDDownload = "addon-download"
	// IDOffline: the copy in the cache is taken, for the place does not answer.
	IDOffline = "addon-offline"
	// IDChecksum: what was downloaded is not what was pinned, or announced.
	IDChecksum = "addon-checksum"
	// IDRender: a chart does not render.
	IDRender = "addon-render"
	// IDRandom: a chart renders differently each time.
	IDRandom = "addon-random"
	// IDChartHook: a chart has hooks that are not run.
	IDChartHook = "addon-chart-hook"
	// IDHookFailed: a hook around the deletion of an add-on has failed, or cannot be
	// read.
	IDHookFailed = "addon-hook-failed"
	// IDTwice: two add-ons have the same object.
	IDTwice = "addon-object-twice"
)

// Label is on every object of an add-on: the add-on's name.
const Label = "slipway.dev/addon"

// DefaultTimeout bounds how long what an add-on runs is waited for.
const DefaultTimeout = 5 * time.Minute

// An Addon is what goes into the cluster.
type Addon struct {
	Name string
	// Objects are in the order in which they are applied.
	Objects []*unstructured.Unstructured
	// Namespace, if not nil, is one that is made where it is missing, and stays:
	// others may live in it, too.
	Namespace *unstructured.Unstructured
	// Hooks run around the objects, in this order.
	Hooks []Hook
	// Last are hooks around the deletion of the objects, in this order. They are kept
	// in the cluster, for the chart is not at hand any more when they run.
	Last []Hook
	// Sources say what it was made from, with checksums.
	Sources []string
	// Digest is over everything that is applied.
	Digest  string
	Wait    bool
	Timeout time.Duration
	Retries int
	// Serving is how it serves an API; nil if it serves none, or if its objects
	// say how.
	Serving *Serving
}

// A Loader makes add-ons.
type Loader struct {
	// Cache is the directory of what was downloaded.
	Cache string
	// HTTP downloads; nil is the default client.
	HTTP *http.Client
	// Insecure are registries that are asked over plain HTTP.
	Insecure []string
	// Speak says how a registry is spoken to, by its host; nil is with what docker
	// login keeps.
	Speak func(ctx context.Context, host string) ([]remote.Option, error)
	// Kubernetes is the cluster's version: "v1.37.1".
	Kubernetes string
	// Images are the release's, by short names.
	Images map[string]string
	// VerifiedKubelets says that kubelets show certificates of the cluster's
	// authority.
	VerifiedKubelets bool
}

// Load makes add-ons, in their order, with warnings. All that is wrong with them
// is one diag.List.
func (l Loader) Load(ctx context.Context, list []v1alpha1.Addon) ([]Addon, diag.List, error) {
	w := &work{Loader: l, scopes: scopes{}, apis: map[string]bool{}}
	var out []Addon
	for i, a := range list {
		w.path = fmt.Sprintf("spec.addons[%d]", i)
		made, err := w.load(ctx, a)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		var wrong diag.List
		if errors.As(err, &wrong) {
			w.wrong = append(w.wrong, wrong...)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		out = append(out, made)
	}
	w.twice(out)
	if err := w.wrong.Err(); err != nil {
		return nil, w.warnings, err
	}
	return out, w.warnings, nil
}

// work is one Load.
type work struct {
	Loader
	path     string // of the add-on in the file
	scopes   scopes
	apis     map[string]bool // group/version and group/version/Kind that add-ons so far define
	warnings diag.List
	wrong    diag.List
}

func (w *work) refuse(id, at, message, hint string) diag.List {
	return diag.List{{ID: id, Severity: diag.Error, Path: w.path + at, Message: message, Hint: hint}}
}

func (w *work) warn(id, at, message, hint string) {
	w.warnings = append(w.warnings, diag.Diagnostic{ID: id, Severity: diag.Warning, Path: w.path + at, Message: message, Hint: hint})
}

func (w *work) load(ctx context.Context, a v1alpha1.Addon) (Addon, error) {
	out := Addon{Name: a.Name, Wait: a.Wait == nil || *a.Wait, Timeout: DefaultTimeout, Retries: a.Retries}
	if a.Timeout != nil {
		out.Timeout = a.Timeout.Duration
	}
	var err error
	switch {
	case a.Chart != nil:
		err = w.chart(ctx, a, &out)
	case IsBundled(a):
		err = w.fromBundle(a, &out)
	default:
		err = w.manifests(ctx, a, &out)
	}
	if err != nil {
		return out, err
	}
	if len(out.Objects)+len(out.Hooks)+len(out.Last) == 0 {
		return out, w.refuse(IDUnusable, "", "add-on "+a.Name+" has no objects", "check that its files are not empty, and that its values do not disable everything")
	}
	w.learn(out.Objects)
	w.place(a, &out)
	for _, o := range out.ever() {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[Label] = a.Name
		o.SetLabels(labels)
	}
	out.Digest, err = digest(out)
	return out, err
}

// all are its objects and those of hooks, as long as it stays.
func (a Addon) all() []*unstructured.Unstructured {
	list := slices.Clone(a.Objects)
	for _, h := range a.Hooks {
		list = append(list, h.Object)
	}
	return list
}

// ever are all that it ever has in the cluster, when it is taken out, too.
func (a Addon) ever() []*unstructured.Unstructured {
	list := a.all()
	for _, h := range a.Last {
		list = append(list, h.Object)
	}
	return list
}

// place gives objects their namespace, and has it made.
func (w *work) place(a v1alpha1.Addon, out *Addon) {
	namespace := namespaceOf(a)
	own := false
	for _, o := range out.ever() {
		if w.scopes.whole(o) {
			o.SetNamespace("")
			own = own || o.GetKind() == "Namespace" && o.GetName() == namespace
		} else if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
	}
	if !own && !slices.Contains([]string{"default", "kube-system", "kube-public", "kube-node-lease"}, namespace) {
		out.Namespace = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
		}}
	}
}

// twice finds objects that two add-ons, or one add-on twice, would apply.
func (w *work) twice(list []Addon) {
	by := map[Ref]string{}
	for _, a := range list {
		for _, o := range a.all() {
			ref := RefOf(o)
			if first, ok := by[ref]; ok {
				w.wrong = append(w.wrong, diag.Diagnostic{
					ID: IDTwice, Severity: diag.Error, Path: "spec.addons",
					Message: fmt.Sprintf("%s is in add-on %s and in add-on %s", ref, first, a.Name),
					Hint:    "keep it in one add-on: otherwise each add-on undoes the changes of the other",
				})
			}
			by[ref] = a.Name
		}
	}
}

func digest(a Addon) (string, error) {
	parts := []any{a.Namespace}
	for _, o := range a.all() {
		parts = append(parts, o.Object)
	}
	raw, err := json.Marshal(parts) // keys of maps are sorted
	if err != nil {
		return "", fmt.Errorf("reading add-on %s: %w", a.Name, err)
	}
	return sum(raw), nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(s[:])
}
