package lifecycle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

const (
	shopMap       = "/api/v1/namespaces/shop/configmaps/prices"
	shopDeploy    = "/apis/apps/v1/namespaces/shop/deployments/shop"
	shopRole      = "/apis/rbac.authorization.k8s.io/v1/clusterroles/shop"
	shopNamespace = "/api/v1/namespaces/shop"
	newsMap       = "/api/v1/namespaces/default/configmaps/news"
	shopInventory = "/api/v1/namespaces/kube-system/configmaps/slipway-addon-shop"
)

const shopText = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec: {replicas: 2, selector: {matchLabels: {app: shop}}, image: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: prices}
data: {apple: "1"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop}
`

const newsText = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "news"}, "data": {"today": "none"}}`

// manifest writes a file below dir.
func manifest(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// with describes the cluster with these add-ons.
func (w *world) with(list ...v1alpha1.Addon) *v1alpha1.Cluster {
	c := w.Manifest()
	c.Spec.Addons = list
	return c
}

// has returns the objects in this list that the cluster has.
func (w *world) has(paths ...string) (out []string) {
	for _, p := range paths {
		if w.API.HasObject(p) {
			out = append(out, p)
		}
	}
	return out
}

// settled checks that nothing is left to do.
func (w *world) settled(c *v1alpha1.Cluster) {
	w.t.Helper()
	if p := w.plan(c); !p.IsEmpty() {
		w.t.Errorf("there is something left to do: %+v", p.Steps)
	}
}

func (w *world) plan(c *v1alpha1.Cluster) *plan.Plan {
	w.t.Helper()
	p := w.prepared(w.service().Prepare(w.t.Context(), applying(c), nil))
	if err := p.Close(); err != nil {
		w.t.Error(err)
	}
	return p.Plan()
}

// told returns a plan's changes of add-ons.
func told(p *plan.Plan) (out []string) {
	for _, s := range p.Steps {
		if !strings.HasPrefix(s.Task, "addon.") {
			continue
		}
		for _, c := range s.Changes {
			summary, _, _ := strings.Cut(c.Summary, "sha256:")
			out = append(out, s.Task+": "+string(c.Kind)+" "+c.Target+": "+strings.TrimRight(summary, ", "))
		}
	}
	return out
}

// TestAddons_MatchClusterFileAfterApply creates a cluster with two add-ons, changes them, repairs manual changes, and
// removes them.
func TestAddons_MatchClusterFileAfterApply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shop := v1alpha1.Addon{Name: "shop", Namespace: "shop", Manifests: []string{filepath.Dir(manifest(t, dir, "shop/shop.yaml", shopText))}}
	news := v1alpha1.Addon{Name: "news", Manifests: []string{manifest(t, dir, "news.json", newsText)}}
	w := newWorld(t, "cp1", "w1")
	w.API.PutObject(newsMap,
		object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "news", "namespace": "default"},
			"data": object{"old": "kept"},
		})
	both := w.with(shop, news)
	w.do(creating(both), event.Succeeded)
	all := []string{shopMap, shopDeploy, shopRole, shopNamespace, newsMap, shopInventory}
	if d := cmp.Diff(all, w.has(all...)); d != "" {
		t.Fatalf("after create (-want +got):\n%s", d)
	}
	w.settled(both)

	t.Run("changed by hand", func(t *testing.T) {
		w := w.fork(t)
		w.API.PutObject(shopMap, lifecycletest.MergePatch(lifecycletest.CopyObject(w.API.Objects[shopMap]), object{"data": object{"apple": "9"}}))
		w.API.RemoveObject(shopDeploy)
		p := w.plan(both)
		want := []string{"addon.shop: object Deployment shop/shop: create", "addon.shop: object ConfigMap shop/prices: update"}
		if d := cmp.Diff(want, told(p)); d != "" || len(p.Steps) != 1 {
			t.Errorf("(-want +got):\n%s", d)
		}
		w.do(applying(both), event.Succeeded)
		w.settled(both)
		if got := w.API.Objects[shopMap]["data"]; cmp.Diff(object{"apple": "1"}, got) != "" || !w.API.HasObject(shopDeploy) {
			t.Errorf("the prices are %v", got)
		}
	})

	t.Run("changed in the file", func(t *testing.T) {
		w := w.fork(t)
		less := shop
		less.Manifests = []string{manifest(t, t.TempDir(), "shop.yaml",
			strings.Replace(strings.SplitAfter(shopText, "---\n")[0]+strings.SplitAfter(shopText, "---\n")[1], `"1"`, `"2"`, 1))}
		c := w.with(less, news)
		want := []string{
			"addon.shop: add-on shop: change to", "addon.shop: object ConfigMap shop/prices: update",
			"addon.shop: object ClusterRole shop: delete",
		}
		if d := cmp.Diff(want, told(w.plan(c))); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		w.do(applying(c), event.Succeeded)
		w.settled(c)
		if d := cmp.Diff([]string{shopMap, shopDeploy, shopNamespace, newsMap, shopInventory}, w.has(all...)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})

	t.Run("removed", func(t *testing.T) {
		w := w.fork(t)
		// the object belongs to another owner now
		w.API.PutObject(shopRole, object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": "shop"}})
		none := w.with()
		want := []string{
			"addon.removed: add-on shop: remove",
			"addon.removed: object ConfigMap shop/prices: delete",
			"addon.removed: object Deployment shop/shop: delete",
			"addon.removed: add-on news: remove",
			"addon.removed: object ConfigMap default/news: keep: it existed before the add-on",
		}
		p := w.plan(none)
		if d := cmp.Diff(want, told(p)); d != "" || len(p.Removes) > 0 {
			t.Errorf("(-want +got):\n%s\nlost: %v", d, p.Removes)
		}
		w.do(applying(none), event.Succeeded)
		w.settled(none)
		if d := cmp.Diff([]string{shopRole, shopNamespace, newsMap}, w.has(all...)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if l := w.API.Objects[newsMap]["metadata"].(object)["labels"].(object); len(l) > 0 {
			t.Errorf("the object that existed before still has labels: %v", l)
		}
	})

	t.Run("renamed", func(t *testing.T) {
		w := w.fork(t)
		other := shop
		other.Name = "market"
		c := w.with(other, news)
		w.do(applying(c), event.Succeeded)
		w.settled(c)
		if d := cmp.Diff([]string{shopMap, shopDeploy, shopRole, shopNamespace, newsMap}, w.has(all...)); d != "" {
			t.Errorf("objects that moved to another add-on (-want +got):\n%s", d)
		}
	})
}

// The plan lists an object as a loss if its removal also deletes other objects.
func TestPlan_ListsObjectsDeletedWithNamespace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := v1alpha1.Addon{
		Name: "shop",
		Manifests: []string{manifest(t, dir, "shop.yaml",
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n"+strings.Split(shopText, "---\n")[1])}, Namespace: "shop",
	}
	w := newWorld(t, "cp1")
	w.do(creating(w.with(a)), event.Succeeded)
	if d := cmp.Diff([]string{"Namespace shop and everything in it"}, w.plan(w.with()).Removes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// An add-on that does not work with the Kubernetes version is refused before a host is
// queried, unless the check is ignored.
func TestCreate_RefusesAddonOfAnotherMinor(t *testing.T) {
	t.Parallel()
	a := v1alpha1.Addon{
		Name: "news", Manifests: []string{manifest(t, t.TempDir(), "news.json", newsText)},
		Kubernetes: []string{"1.35", "1.36"},
	}
	w := newWorld(t, "cp1")
	_, err := w.service().Prepare(t.Context(), creating(w.with(a)), nil)
	var list diag.List
	if !errors.As(err, &list) || len(list) != 1 || list[0].ID != addonsource.IDKubernetes {
		t.Fatalf("got %v", err)
	}
	r := creating(w.with(a))
	r.IgnoreChecks = []string{addonsource.IDKubernetes}
	w.do(r, event.Succeeded)
	if !w.API.HasObject(newsMap) {
		t.Error("the check is ignored, but the add-on is missing")
	}
}

// A wrong manifest is reported before a host is queried.
func TestCreate_RefusesWrongManifestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.Dials = map[string]bool{}
	a := v1alpha1.Addon{Name: "news", Manifests: []string{manifest(t, t.TempDir(), "news.yaml", "kind: ConfigMap\n")}}
	_, err := w.service().Prepare(t.Context(), creating(w.with(a)), nil)
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != addonsource.IDUnusable || !strings.Contains(list[0].Message, "news.yaml") {
		t.Errorf("got %v", err)
	}
	if len(w.Dials) > 0 {
		t.Errorf("connected to %v", w.Dials)
	}
}

// The operation has the same result after a kill at any moment.
func TestAddons_SameResultAfterKill(t *testing.T) {
	dir := t.TempDir()
	shop := v1alpha1.Addon{Name: "shop", Namespace: "shop", Manifests: []string{manifest(t, dir, "shop.yaml", shopText)}}
	news := v1alpha1.Addon{Name: "news", Manifests: []string{manifest(t, dir, "news.json", newsText)}}
	w := newWorld(t, "cp1", "w1")
	w.do(creating(w.with(shop)), event.Succeeded)
	c := w.with(news)
	all := []string{shopMap, shopDeploy, shopRole, newsMap, shopInventory}
	// Each request that changes something counts as a moment, too.
	var cuts []moment
	w.API.OnWrite = func(what string) {
		if strings.Contains(what, "/nodes/") {
			return
		}
		cuts = append(cuts, moment{what, w.fork(t)})
	}
	moments := w.killed(t, applying(c))
	w.API.OnWrite = nil
	if len(cuts) < 5 {
		t.Errorf("only %d requests changed something", len(cuts))
	}
	for _, m := range slices.Concat(moments, cuts) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(applying(c))
			k.settled(c)
			if d := cmp.Diff([]string{newsMap}, k.has(all...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			k.same(w)
		})
	}
}

// webChart makes a chart with a hook before and a hook after each change.
func webChart(t *testing.T, price string) string {
	dir := t.TempDir()
	manifest(t, dir, "Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n")
	manifest(t, dir, "values.yaml", "price: \""+price+"\"\n")
	manifest(t, dir, "templates/all.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prices}\ndata: {apple: {{ .Values.price | quote }}}\n---\n"+
			"apiVersion: batch/v1\nkind: Job\nmetadata: {name: before, "+
			"annotations: {helm.sh/hook: \"pre-install,pre-upgrade\", helm.sh/hook-delete-policy: hook-succeeded}}\n---\n"+
			"apiVersion: batch/v1\nkind: Job\nmetadata: {name: after, annotations: {helm.sh/hook: post-install}}\n")
	return dir
}

// The hooks of a chart run when the chart is new or has changed, not when an object is
// repaired. They are removed with the chart.
func TestChartHooks_RunWhenChartChanges(t *testing.T) {
	t.Parallel()
	const job = "/apis/batch/v1/namespaces/shop/jobs/"
	w := newWorld(t, "cp1")
	var wrote []string
	w.API.OnWrite = func(what string) {
		if strings.Contains(what, "/namespaces/shop/") {
			wrote = append(wrote, strings.Replace(what, "/namespaces/shop", "", 1))
		}
	}
	did := func(c *v1alpha1.Cluster, want ...string) {
		t.Helper()
		wrote = nil
		if w.API.Objects[shopInventory] == nil {
			w.do(creating(c), event.Succeeded)
		} else {
			w.do(applying(c), event.Succeeded)
		}
		if d := cmp.Diff(want, wrote); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		w.settled(c)
	}
	with := func(price string) *v1alpha1.Cluster {
		return w.with(v1alpha1.Addon{Name: "shop", Namespace: "shop", Chart: &v1alpha1.Chart{Path: webChart(t, price)}})
	}
	first := with("1")
	did(first, "PATCH /apis/batch/v1/jobs/before", "DELETE /apis/batch/v1/jobs/before", "PATCH /api/v1/configmaps/prices",
		"PATCH /apis/batch/v1/jobs/after")
	w.API.RemoveObject(shopMap)
	did(first, "PATCH /api/v1/configmaps/prices")
	did(with("2"), "PATCH /apis/batch/v1/jobs/before", "DELETE /apis/batch/v1/jobs/before", "PATCH /api/v1/configmaps/prices")
	if !w.API.HasObject(job + "after") {
		t.Error("a hook without a delete policy was deleted")
	}
	did(w.with(), "DELETE /apis/batch/v1/jobs/after", "DELETE /api/v1/configmaps/prices")
}

// An object that existed before the chart does not belong to the chart, even if a hook has
// the same name. It is neither recreated nor deleted.
func TestChartHooks_KeepForeignObject(t *testing.T) {
	t.Parallel()
	const job = "/apis/batch/v1/namespaces/shop/jobs/before"
	w := newWorld(t, "cp1")
	w.API.PutObject(shopNamespace, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "shop"}})
	w.API.PutObject(job, object{
		"apiVersion": "batch/v1", "kind": "Job",
		"metadata": object{"name": "before", "namespace": "shop", "uid": "mine"},
		"status":   object{"conditions": []any{object{"type": "Complete", "status": "True"}}},
	})
	var gone []string
	w.API.OnWrite = func(what string) {
		if strings.HasPrefix(what, "DELETE") && strings.HasSuffix(what, "jobs/before") {
			gone = append(gone, what)
		}
	}
	with := func(price string) *v1alpha1.Cluster {
		return w.with(v1alpha1.Addon{Name: "shop", Namespace: "shop", Chart: &v1alpha1.Chart{Path: webChart(t, price)}})
	}
	w.do(creating(with("1")), event.Succeeded)
	w.do(applying(with("2")), event.Succeeded)
	w.do(applying(w.with()), event.Succeeded)
	if len(gone) > 0 || !w.API.HasObject(job) {
		t.Errorf("a foreign job was deleted: %v", gone)
	}
	if w.API.HasObject(shopMap) {
		t.Error("an object of the chart still exists")
	}
}

// Rolling an upgrade step back also restores the add-ons that changed after it. An add-on
// whose previous manifests are lost keeps its new state and does not block the rollback.
func TestRollbackUpgrade_RestoresAddons(t *testing.T) {
	t.Parallel()
	const oldest = "v1.35.6" // its etcd is of the same minor as the next one's
	build(t, oldest)
	built.older.Do(func() { build(t, older) })
	for name, lost := range map[string]bool{"back": false, "left": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := newWorld(t, "cp1", "w1")
			w.Version = oldest
			was := v1alpha1.Addon{Name: "news", Manifests: []string{manifest(t, dir, "news.json", newsText)}}
			script := manifest(t, dir, "hook.sh", "#!/bin/sh\n")
			with := func(a v1alpha1.Addon) *v1alpha1.Cluster {
				c := w.with(a)
				c.Spec.Hooks = []v1alpha1.Hook{{Name: "x", Phase: v1alpha1.HookPostUpgrade, Script: script}}
				return c
			}
			w.do(creating(with(was)), event.Succeeded)
			w.backable(t)
			w.Version = ""
			next := was
			next.Manifests = []string{manifest(t, t.TempDir(), "news.json", strings.Replace(newsText, "none", "all", 1))}
			file := with(next)
			file.Spec.Kubernetes.Version = older
			w.refusing("w1", "hooks.postUpgrade.x")
			w.do(UpgradeRequest{Subject: Subject{Cluster: file, Name: "prod"}, Version: older}, event.Failed)
			w.Hosts["w1"].Refuse = nil
			want := "none"
			if today := w.API.Objects[newsMap]["data"].(object)["today"]; today != "all" {
				t.Fatalf("before the rollback, today is %v", today)
			}
			if lost {
				want = "all"
				if err := os.Remove(was.Manifests[0]); err != nil {
					t.Fatal(err)
				}
			}
			p := w.prepared(w.service().PrepareRollback(t.Context(), rollingBack(), nil))
			if told := p.Findings().Warnings(); lost != (len(told) > 0 && told[0].ID == addonsource.IDUnusable) {
				t.Errorf("got %v", told)
			}
			w.apply(p, event.Succeeded)
			w.wantVersions(all([]string{"cp1", "w1"}, oldest))
			if today := w.API.Objects[newsMap]["data"].(object)["today"]; today != want {
				t.Errorf("today is %v, want %s", today, want)
			}
		})
	}
}

// An upgrade is refused if an add-on does not work with a version of the path. The file
// may have another add-on, which replaces it during the upgrade.
func TestUpgrade_RefusesAddonOfAnotherMinor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	news := v1alpha1.Addon{Name: "news", Manifests: []string{manifest(t, dir, "news.json", newsText)}, Kubernetes: []string{"1.36"}}
	built.older.Do(func() { build(t, older) })
	begun := func(t *testing.T) *world {
		w := newWorld(t, threeAndTwo...)
		w.Version = older
		w.do(creating(w.with(news)), event.Succeeded)
		w.backable(t)
		return w
	}
	_, err := begun(t).service().Prepare(t.Context(), toNewest, nil)
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != addonsource.IDKubernetes || !strings.Contains(list[0].Message, "v1.37.1") {
		t.Fatalf("got %v", err)
	}
	t.Run("check ignored", func(t *testing.T) {
		w := begun(t)
		r := toNewest
		r.IgnoreChecks = []string{addonsource.IDKubernetes}
		w.do(r, event.Succeeded)
		w.wantVersions(all(threeAndTwo, "v1.37.1"))
	})
	t.Run("another add-on in the file", func(t *testing.T) {
		w := begun(t)
		w.Version = ""
		other := news
		other.Manifests = []string{manifest(t, t.TempDir(), "news.json", strings.Replace(newsText, "none", "all", 1))}
		other.Kubernetes = []string{"1.37"}
		file := w.with(other)
		file.Spec.Kubernetes.Version = "v1.37.1"
		w.do(UpgradeRequest{Subject: Subject{Cluster: file, Name: "prod"}, Version: "v1.37.1"}, event.Succeeded)
		if today := w.API.Objects[newsMap]["data"].(object)["today"]; today != "all" {
			t.Errorf("today is %v", today)
		}
		w.settled(file)
	})
}

// An add-on that does not work with a version of the upgrade path is reported with all
// other problems of the upgrade.
func TestUpgrade_ReportsAddonsWithAllProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	news := v1alpha1.Addon{Name: "news", Manifests: []string{manifest(t, dir, "news.json", newsText)}, Kubernetes: []string{"1.35", "1.36"}}
	manifest(t, dir, "web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\nkubeVersion: '<1.37'\n")
	manifest(t, dir, "web/templates/all.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")
	web := v1alpha1.Addon{Name: "web", Chart: &v1alpha1.Chart{Path: filepath.Join(dir, "web")}}
	w := newWorld(t, "cp1", "w1")
	built.older.Do(func() { build(t, older) })
	w.Version = older
	w.do(creating(w.with(news, web)), event.Succeeded)
	w.backable(t)
	w.API.MarkNodeLost("w1")
	want := []string{addonsource.IDKubernetes, addonsource.IDRender, "upgrade-node-unready"}
	report, err := w.service().Precheck(t.Context(), toNewest, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.service().Prepare(t.Context(), toNewest, nil)
	var list diag.List
	if !errors.As(err, &list) {
		t.Fatalf("%v, want a refusal", err)
	}
	for name, got := range map[string]diag.List{"report": report.Errors(), "refusal": list} {
		if d := cmp.Diff(want, idsOf(got)); d != "" ||
			!strings.Contains(got.Error(), "add-on news works with Kubernetes 1.35, 1.36, but not with v1.37.1") ||
			!strings.Contains(got.Error(), "the chart web 1.0.0 needs Kubernetes <1.37") {
			t.Errorf("the %s (-want +got):\n%s\n%v", name, d, got)
		}
	}
	w.wantVersions(map[string]string{"cp1": older, "w1": older})

	s := w.service()
	c, err := s.Cluster(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	c.Spec.Kubernetes.Version, c.Status.Version = "v1.35.6", "v1.35.6"
	r := UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.37.1"}
	p := s.start(r)
	p.recorded = c
	next, err := r.nextMinor(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if p.env, err = s.bundles.Environment(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := p.loadAddons(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want[:2], idsOf(p.told.Errors())); d != "" || p.env.Release.Kubernetes != older {
		t.Errorf("before the hop to %s (-want +got):\n%s", p.env.Release.Kubernetes, d)
	}
}

// A problem of an add-on is reported with its line and column in the cluster file.
func TestCreate_ReportsAddonWithLineAndColumn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	bad := manifest(t, t.TempDir(), "bad.yaml", "kind: ConfigMap\n")
	file := "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n" +
		"  hosts: [{name: cp1, address: 192.0.2.11, roles: [control-plane]}]\n" +
		"  addons:\n    - name: good\n      manifests: [" + manifest(t, t.TempDir(), "good.json", newsText) + "]\n" +
		"    - name: bad\n      manifests:\n        - " + bad + "\n"
	loaded, err := spec.Load("prod.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.service().Prepare(t.Context(),
		CreateRequest{Subject: Subject{Cluster: loaded.Cluster, Source: []byte(file), File: "prod.yaml"}}, nil)
	var list diag.List
	if !errors.As(err, &list) || len(list) != 1 || list[0].File != "prod.yaml" || list[0].Line != 11 || list[0].Column != 11 {
		t.Errorf("got %+v, %v", list, err)
	}
}

// During an upgrade, each minor version uses the add-ons that fit it, from the file or
// from the saved cluster; the last one uses the add-ons of the file.
func TestNextAddons_ReturnsAddonsThatFitEachMinor(t *testing.T) {
	t.Parallel()
	of := func(name, image string, minors ...string) v1alpha1.Addon {
		return v1alpha1.Addon{Name: name, Namespace: image, Kubernetes: minors}
	}
	was := []v1alpha1.Addon{
		of("both", "old", "1.35", "1.36"), of("dropped", "old", "1.35", "1.36"),
		of("unfit", "old", "1.35"), of("same", "old"),
	}
	file := []v1alpha1.Addon{of("same", "old"), of("both", "new", "1.37"), of("later", "new", "1.37"), of("soon", "new", "1.36", "1.37")}
	say := func(list []v1alpha1.Addon) (out []string) {
		for _, a := range list {
			out = append(out, a.Name+" "+a.Namespace)
		}
		return out
	}
	if d := cmp.Diff([]string{"dropped old", "same old", "both old", "soon new"}, say(nextAddons(was, file, "v1.36.4", false))); d != "" {
		t.Errorf("on the way (-want +got):\n%s", d)
	}
	if d := cmp.Diff(say(file), say(nextAddons(was, file, "v1.37.1", true))); d != "" {
		t.Errorf("at the end (-want +got):\n%s", d)
	}
}
