package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDefaultCluster_IsResetWhenClusterIsRemoved(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	requireNoError(t, err)
	wantDefault := func(when, want string) {
		t.Helper()
		again, err := Open(home)
		requireNoError(t, err)
		if got, err := again.Preferences().DefaultCluster(); got != want || err != nil {
			t.Errorf("default cluster %s: %q, %v; want %q", when, got, err, want)
		}
	}
	wantDefault("at first", "")
	requireNoError(t, s.Clusters().Save(t.Context(), clusterNamed("prod", ""), nil))
	requireNoError(t, s.Preferences().SetDefaultCluster("prod"))
	wantDefault("after it was set", "prod")
	requireNoError(t, s.Clusters().Remove(t.Context(), "lab"))
	wantDefault("after another cluster was removed", "prod")
	requireNoError(t, s.Clusters().Remove(t.Context(), "prod"))
	wantDefault("after the cluster was removed", "")
	requireNoError(t, s.Preferences().SetDefaultCluster("lab"))
	requireNoError(t, s.Preferences().SetDefaultCluster(""))
	requireNoError(t, s.Preferences().SetDefaultCluster(""))
	wantDefault("after it was unset twice", "")
}

func TestMerged_ListsKubeconfigs(t *testing.T) {
	s, err := Open(t.TempDir())
	requireNoError(t, err)
	if err := s.Preferences().AddMergedKubeconfig("prod", "/a"); err == nil {
		t.Error("a kubeconfig of a cluster that is not recorded was noted")
	}
	requireNoError(t, s.Clusters().Save(t.Context(), clusterNamed("prod", ""), nil))
	for _, path := range []string{"/b", "/a\nb", "/b"} {
		requireNoError(t, s.Preferences().AddMergedKubeconfig("prod", path))
	}
	if err := s.Preferences().AddMergedKubeconfig("prod", "a"); err == nil {
		t.Error("a relative path was noted")
	}
	got, err := s.Preferences().ListMergedKubeconfigs("prod")
	if d := cmp.Diff([]string{"/a\nb", "/b"}, got); d != "" || err != nil {
		t.Errorf("(-want +got): %v\n%s", err, d)
	}
	requireNoError(t, s.Clusters().Remove(t.Context(), "prod"))
	if got, err := s.Preferences().ListMergedKubeconfigs("prod"); len(got) > 0 || err != nil {
		t.Errorf("after the cluster is removed: %v, %v", got, err)
	}
}
