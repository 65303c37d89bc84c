package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMerged_ListsKubeconfigs(t *testing.T) {
	s, err := Open(t.TempDir())
	requireNoError(t, err)
	if err := s.AddMerged("prod", "/a"); err == nil {
		t.Error("a kubeconfig of a cluster that is not recorded was noted")
	}
	requireNoError(t, s.SaveCluster(clusterNamed("prod", ""), nil))
	for _, path := range []string{"/b", "/a\nb", "/b"} {
		requireNoError(t, s.AddMerged("prod", path))
	}
	if err := s.AddMerged("prod", "a"); err == nil {
		t.Error("a relative path was noted")
	}
	got, err := s.ListMerged("prod")
	if d := cmp.Diff([]string{"/a\nb", "/b"}, got); d != "" || err != nil {
		t.Errorf("(-want +got): %v\n%s", err, d)
	}
	requireNoError(t, s.RemoveCluster("prod"))
	if got, err := s.ListMerged("prod"); len(got) > 0 || err != nil {
		t.Errorf("after the cluster is removed: %v, %v", got, err)
	}
}
