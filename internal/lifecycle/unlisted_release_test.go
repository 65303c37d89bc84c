package lifecycle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/release"
)

// builtElsewhere builds a bundle in a separate cache. The local catalogue does not list
// the minor of its version.
func builtElsewhere(t *testing.T, version string) (path, cache string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "releases.yaml")
	text := `minors: {"` + minorOf(version) + `": {versions: [` + version +
		`], components: {etcd: 3.7.9, etcdImage: 3.7.9-0, coredns: 1.15.9, flannel: 0.29.9}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	releases, err := release.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := releases.ResolveVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	site := bundletest.NewSite(t)
	site.AddRelease(t, r)
	cache = t.TempDir()
	b, err := bundle.Build(t.Context(),
		bundle.BuildOptions{
			Kubernetes: version, Arches: []string{"amd64"}, Source: bundle.Upstream, Cache: cache,
			Releases: releases, Upstream: site.Options(),
		})
	if err != nil {
		t.Fatal(err)
	}
	return b.Path(), cache
}

// warned checks that a plan warns that exactly these versions are untested.
func warned(t *testing.T, p Prepared, versions ...string) {
	t.Helper()
	var got []string
	for _, d := range p.Findings() {
		if d.ID == "release-unknown" && d.Severity == diag.Warning && strings.Contains(d.Message, "this version is untested") {
			got = append(got, strings.Fields(d.Message)[5])
		}
	}
	if d := cmp.Diff(versions, got); d != "" {
		t.Errorf("warnings of untested versions (-want +got):\n%s", d)
	}
}

// A version of an unlisted minor takes its components from a bundle, named or in the
// cache. Without a bundle the version is refused.
func TestCreate_UnlistedMinorNeedsBundle(t *testing.T) {
	t.Parallel()
	const version = "v1.38.0"
	path, elsewhere := builtElsewhere(t, version)
	w := newWorld(t, "cp1", "w1")
	w.Version = version
	wanted := w.Manifest()
	_, err := w.service().Prepare(t.Context(), creating(wanted), nil)
	wantRefused(t, err, "unsupported-version")
	if !strings.Contains(err.Error(), "slipway bundle import") {
		t.Errorf("the error has no remedy: %v", err)
	}
	other := w.Manifest()
	other.Spec.Kubernetes.Version, other.Spec.Bundle = "v1.38.1", path
	_, err = w.service().Prepare(t.Context(), creating(other), nil)
	wantRefused(t, err, "unsupported-version")

	cached := newWorld(t, "cp1", "w1")
	cached.Version, cached.cache = version, elsewhere
	warned(t, cached.prepared(cached.service().Prepare(t.Context(), creating(wanted), nil)), version)

	wanted.Spec.Bundle = path
	p := w.prepared(w.service().Prepare(t.Context(), creating(wanted), nil))
	warned(t, p, version)
	if r := p.(*prepared).env.Release; r.Etcd != "3.7.9" || r.CoreDNS != "1.15.9" || r.Flannel != "0.29.9" || r.KubeVIP == "" || r.Runc == "" {
		t.Errorf("its components are %+v", r.Components)
	}
	w.apply(p, event.Succeeded)
	w.wantVersions(all([]string{"cp1", "w1"}, version))
	c, err := w.service().Cluster(t.Context(), "prod")
	if err != nil || !w.prepared(w.service().Prepare(t.Context(), applying(c), nil)).Plan().IsEmpty() {
		t.Errorf("the plan is not empty (%v)", err)
	}

	// Without its bundle the cluster can be inspected and deleted, but nothing can be
	// installed.
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if _, err := w.service().Info(t.Context(), "prod", nil); err != nil {
		t.Errorf("cluster-info fails: %v", err)
	}
	_, err = w.service().Prepare(t.Context(), applying(w.Manifest()), nil)
	wantRefused(t, err, "unsupported-version")
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
}

// Upgrades reach unlisted minors, one minor at a time.
func TestUpgrade_UnlistedMinorsOneAtATime(t *testing.T) {
	t.Parallel()
	next, _ := builtElsewhere(t, "v1.38.0")
	after, _ := builtElsewhere(t, "v1.39.0")
	w := newWorld(t, "cp1", "w1")
	w.Version = "v1.37.1"
	w.create(event.Succeeded)
	w.backable(t)
	s := w.service()
	r := UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.38.0"}
	_, err := s.Prepare(t.Context(), r, nil)
	wantRefused(t, err, release.IDUnsupported)
	r.Version, r.Bundle = "v1.39.0", after
	_, err = s.Prepare(t.Context(), r, nil)
	wantRefused(t, err, release.IDUpgradePath)

	// The upgrade can be rolled back, with a warning that the new kinds are unknown.
	back := w.fork(t)
	back.refusing("w1", "kubelet.running")
	back.do(UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.38.0", Bundle: next}, event.Failed)
	back.Hosts["w1"].Refuse = nil
	p := back.prepared(back.service().PrepareRollback(t.Context(), rollingBack(), nil))
	if !slices.ContainsFunc(p.Findings(), func(d diag.Diagnostic) bool {
		return d.ID == idKindsInUse && d.Severity == diag.Warning && strings.Contains(d.Message, "v1.38.0")
	}) {
		t.Errorf("no warning about new kinds: %v", p.Findings())
	}
	back.apply(p, event.Succeeded)
	back.wantVersions(all([]string{"cp1", "w1"}, "v1.37.1"))

	// The upgrade goes to the minor in between first if its bundle is available.
	file := w.Manifest()
	file.Spec.Kubernetes.Version, file.Spec.Bundle = "v1.39.0", after
	r = UpgradeRequest{Subject: Subject{Cluster: file}, Bundle: next}
	p = w.prepared(s.Prepare(t.Context(), r, nil))
	warned(t, p, "v1.38.0", "v1.39.0")
	res := w.apply(p, event.Succeeded)
	if res.Onward != "v1.39.0" {
		t.Errorf("the next version is %q", res.Onward)
	}
	w.wantVersions(all([]string{"cp1", "w1"}, "v1.38.0"))

	_, err = s.Prepare(t.Context(), UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.37.1"}, nil)
	wantRefused(t, err, release.IDUpgradePath)
	w.do(UpgradeRequest{Subject: Subject{Cluster: file}}, event.Succeeded)
	w.wantVersions(all([]string{"cp1", "w1"}, "v1.39.0"))
}

// The rollback does not need the bundle of the newer version.
func TestRollbackUpgrade_NeedsNoBundleOfNewerVersion(t *testing.T) {
	t.Parallel()
	next, _ := builtElsewhere(t, "v1.38.0")
	w := newWorld(t, "cp1", "w1")
	w.Version = "v1.37.1"
	w.create(event.Succeeded)
	w.backable(t)
	w.refusing("w1", "kubelet.running")
	w.do(UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.38.0", Bundle: next}, event.Failed)
	w.Hosts["w1"].Refuse = nil
	if err := os.RemoveAll(next); err != nil { // as when a USB stick is removed
		t.Fatal(err)
	}
	p := w.prepared(w.service().PrepareRollback(t.Context(), rollingBack(), nil))
	if !slices.ContainsFunc(p.Findings(), func(d diag.Diagnostic) bool { return d.ID == idKindsInUse }) {
		t.Errorf("no warning about new kinds: %v", p.Findings())
	}
	w.apply(p, event.Succeeded)
	w.wantVersions(all([]string{"cp1", "w1"}, "v1.37.1"))
}
