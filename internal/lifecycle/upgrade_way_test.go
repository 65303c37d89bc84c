package lifecycle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
)

// oldest is a version whose upgrade path to the newest version has another version in
// between.
const oldest = "v1.35.6"

// onWay returns a world whose cluster has done the first minor version on that path.
func onWay(t *testing.T, r Request, names ...string) (*world, *Result) {
	t.Helper()
	build(t, oldest)
	built.older.Do(func() { build(t, older) })
	w := newWorld(t, names...)
	w.Version = oldest
	w.create(event.Succeeded)
	w.backable(t)
	res := w.do(r, event.Succeeded)
	w.wantVersions(all(names, older))
	return w, res
}

// Between two minor versions of an upgrade there is nothing to resume. The error names the
// version that the cluster has reached and the command to continue.
func TestUpgrade_HasNothingToResumeBetweenMinors(t *testing.T) {
	t.Parallel()
	w, _ := onWay(t, toNewest, "cp1")
	s := w.service()
	said := func(when string) {
		t.Helper()
		_, err := s.PrepareResume(t.Context(), resuming(), nil)
		refusal(t, err, idNothingUnfinished)
		if d := first(err); d.Message != "the upgrade of cluster prod to v1.37.1 has reached v1.36.4" ||
			d.Hint != "continue with: slipway upgrade prod --to v1.37.1" {
			t.Errorf("%s: %v", when, d)
		}
	}
	said("after the first minor version")
	p := w.prepared(s.Prepare(t.Context(), toNewest, nil)).(*prepared)
	if _, err := p.operation(t.Context()); err != nil {
		t.Fatal(err)
	}
	said("after the next operation is saved")
	if err := s.Records.Clusters().Save(t.Context(), p.env.Cluster, nil); err != nil {
		t.Fatal(err)
	}
	said("after its version is saved")
	w.do(toNewest, event.Succeeded)
	w.wantVersions(all([]string{"cp1"}, "v1.37.1"))
	_, err := s.PrepareResume(t.Context(), resuming(), nil)
	refusal(t, err, idNothingUnfinished)
	if d := first(err); strings.Contains(d.Message, "has reached") {
		t.Errorf("at the end of the path: %v", d)
	}
}

// An upgrade with a file continues with that file, also after an interrupted step. Before
// the last step, the file has a newer version than the cluster; this is not a change of
// the file.
func TestUpgradeByFile_ResumesWithFile(t *testing.T) {
	t.Parallel()
	const file = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: prod}
spec:
  kubernetes: {version: v1.35.6}
  controlPlaneEndpoint: {domain: example.com}
  hosts:
  - {name: cp1, address: 192.0.2.11, roles: [control-plane]}
  - {name: w1, address: 192.0.2.12, roles: [worker]}
`
	build(t, oldest)
	built.older.Do(func() { build(t, older) })
	path := filepath.Join(t.TempDir(), "prod.yaml")
	newest := strings.Replace(file, oldest, "v1.37.1", 1)
	begun := newWorld(t, "cp1", "w1")
	begun.do(CreateRequest{Subject: Subject{Cluster: loaded(t, file), Source: []byte(file), File: path}}, event.Succeeded)
	begun.backable(t)
	begun.refusing("w1", "kubernetes.programs")
	if err := os.WriteFile(path, []byte(newest), 0o600); err != nil {
		t.Fatal(err)
	}
	begun.do(UpgradeRequest{Subject: Subject{Cluster: loaded(t, newest), Source: []byte(newest), File: path}}, event.Failed)
	for _, tc := range []struct {
		name, reason, given string
		refused             bool
	}{
		{"without", "the saved file is unchanged and has the final version", "", false},
		{"given", "it has the final version", newest, false},
		{"of this minor", "the path leads further", strings.Replace(file, oldest, older, 1), false},
		{"another version, given", "it would not be reached", strings.Replace(file, oldest, "v1.37.0", 1), true},
		{"another setting, given", "it would not be used", newest + "  ssh: {password: canary}\n", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := begun.fork(t)
			r := resuming()
			if tc.given != "" {
				r.Cluster, r.Source, r.File = loaded(t, tc.given), []byte(tc.given), path
			}
			p, err := w.service().PrepareResume(t.Context(), r, nil)
			if tc.refused {
				refusal(t, err, idSpecChanged)
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, tc.reason)
			}
			if told := p.Findings(); slices.Contains(idsOf(told), idSpecChanged) {
				t.Errorf("the file is reported as changed: %v", told)
			}
			if res := w.apply(w.prepared(p, err), event.Succeeded); res.Onward != "v1.37.1" || res.OnwardFile != path || res.Reached != older {
				t.Errorf("reached %s, next version %s with file %q", res.Reached, res.Onward, res.OnwardFile)
			}
			if source, err := w.service().Records.Clusters().LoadSource(t.Context(), "prod"); err != nil || string(source.Text) != file {
				t.Errorf("the saved file has the final version: %s, %v", source.Text, err)
			}
			_, err = w.service().PrepareResume(t.Context(), resuming(), nil)
			if want := "continue with: slipway upgrade prod --to v1.37.1 -f " + path; first(err).Hint != want {
				t.Errorf("between minors: %v, want %q", err, want)
			}
		})
	}
}

// TestUpgradeByFile_SavesItsPath checks that a file from standard input has no path.
func TestUpgradeByFile_SavesItsPath(t *testing.T) {
	t.Parallel()
	by := UpgradeRequest{Subject: Subject{Cluster: &v1alpha1.Cluster{}}}
	if got := by.upgradeFile(); got != "-" {
		t.Errorf("the path for standard input is %q", got)
	}
}

// Between two minor versions, an upgrade waits a limited time for moved pods if a
// disruption budget needs them. Before the first minor version it does not wait.
func TestUpgrade_WaitsForMovedPods(t *testing.T) {
	t.Parallel()
	const at = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web"
	budget := func(healthy int, spec object) object {
		spec["selector"] = object{"matchLabels": object{"app": "web"}}
		return object{
			"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": "web", "namespace": "shop"},
			"spec": spec, "status": object{"disruptionsAllowed": healthy - 1, "expectedPods": 2, "currentHealthy": healthy, "desiredHealthy": 1},
		}
	}
	for _, tc := range []struct {
		name    string
		r       UpgradeRequest
		spec    object
		mended  bool
		waits   bool
		refused bool
	}{
		{"until they are ready", UpgradeRequest{Follows: true}, object{"minAvailable": 1}, true, true, false},
		{"for a limited time", UpgradeRequest{Follows: true}, object{"minAvailable": 1}, false, true, true},
		{
			"not for a budget that allows no disruption",
			UpgradeRequest{Follows: true},
			object{"maxUnavailable": 0},
			false, false, true,
		},
		{
			"not if the check is ignored",
			UpgradeRequest{Follows: true, Options: Options{IgnoreChecks: []string{"disruption-budget"}}},
			object{"minAvailable": 1},
			false, false, false,
		},
		{"not before the first", UpgradeRequest{}, object{"minAvailable": 1}, false, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := aged(t, "cp1", "w1", "w2")
			w.API.PutObject(at, budget(1, tc.spec))
			w.API.PutObject("/api/v1/namespaces/shop/pods/web", object{
				"apiVersion": "v1", "kind": "Pod",
				"metadata": object{"name": "web", "namespace": "shop", "labels": object{"app": "web"}, "ownerReferences": []any{
					object{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "1", "controller": true},
				}},
				"spec": object{"nodeName": "w1"},
			})
			r := tc.r
			r.Name, r.Version = toNewest.Name, toNewest.Version
			s := w.service()
			if s.waits.between = time.Minute; !tc.mended {
				s.waits.between = 2 * time.Second
			}
			var said []string
			p, err := s.Prepare(t.Context(), r, event.SinkFunc(func(e event.Event) {
				if strings.HasPrefix(e.Message, "waiting") {
					said = append(said, e.Message)
					if tc.mended {
						w.API.PutObject(at, budget(2, tc.spec))
					}
				}
			}))
			if tc.refused {
				refusal(t, err, "disruption-budget")
			} else {
				w.prepared(p, err)
			}
			var want []string
			if tc.waits {
				want = []string{"waiting for pods that the previous minor moved: shop/web: 1 of its 2 pods are healthy, but 1 must be"}
			}
			if d := cmp.Diff(want, said); d != "" {
				t.Errorf("messages (-want +got):\n%s", d)
			}
		})
	}
}

// first returns the first problem in err.
func first(err error) (d diag.Diagnostic) {
	var list diag.List
	if errors.As(err, &list) && len(list) > 0 {
		d = list[0]
	}
	return d
}
