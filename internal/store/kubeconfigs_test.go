package store

import (
	"testing"
)

// TestKubeconfig_DropsUnsafeSettings: settings that can run programs or send files are not saved.
func TestKubeconfig_DropsUnsafeSettings(t *testing.T) {
	s, err := Open(t.TempDir())
	requireNoError(t, err)
	bad := append(adminKubeconfig(t), "extensions: []\n"...)
	requireNoError(t, s.Kubeconfigs().Save(t.Context(), "prod", adminKubeconfig(t)))
	if err := s.Kubeconfigs().Save(t.Context(), "prod", bad); err == nil {
		t.Error("it was saved")
	}
	files, err := s.Files(t.Context())
	requireNoError(t, err)
	if path, _, err := files.Kubeconfig(t.Context(), "prod", bad); err == nil {
		t.Errorf("it was written: %s", path)
	}
	if text, err := s.Kubeconfigs().Load(t.Context(), "prod"); err != nil || string(text) != string(adminKubeconfig(t)) {
		t.Errorf("the saved kubeconfig: %s, %v", text, err)
	}
}
