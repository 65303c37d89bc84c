package carotation

import (
	"errors"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// TestRefuseOtherFile_AcceptsOnlyStandardFile checks that a rotation is refused if a component uses another file.
func TestRefuseOtherFile_AcceptsOnlyStandardFile(t *testing.T) {
	t.Parallel()
	var list diag.List
	c := &v1alpha1.Cluster{}
	where := func() error {
		return refuseOtherFile(c, idKeyElsewhere, "it", "/file", "service-account-private-key-file")
	}
	if err := where(); err != nil {
		t.Errorf("a key in the standard file: %v", err)
	}
	c.Spec.Kubernetes.ControllerManager.ExtraArgs = map[string]string{"service-account-private-key-file": "/else"}
	if err := where(); !errors.As(err, &list) || list[0].ID != idKeyElsewhere {
		t.Errorf("a key in another file: %v", err)
	}
}
