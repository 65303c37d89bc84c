package lifecycle

import (
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
)

// A file that names the bundle of the next version uses it for the upgrade. The cluster
// keeps its previous bundle until then.
func TestUpgrade_UsesBundleNamedInFile(t *testing.T) {
	t.Parallel()
	built.older.Do(func() { build(t, older) })
	w := newWorld(t, "cp1", "w1")
	of := func(version string) string {
		path, ok := bundle.FindCached(w.cache, version, []string{"amd64"})
		if !ok {
			t.Fatal("there is no bundle of " + version)
		}
		return path
	}
	file := w.Manifest()
	file.Spec.Kubernetes.Version, file.Spec.Bundle = older, of(older)
	w.do(creating(file), event.Succeeded)
	w.backable(t)

	file.Spec.Kubernetes.Version = "v1.37.1"
	_, err := w.service().Prepare(t.Context(), UpgradeRequest{Subject: Subject{Cluster: file}}, nil)
	wantRefused(t, err, idBundleVersion)
	file.Spec.Bundle = of("v1.37.1")
	p := w.prepared(w.service().Prepare(t.Context(), UpgradeRequest{Subject: Subject{Cluster: file}}, nil))
	if is := p.Plan().Bundle.Source; is != file.Spec.Bundle {
		t.Errorf("the upgrade uses %s, want %s", is, file.Spec.Bundle)
	}
	w.apply(p, event.Succeeded)
	w.wantVersions(all([]string{"cp1", "w1"}, "v1.37.1"))
	w.settled(file)
}

// The bundle in the file is for the last version on the upgrade path; the cache does not
// need it. A bundle of another version is refused before the first step.
func TestReadiness_UsesBundleOfFile(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1")
	path, ok := bundle.FindCached(w.cache, "v1.37.1", []string{"amd64"})
	other, ok2 := bundle.FindCached(w.cache, older, []string{"amd64"})
	if !ok || !ok2 {
		t.Fatal("there are no bundles")
	}
	w.cache = t.TempDir() // other tests use the shared cache
	s := w.service()
	c, err := s.Cluster(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	c.Spec.Kubernetes.Version, c.Status.Version = "v1.35.6", "v1.35.6"
	for _, tt := range []struct {
		name, bundle string
		missing      []string
		id           string
	}{
		{"none", "", []string{"v1.37.1"}, ""},
		{"its own", path, nil, ""},
		{"of another version", other, nil, idBundleVersion},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := w.Manifest()
			file.Spec.Kubernetes.Version, file.Spec.Bundle = "v1.37.1", tt.bundle
			r := UpgradeRequest{Subject: Subject{Cluster: file}}
			p := s.start(r)
			p.recorded, p.bundle = c, s.bundles.NewSource(module.Env{}, []string{"amd64"})
			next, err := r.nextMinor(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if next.Spec.Bundle != "" {
				t.Errorf("the first version on the path comes from %s", next.Spec.Bundle)
			}
			missing, _, err := r.wayThere(t.Context(), p)
			if tt.id != "" {
				wantRefused(t, err, tt.id)
			} else if err != nil {
				t.Error(err)
			}
			if !slices.Equal(missing, tt.missing) {
				t.Errorf("missing %v, want %v", missing, tt.missing)
			}
		})
	}
}

// A resumed upgrade over several minor versions reports the final version.
func TestUpgrade_ResumeReportsFinalVersion(t *testing.T) {
	t.Parallel()
	const oldest = "v1.35.6"
	build(t, oldest)
	built.older.Do(func() { build(t, older) })
	w := newWorld(t, "cp1", "w1")
	w.Version = oldest
	w.create(event.Succeeded)
	w.backable(t)
	w.refusing("w1", "kubernetes.programs")
	w.do(toNewest, event.Failed)
	w.Hosts["w1"].Refuse = nil
	res := w.resume(event.Succeeded)
	if res.Onward != "v1.37.1" || !strings.Contains(res.Ready[0], older) {
		t.Errorf("the result is %q, with the next version %q", res.Ready, res.Onward)
	}
	w.wantVersions(all([]string{"cp1", "w1"}, older))
	w.do(toNewest, event.Succeeded)
	w.wantVersions(all([]string{"cp1", "w1"}, "v1.37.1"))
}

// A saved plan of an upgrade can be applied, although a plan has no request.
func TestPrepareSaved_PlanOfUpgrade(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	p := w.prepared(w.service().Prepare(t.Context(), toNewest, nil))
	w.apply(w.prepared(w.service().PrepareSaved(t.Context(), p.Plan(), ApplyOptions{}, nil)), event.Succeeded)
	w.wantVersions(all([]string{"cp1", "w1"}, "v1.37.1"))
}
