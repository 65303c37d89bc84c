package addonsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/safefile"
)

// readChart reads a chart. A directory without a Chart.yaml is reported before all its
// files are read.
func readChart(file string) (*chart.Chart, error) {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		if _, err := os.Stat(filepath.Join(file, util.ChartfileName)); err != nil {
			return nil, errors.New("the chart has no " + util.ChartfileName)
		}
	}
	return loader.Load(file)
}

// readCached reads a chart archive from the cache.
func readCached(file string) (*chart.Chart, error) {
	f, err := safefile.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return loader.LoadArchive(f)
}

// loadChart renders the chart of an add-on: custom resource definitions first, then the
// output of its templates, in the order of their dependencies.
func (w *loadRun) loadChart(ctx context.Context, a v1alpha1.Addon, out *Addon) error {
	file, source, err := w.fetchChart(ctx, *a.Chart)
	if err != nil {
		return err
	}
	if source != "" {
		out.Sources = append(out.Sources, source)
	}
	read := readCached
	if a.Chart.Path != "" {
		read = readChart
	}
	c, err := read(file)
	if err != nil {
		return w.unreadableChart(*a.Chart, err)
	}
	if err := w.checkChart(c); err != nil {
		return err
	}
	values, err := w.mergeValues(a)
	if err != nil {
		return err
	}
	rendered, err := w.renderChart(ctx, a, c, values)
	if err != nil {
		return err
	}
	// Output that depends on random numbers, or on the time, would differ in each plan,
	// and would never be the planned one.
	again, err := w.renderChart(ctx, a, c, values)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if rendered[name] != again[name] {
			return w.refuseAddon(IDRandom, ".chart",
				name+" renders differently each time: it generates random passwords, keys or names, or includes the current time",
				"set the values that the chart would generate: a password, or the name of an existing Secret")
		}
	}
	return w.parseObjects(c, rendered, out)
}

func (w *loadRun) unreadableChart(c v1alpha1.Chart, err error) error {
	return w.refuseAddon(IDUnusable, ".chart", "the chart "+chartName(c)+" cannot be read: "+err.Error(),
		"set chart.path to a directory with a Chart.yaml, or to an archive of it; API version v3 is not supported yet")
}

// checkChart rejects a chart that cannot be rendered for this cluster.
func (w *loadRun) checkChart(c *chart.Chart) error {
	switch want := c.Metadata.KubeVersion; {
	case c.Metadata.Type == "library":
		return w.refuseAddon(IDUnusable, ".chart", "the chart "+c.Name()+" is a library chart", "name a chart that uses this library")
	case want != "" && !util.IsCompatibleRange(want, w.Kubernetes):
		return w.refuseAddon(IDRender, ".chart",
			fmt.Sprintf("the chart %s %s needs Kubernetes %s, but the cluster has %s", c.Name(), c.Metadata.Version, want, w.Kubernetes),
			"use a version of the chart that supports it")
	}
	have := map[string]bool{}
	for _, d := range c.Dependencies() {
		have[d.Name()] = true
	}
	for _, d := range c.Metadata.Dependencies {
		if !have[d.Name] {
			return w.refuseAddon(IDUnusable, ".chart", "the chart "+c.Name()+" needs the chart "+d.Name+", which it does not contain",
				"add the missing charts: helm dependency build DIRECTORY")
		}
	}
	return nil
}

// mergeValues merges the values: a later file overrides an earlier one, and the cluster file
// overrides all.
func (w *loadRun) mergeValues(a v1alpha1.Addon) (map[string]any, error) {
	out := map[string]any{}
	for i, file := range a.ValuesFiles {
		at := fmt.Sprintf(".valuesFiles[%d]", i)
		text, err := w.readLocal(at, file)
		if err != nil {
			return nil, err
		}
		var more map[string]any
		if err := yaml.UnmarshalStrict(text, &more); err != nil {
			return nil, w.refuseAddon(IDUnusable, at, file+": "+err.Error(), "write the values file as YAML: a mapping of names to values")
		}
		out = loader.MergeMaps(out, more)
	}
	return loader.MergeMaps(out, a.Values), nil
}

// renderChart renders the templates of a chart, by their names.
func (w *loadRun) renderChart(ctx context.Context, a v1alpha1.Addon, c *chart.Chart, values map[string]any) (map[string]string, error) {
	failed := func(err error) error {
		return w.refuseAddon(IDRender, ".chart", "the chart "+c.Name()+" cannot be rendered: "+strings.TrimSpace(err.Error()),
			"check the values; run 'helm template' with the same values to see the same error")
	}
	version, err := common.ParseKubeVersion(w.Kubernetes)
	if err != nil {
		return nil, failed(err)
	}
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	caps.APIVersions = append(slices.Clone(caps.APIVersions), slices.Sorted(maps.Keys(w.apis))...)
	// Dependencies that values disable are removed from the chart itself.
	if err := util.ProcessDependencies(c, values); err != nil {
		return nil, failed(err)
	}
	o := common.ReleaseOptions{Name: a.Name, Namespace: namespaceOf(a), Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, o, caps)
	if err != nil {
		return nil, failed(err)
	}
	var e engine.Engine
	texts, err := e.RenderWithContext(ctx, c, all)
	if err != nil {
		return nil, failed(err)
	}
	return texts, nil
}

// parseObjects parses the output of a chart.
func (w *loadRun) parseObjects(c *chart.Chart, texts map[string]string, out *Addon) error {
	for _, crd := range c.CRDObjects() {
		if err := w.decodeObjects(".chart", crd.Filename, crd.File.Data, out); err != nil {
			return err
		}
	}
	w.learnScopes(out.Objects)
	var made []*unstructured.Unstructured
	var not []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if path.Base(name) == "NOTES.txt" {
			continue
		}
		objects, err := kube.DecodeObjects([]byte(texts[name]))
		if err != nil {
			return w.refuseAddon(IDRender, ".chart", name+" does not render to Kubernetes objects: "+err.Error(), "check the values of the chart")
		}
		for _, o := range objects {
			removeServerFields(o)
			h, isHook, skipped := parseHook(o)
			if !isHook {
				made = append(made, o)
			}
			if h.runsOnChange() {
				out.Hooks = append(out.Hooks, h)
			}
			if h.runsOnDelete() {
				out.Last = append(out.Last, h)
			}
			for _, p := range skipped {
				not = append(not, p+" ("+RefOf(o).String()+")")
			}
		}
	}
	slices.SortStableFunc(made, func(a, b *unstructured.Unstructured) int { return installOrder(a) - installOrder(b) })
	sortHooks(out.Hooks)
	sortHooks(out.Last)
	out.Objects = append(out.Objects, made...)
	if len(not) > 0 {
		w.addWarning(IDChartHook, ".chart", "the chart "+c.Name()+" has hooks that Slipway does not run: "+strings.Join(not, ", "),
			"do the work of these hooks manually when you roll the add-on back to an older version")
	}
	return w.checkStorable(out)
}

// kindOrder is the order of a chart's objects by their dependencies.
var kindOrder = []string{
	"PriorityClass", "Namespace", "NetworkPolicy", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount", "Secret",
	"ConfigMap", "StorageClass", "PersistentVolume", "PersistentVolumeClaim", "CustomResourceDefinition", "ClusterRole",
	"ClusterRoleBinding", "Role", "RoleBinding", "Service", "DaemonSet", "Pod", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler",
	"StatefulSet", "Job", "CronJob", "IngressClass", "Ingress", "APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

// installOrder returns the position of an object. Unknown kinds, including kinds that the
// chart defines, come last.
func installOrder(o *unstructured.Unstructured) int {
	if i := slices.Index(kindOrder, o.GetKind()); i >= 0 {
		return i
	}
	return len(kindOrder)
}

func namespaceOf(a v1alpha1.Addon) string {
	if a.Namespace == "" {
		return "default"
	}
	return a.Namespace
}

// chartName returns the name of a chart for people.
func chartName(c v1alpha1.Chart) string {
	if c.Path != "" {
		return c.Path
	}
	return c.Name + " " + c.Version
}
