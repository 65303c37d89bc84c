package lifecycle

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
)

const (
	shopKept  = "/api/v1/namespaces/kube-system/secrets/slipway-addon-shop"
	shopJobs  = "/apis/batch/v1/namespaces/shop/jobs/"
	swordfish = "swordfish" // a secret value
)

// byeChart makes a chart with deletion hooks. Their order in the chart differs from the
// order of their weights.
func byeChart(t *testing.T) string {
	dir := t.TempDir()
	hook := func(kind, name, more string) string {
		return "kind: " + kind + "\nmetadata: {name: " + name + ", annotations: {" + more + "}}\n---\n"
	}
	manifest(t, dir, "Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n")
	manifest(t, dir, "templates/all.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prices}\n---\n"+
		"apiVersion: batch/v1\n"+
		hook("Job", "stop", `helm.sh/hook: pre-delete, helm.sh/hook-weight: "5", helm.sh/hook-delete-policy: hook-succeeded`)+
		"apiVersion: batch/v1\n"+hook("Job", "warn", `helm.sh/hook: pre-delete, helm.sh/hook-weight: "-1"`)+
		"apiVersion: batch/v1\n"+hook("Job", "clean", "helm.sh/hook: post-delete")+
		"apiVersion: v1\nstringData: {password: "+swordfish+"}\n"+
		hook("Secret", "key", `helm.sh/hook: "pre-delete,post-delete", helm.sh/hook-weight: "-5"`))
	return dir
}

// A dropping is a world with a chart that has deletion hooks.
type dropping struct {
	*world
	chart v1alpha1.Addon
	wrote []string
}

func newDropping(t *testing.T) *dropping {
	l := &dropping{
		world: newWorld(t, "cp1"),
		chart: v1alpha1.Addon{Name: "shop", Namespace: "shop", Chart: &v1alpha1.Chart{Path: byeChart(t)}},
	}
	l.listen()
	l.do(creating(l.with(l.chart)), event.Succeeded)
	if d := cmp.Diff([]string{
		"PATCH configmaps/slipway-addon-shop", "PATCH secrets/slipway-addon-shop",
		"PATCH configmaps/prices", "PATCH configmaps/slipway-addon-shop",
	}, l.did()); d != "" {
		t.Fatalf("requests of the installation (-want +got):\n%s", d)
	}
	l.settled(l.with(l.chart))
	return l
}

// listen records every change to the objects of the add-on.
func (l *dropping) listen() {
	l.API.OnWrite = func(what string) {
		if verb, p, _ := strings.Cut(what, " "); strings.Contains(p, "/namespaces/shop/") || strings.Contains(p, "slipway-addon-") {
			l.wrote = append(l.wrote, verb+" "+filepath.Base(filepath.Dir(p))+"/"+filepath.Base(p))
		}
	}
}

// did returns the changes since the previous call.
func (l *dropping) did() []string {
	defer func() { l.wrote = nil }()
	return l.wrote
}

func (l *dropping) fork(t *testing.T) *dropping {
	f := &dropping{world: l.world.fork(t), chart: l.chart}
	f.listen()
	return f
}

// limit sets the time limit of the deletion hooks.
func (l *dropping) limit(d time.Duration) {
	l.t.Helper()
	o := lifecycletest.CopyObject(l.API.Objects[shopKept])
	raw, err := base64.StdEncoding.DecodeString(o["data"].(object)["hooks"].(string))
	if err != nil {
		l.t.Fatal(err)
	}
	f, err := addonsource.DecodeDeleteHooks(raw)
	if err != nil {
		l.t.Fatal(err)
	}
	f.Timeout = d
	if raw, err = f.Encode(); err != nil {
		l.t.Fatal(err)
	}
	o["data"] = object{"hooks": base64.StdEncoding.EncodeToString(raw)}
	l.API.PutObject(shopKept, o)
}

// gone checks that nothing is left of the add-on.
func (l *dropping) gone() {
	l.t.Helper()
	l.settled(l.with())
	for p := range l.API.Objects {
		if strings.Contains(p, "/namespaces/shop/") || strings.Contains(p, "slipway-addon-") {
			l.t.Errorf("%s still exists", p)
		}
	}
}

// The requests that removing the add-on sends, in their order.
var (
	beforeHooks = []string{
		"PATCH configmaps/slipway-addon-shop",
		"PATCH secrets/key", "PATCH jobs/warn", "PATCH jobs/stop", "DELETE jobs/stop",
		"PATCH configmaps/slipway-addon-shop",
	}
	afterHooks = []string{
		"DELETE configmaps/prices",
		"DELETE secrets/key", "PATCH secrets/key", "PATCH jobs/clean",
	}
	leftovers    = []string{"DELETE jobs/clean", "DELETE jobs/warn", "DELETE secrets/key"}
	offTheRecord = []string{"DELETE secrets/slipway-addon-shop", "DELETE configmaps/slipway-addon-shop"}
)

// Installing a chart saves its deletion hooks in the cluster. Removing the add-on runs
// them without the directory of the chart.
func TestDeletionHooks_RunWithoutChartDirectory(t *testing.T) {
	t.Parallel()
	l := newDropping(t)
	if err := os.RemoveAll(l.chart.Chart.Path); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"addon.removed: add-on shop: remove",
		"addon.removed: chart hook Secret shop/key: [pre-delete]",
		"addon.removed: chart hook Job shop/warn: [pre-delete]",
		"addon.removed: chart hook Job shop/stop: [pre-delete]",
		"addon.removed: object ConfigMap shop/prices: delete",
		"addon.removed: chart hook Secret shop/key: [post-delete]",
		"addon.removed: chart hook Job shop/clean: [post-delete]",
	}
	if d := cmp.Diff(want, told(l.plan(l.with()))); d != "" {
		t.Errorf("the plan (-want +got):\n%s", d)
	}
	l.do(applying(l.with()), event.Succeeded)
	if d := cmp.Diff(slices.Concat(beforeHooks, afterHooks, leftovers, offTheRecord), l.did()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	l.gone()
}

// The secrets of a hook are kept only in a Secret.
func TestDeletionHooks_KeptOnlyInSecret(t *testing.T) {
	t.Parallel()
	l := newDropping(t)
	l.API.JobResults = map[string]string{"warn": "Failed"}
	l.do(applying(l.with()), event.Failed)
	for p, o := range l.API.Objects {
		if !strings.Contains(p, "/secrets/") && strings.Contains(fmt.Sprint(o), swordfish) {
			t.Errorf("%s holds the secret value", p)
		}
	}
	err := fs.WalkDir(os.DirFS(l.home), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(l.home, name))
		if strings.Contains(string(text), swordfish) {
			t.Errorf("%s holds the secret value", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A failed hook stops the removal. It resumes at that hook once the cause is fixed, or
// continues without the hooks.
func TestDeletionHooks_ResumeAtFailedHook(t *testing.T) {
	t.Parallel()
	l := newDropping(t)
	none := applying(l.with())
	fails := func(t *testing.T, job string, says ...string) *dropping {
		t.Helper()
		l := l.fork(t)
		l.API.JobResults = map[string]string{job: "Failed"}
		f := l.do(none, event.Failed).Failures[0]
		if f.Reason != addonsource.IDHookFailed || !strings.Contains(f.Remedy, "kubectl delete secret -n kube-system slipway-addon-shop") {
			t.Errorf("%+v", f)
		}
		for _, text := range append(says, "removing add-on shop", "Job shop/"+job, "the job has failed") {
			if !strings.Contains(f.Message, text) {
				t.Errorf("the failure does not contain %q: %s", text, f.Message)
			}
		}
		l.did()
		l.API.JobResults = nil
		return l
	}
	t.Run("before", func(t *testing.T) {
		l := fails(t, "stop", "pre-delete", "its objects still exist")
		if !l.API.HasObject(shopMap) || !l.API.HasObject(shopKept) || !l.API.HasObject(shopJobs+"stop") {
			t.Error("objects or saved hooks are missing")
		}
		l.resume(event.Succeeded)
		again := slices.Concat([]string{
			"PATCH configmaps/slipway-addon-shop",
			"DELETE secrets/key", "PATCH secrets/key", "DELETE jobs/warn", "PATCH jobs/warn", "DELETE jobs/stop",
			"PATCH jobs/stop", "DELETE jobs/stop",
			"PATCH configmaps/slipway-addon-shop",
		}, afterHooks, leftovers, offTheRecord)
		if d := cmp.Diff(again, l.did()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		l.gone()
	})
	t.Run("after", func(t *testing.T) {
		l := fails(t, "clean", "post-delete", "its objects are deleted")
		if l.API.HasObject(shopMap) || !l.API.HasObject(shopKept) {
			t.Error("the objects were not deleted, or the saved hooks were")
		}
		want := []string{
			"addon.removed: add-on shop: remove",
			"addon.removed: chart hook Secret shop/key: [post-delete]",
			"addon.removed: chart hook Job shop/clean: [post-delete]",
			"addon.removed: object Job shop/clean: delete", "addon.removed: object Job shop/warn: delete",
			"addon.removed: object Secret shop/key: delete",
		}
		if d := cmp.Diff(want, told(l.plan(l.with()))); d != "" {
			t.Errorf("the plan (-want +got):\n%s", d)
		}
		l.resume(event.Succeeded)
		again := slices.Concat([]string{"DELETE secrets/key", "PATCH secrets/key", "DELETE jobs/clean", "PATCH jobs/clean"},
			leftovers, offTheRecord)
		if d := cmp.Diff(again, l.did()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		l.gone()
	})
	t.Run("hooks skipped", func(t *testing.T) {
		l := fails(t, "warn")
		l.API.RemoveObject(shopKept)
		l.resume(event.Succeeded)
		if d := cmp.Diff([]string{
			"DELETE jobs/warn", "DELETE secrets/key", "DELETE configmaps/prices",
			"DELETE configmaps/slipway-addon-shop",
		}, l.did()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		l.gone()
	})
	t.Run("never ends", func(t *testing.T) {
		l := l.fork(t)
		l.API.JobResults = map[string]string{"stop": "Suspended"}
		l.limit(300 * time.Millisecond)
		f := l.do(none, event.Failed).Failures[0]
		if f.Reason != addonsource.IDHookFailed || !strings.Contains(f.Message, "running hook pre-delete") || !l.API.HasObject(shopMap) {
			t.Errorf("%+v", f)
		}
	})
	t.Run("not readable", func(t *testing.T) {
		l := l.fork(t)
		kept := lifecycletest.CopyObject(l.API.Objects[shopKept])
		l.API.PutObject(shopKept, lifecycletest.MergePatch(kept, object{"data": object{"hooks": "bm8="}}))
		_, err := l.service().Prepare(t.Context(), none, nil)
		if err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("got error %v", err)
		}
	})
	for _, job := range []string{"stop", "clean"} {
		t.Run("restored after "+job, func(t *testing.T) {
			l := fails(t, job)
			back := l.with(l.chart)
			l.do(applying(back), event.Succeeded)
			l.settled(back)
			if !l.API.HasObject(shopMap) || l.API.HasObject(shopJobs+job) || !l.API.HasObject(shopKept) {
				t.Errorf("the add-on has changed: %v", l.did())
			}
		})
	}
}

// The removal has the same result after a kill at any moment.
func TestDeletionHooks_SameResultAfterKill(t *testing.T) {
	l := newDropping(t)
	var cuts []moment
	l.API.OnWrite = func(what string) {
		if !strings.Contains(what, "/nodes/") {
			cuts = append(cuts, moment{what, l.world.fork(t)})
		}
	}
	r := applying(l.with())
	moments := l.killed(t, r)
	l.API.OnWrite = nil
	if len(cuts) < 15 {
		t.Errorf("only %d requests changed something", len(cuts))
	}
	for _, m := range slices.Concat(moments, cuts) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := &dropping{world: m.world, chart: l.chart}
			k.useT(t)
			k.listen()
			begun := !k.API.HasObject(shopMap)
			k.goOn(r)
			if did := k.did(); begun && slices.Contains(did, "PATCH jobs/stop") {
				t.Errorf("a pre-delete hook ran after the deletion: %v", did)
			}
			k.gone()
			k.same(l.world)
		})
	}
}

// An add-on without saved deletion hooks is removed without hooks.
func TestDeletionHooks_NotSavedByEarlierVersion(t *testing.T) {
	t.Parallel()
	l := newDropping(t)
	l.API.RemoveObject(shopKept) // an earlier Slipway did not save hooks
	t.Run("removed", func(t *testing.T) {
		l := l.fork(t)
		l.do(applying(l.with()), event.Succeeded)
		if d := cmp.Diff([]string{"DELETE configmaps/prices", "DELETE configmaps/slipway-addon-shop"}, l.did()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		l.gone()
	})
	t.Run("saved from now on", func(t *testing.T) {
		l := l.fork(t)
		c := l.with(l.chart)
		if d := cmp.Diff([]string{"addon.shop: add-on shop: save delete hooks"}, told(l.plan(c))); d != "" {
			t.Errorf("the plan (-want +got):\n%s", d)
		}
		l.do(applying(c), event.Succeeded)
		l.settled(c)
		if !l.API.HasObject(shopKept) {
			t.Error("the hooks are not saved")
		}
	})
}

// Deletion hooks do not run if none of the chart's objects is deleted.
func TestDeletionHooks_NotRunWithoutDeletion(t *testing.T) {
	t.Parallel()
	l := newDropping(t)
	for name, to := range map[string]v1alpha1.Addon{
		"another chart of the same name": {Name: "shop", Namespace: "shop", Chart: &v1alpha1.Chart{Path: webChart(t, "1")}},
		"another name":                   {Name: "market", Namespace: "shop", Chart: l.chart.Chart},
	} {
		t.Run(name, func(t *testing.T) {
			l := l.fork(t)
			c := l.with(to)
			l.do(applying(c), event.Succeeded)
			l.settled(c)
			for _, did := range l.did() {
				if strings.Contains(did, "jobs/stop") || strings.Contains(did, "jobs/clean") {
					t.Errorf("a hook ran: %s", did)
				}
			}
			if l.API.HasObject(shopKept) || !l.API.HasObject(shopMap) {
				t.Error("its hooks are still saved, or its objects are missing")
			}
		})
	}
}

// A foreign object with the name of a hook's object is not deleted.
func TestDeletionHooks_KeepForeignObject(t *testing.T) {
	t.Parallel()
	l := newDropping(t)
	l.API.PutObject(shopJobs+"stop",
		object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": "stop", "namespace": "shop", "uid": "mine"}})
	l.do(applying(l.with()), event.Succeeded)
	if !l.API.HasObject(shopJobs+"stop") || slices.Contains(l.did(), "DELETE jobs/stop") {
		t.Error("the foreign job is deleted")
	}
	l.settled(l.with())
}
