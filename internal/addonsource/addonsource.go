// Package addonsource loads the objects of add-ons: manifests and charts, from files, the
// network and the cache. It does not access a cluster, so that all problems of an add-on
// are known before anything is changed.
package addonsource

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

// IDs of problems with add-ons, each with an entry in docs/guide/errors.md; they never
// change.
const (
	// IDKubernetes: an add-on does not support the cluster's version. It can be ignored.
	IDKubernetes = "addons"
	// IDUnusable: the content of an add-on cannot be read, or is not valid.
	IDUnusable = "addon-unusable"
	// IDDownload: a manifest or a chart cannot be downloaded.
	IDDownload = "addon-download"
	// IDOffline: the copy in the cache is used, because the source does not answer.
	IDOffline = "addon-offline"
	// IDChecksum: a download does not match the pinned or announced checksum.
	IDChecksum = "addon-checksum"
	// IDRender: a chart cannot be rendered.
	IDRender = "addon-render"
	// IDRandom: a chart renders differently each time.
	IDRandom = "addon-random"
	// IDChartHook: a chart has hooks that Slipway does not run.
	IDChartHook = "addon-chart-hook"
	// IDHookFailed: a hook for the deletion of an add-on failed, or cannot be read.
	IDHookFailed = "addon-hook-failed"
	// IDTwice: two add-ons have the same object.
	IDTwice = "addon-object-twice"
)

// Label is a label on every object of an add-on, with the name of the add-on.
const Label = "slipway.dev/addon"

// DefaultTimeout limits the wait for the workloads of an add-on.
const DefaultTimeout = 5 * time.Minute

// An Addon is an add-on for the cluster.
type Addon struct {
	Name string
	// Objects are in the order in which they are applied.
	Objects []*unstructured.Unstructured
	// Namespace, if not nil, is created if it is missing, and is not deleted, because
	// other objects can be in it.
	Namespace *unstructured.Unstructured
	// Hooks run around the objects, in this order.
	Hooks []Hook
	// Last lists hooks around the deletion of the objects, in this order. They are stored
	// in the cluster, because the chart is no longer available when they run.
	Last []Hook
	// Sources describes the sources of the content, with checksums.
	Sources []string
	// Digest covers everything that is applied.
	Digest  string
	Wait    bool
	Timeout time.Duration
	Retries int
	// Serving describes how it serves an API; nil if it serves none, or if its objects
	// describe it.
	Serving *Serving
}

// A Loader loads add-ons.
type Loader struct {
	// Cache is the directory for downloads.
	Cache string
	// HTTP is the client for downloads; nil is the default client.
	HTTP *http.Client
	// Insecure lists registries that are accessed over plain HTTP.
	Insecure []string
	// Speak returns the access to a registry, by its host; nil uses the credentials of
	// docker login.
	Speak func(ctx context.Context, host string) ([]remote.Option, error)
	// Kubernetes is the cluster's version: "v1.37.1".
	Kubernetes string
	// Images are the images of the release, by short names.
	Images map[string]string
	// VerifiedKubelets reports whether kubelets have certificates from the cluster's CA.
	VerifiedKubelets bool
}

// Load loads add-ons in order, with warnings. All their problems are in one diag.List.
func (l Loader) Load(ctx context.Context, list []v1alpha1.Addon) ([]Addon, diag.List, error) {
	w := &loadRun{Loader: l, scopes: scopes{}, apis: map[string]bool{}}
	var out []Addon
	for i, a := range list {
		w.path = fmt.Sprintf("spec.addons[%d]", i)
		made, err := w.loadAddon(ctx, a)
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
	w.refuseDuplicates(out)
	if err := w.wrong.Err(); err != nil {
		return nil, w.warnings, err
	}
	return out, w.warnings, nil
}

// loadRun is the state of one Load.
type loadRun struct {
	Loader
	path     string // of the add-on in the file
	scopes   scopes
	apis     map[string]bool // group/version and group/version/Kind that earlier add-ons define
	warnings diag.List
	wrong    diag.List
}

func (w *loadRun) refuseAddon(id, at, message, hint string) diag.List {
	return diag.List{{ID: id, Severity: diag.Error, Path: w.path + at, Message: message, Hint: hint}}
}

func (w *loadRun) addWarning(id, at, message, hint string) {
	w.warnings = append(w.warnings, diag.Diagnostic{ID: id, Severity: diag.Warning, Path: w.path + at, Message: message, Hint: hint})
}

func (w *loadRun) loadAddon(ctx context.Context, a v1alpha1.Addon) (Addon, error) {
	out := Addon{Name: a.Name, Wait: a.Wait == nil || *a.Wait, Timeout: DefaultTimeout, Retries: a.Retries}
	if a.Timeout != nil {
		out.Timeout = a.Timeout.Duration
	}
	var err error
	switch {
	case a.Chart != nil:
		err = w.loadChart(ctx, a, &out)
	case IsBundled(a):
		err = w.renderBundled(a, &out)
	default:
		err = w.readManifests(ctx, a, &out)
	}
	if err != nil {
		return out, err
	}
	if len(out.Objects)+len(out.Hooks)+len(out.Last) == 0 {
		return out, w.refuseAddon(IDUnusable, "", "add-on "+a.Name+" has no objects",
			"check that its files are not empty, and that its values do not disable everything")
	}
	w.learnScopes(out.Objects)
	w.setNamespaces(a, &out)
	for _, o := range out.allObjects() {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[Label] = a.Name
		o.SetLabels(labels)
	}
	out.Digest, err = addonDigest(out)
	return out, err
}

// installedObjects returns its objects and the objects of its hooks, while it is installed.
func (a Addon) installedObjects() []*unstructured.Unstructured {
	list := slices.Clone(a.Objects)
	for _, h := range a.Hooks {
		list = append(list, h.Object)
	}
	return list
}

// allObjects returns all objects that it ever has in the cluster, also during its removal.
func (a Addon) allObjects() []*unstructured.Unstructured {
	list := a.installedObjects()
	for _, h := range a.Last {
		list = append(list, h.Object)
	}
	return list
}

// setNamespaces sets the namespace of objects, and adds the namespace.
func (w *loadRun) setNamespaces(a v1alpha1.Addon, out *Addon) {
	namespace := namespaceOf(a)
	own := false
	for _, o := range out.allObjects() {
		if w.scopes.isClusterScoped(o) {
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

// refuseDuplicates finds objects that two add-ons, or one add-on twice, would apply.
func (w *loadRun) refuseDuplicates(list []Addon) {
	by := map[Ref]string{}
	for _, a := range list {
		for _, o := range a.installedObjects() {
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

func addonDigest(a Addon) (string, error) {
	parts := []any{a.Namespace}
	for _, o := range a.installedObjects() {
		parts = append(parts, o.Object)
	}
	raw, err := json.Marshal(parts) // map keys are sorted
	if err != nil {
		return "", fmt.Errorf("reading add-on %s: %w", a.Name, err)
	}
	return digestOf(raw), nil
}

func digestOf(data []byte) string {
	s := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(s[:])
}
