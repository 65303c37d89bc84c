package modules

import (
	"os"
	"slices"
	"testing"

	"slipway.dev/slipway/internal/asroot"
	"slipway.dev/slipway/internal/owner"
)

// TestAptSandbox has apt fetch as its own user for root, where that user can enter, and as
// the caller for everybody else.
func TestAptSandbox(t *testing.T) {
	cache := t.TempDir()
	asroot.Need(t, "only root has apt fetch as its own user")
	for _, as := range []*owner.Owner{nil, {UID: 1000, GID: 1000}} {
		root := as == nil
		d, remove, err := newDebs(cache, "amd64", as)
		if err != nil {
			t.Fatal(err)
		}
		if off := slices.Contains(d.options(), "APT::Sandbox::User="); off == root {
			t.Errorf("root %v: apt's own user is switched off: %v", root, off)
		}
		if info, err := os.Stat(d.dir); root && (err != nil || info.Mode().Perm()&0o001 == 0) {
			t.Errorf("apt's own user cannot enter %s: %v", d.dir, err)
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(d.dir); root && !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", d.dir, err)
		}
	}
}
