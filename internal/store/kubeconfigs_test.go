package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMerged_ListsKubeconfigs(t *testing.T) {
	s, err := Open(t.TempDir())
	requireNoError(t, err)
	if err := s.Kubeconfigs().AddMerged("prod", "/a"); err == nil {
		t.Error("a kubeconfig of a cluster that is not recorded was noted")
	}
	requireNoError(t, s.Clusters().Save(clusterNamed("prod", ""), nil))
	for _, path := range []string{"/b", "/a\nb", "/b"} {
		requireNoError(t, s.Kubeconfigs().AddMerged("prod", path))
	}
	if err := s.Kubeconfigs().AddMerged("prod", "a"); err == nil {
		t.Error("a relative path was noted")
	}
	got, err := s.Kubeconfigs().ListMerged("prod")
	if d := cmp.Diff([]string{"/a\nb", "/b"}, got); d != "" || err != nil {
		t.Errorf("(-want +got): %v\n%s", err, d)
	}
	requireNoError(t, s.Clusters().Remove("prod"))
	if got, err := s.Kubeconfigs().ListMerged("prod"); len(got) > 0 || err != nil {
		t.Errorf("after the cluster is removed: %v, %v", got, err)
	}
}

// TestKubeconfig_DropsUnsafeSettings: settings that can run programs or send files are not saved.
func TestKubeconfig_DropsUnsafeSettings(t *testing.T) {
	s, err := Open(t.TempDir())
	requireNoError(t, err)
	bad := append(adminKubeconfig(t), "extensions: []\n"...)
	requireNoError(t, s.Kubeconfigs().Save("prod", adminKubeconfig(t)))
	if err := s.Kubeconfigs().Save("prod", bad); err == nil {
		t.Error("it was saved")
	}
	if path, err := s.Kubeconfigs().WriteAnother("prod", bad); err == nil {
		t.Errorf("it was written: %s", path)
	}
	if text, err := s.Kubeconfigs().Load("prod"); err != nil || string(text) != string(adminKubeconfig(t)) {
		t.Errorf("the saved kubeconfig: %s, %v", text, err)
	}
}
