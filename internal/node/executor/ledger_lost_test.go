//go:build linux

package executor

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// TestApply_RefusesChangedHostWithoutLedger checks that a changed host without a ledger is left alone, and that all
// operations that need the ledger report this.
func TestApply_RefusesChangedHostWithoutLedger(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"emptied": func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.Mkdir(dir, 0o700)
		},
		"damaged": func(dir string) error { return os.WriteFile(dir+"/log", []byte("{\n"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.apply(fileOps(h)...)
			if err := lose(h.path("var/lib/slipway/ledger")); err != nil {
				t.Fatal(err)
			}
			before := h.snapshot()
			for _, o := range []op.Op{
				op.RestoreHost{}, op.Reset{Paths: []string{"/var/lib/ours"}, KeepUnmanaged: true}, op.File{Path: "/etc/more"},
			} {
				r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
				if r.Error == nil || r.Error.Reason != op.IDLedgerLost || !strings.Contains(r.Error.Message, "/var/lib/slipway/ledger/log") {
					t.Errorf("%s: %s %+v", o.Kind(), r.Status, r.Error)
				}
			}
			after := h.snapshot()
			after["/var/lib/slipway/apply.lock"] = before["/var/lib/slipway/apply.lock"] // names the last holder
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the host was touched:\n%s", diff)
			}
		})
	}
}

// TestReset_RefusesHostWithEmptyLedger checks that an empty ledger counts as missing.
func TestReset_RefusesHostWithEmptyLedger(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := h.see()
	w.Units["old.service"] = &fakeUnit{Active: true}
	h.world(w)
	if err := os.MkdirAll(h.path("var/lib/slipway/ledger"), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := h.check(op.Reset{Units: []string{"old.service"}, KeepUnmanaged: true})[0]; r.Error == nil || r.Error.Reason != op.IDUnmanaged {
		t.Errorf("%s %+v", r.Status, r.Error)
	}
}
