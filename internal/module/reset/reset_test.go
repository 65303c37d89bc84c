package reset

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// TestLeft: of all that a restore reports, people are told what stays.
func TestLeft(t *testing.T) {
	got := left([]op.Result{
		{Output: []byte("/opt/cni: left: not empty\n")},
		{Output: []byte("/etc/fstab: restored\n/etc/x.conf: left: changed since by others; the original is beside it as x.conf.slipway-orig\n\n")},
		{},
	})
	want := []string{
		"/opt/cni is left: not empty",
		"/etc/x.conf is left: changed since by others; the original is beside it as x.conf.slipway-orig",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
