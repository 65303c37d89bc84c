//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRollback has a create cancelled from another terminal, resumed until a
// hook of the user's fails, and taken back: the machines are as before.
func TestRollback(t *testing.T) {
	u := newUser(t)
	const name = "e2e-back"
	machines := []string{name + "-1", name + "-2"}
	file := u.machines(t, name, len(machines))
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "fail.sh"), []byte("#!/bin/sh\necho not today >&2\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	editSpec(t, file, func(spec map[string]any) {
		spec["hooks"] = []any{map[string]any{"name": "fail", "phase": "postControlPlane", "roles": []string{"control-plane"}, "script": "fail.sh"}}
	})
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.snapshot(t, m)
	}

	o := u.start(t, "create", "cluster", "-f", file, "--yes")
	cancelled := false
	for h := range o.events {
		if !cancelled && h.begins("kubernetes.programs") {
			cancelled = true
			u.ok(t, "cancel", name)
		}
	}
	if code := o.wait(); !cancelled || code != 130 {
		t.Fatalf("a create that was cancelled (%v) ends with %d:\n%s", cancelled, code, tail(o.stderr.String()))
	}

	r := u.exits(t, 1, "resume", name, "--yes")
	for _, want := range []string{"not today", "slipway resume " + name, "slipway rollback " + name} {
		if !strings.Contains(r.stdout+r.stderr, want) {
			t.Errorf("the failure does not say %q:\n%s%s", want, tail(r.stdout), tail(r.stderr))
		}
	}

	u.exits(t, 0, "rollback", name, "--yes", "--allow-removal")
	for _, m := range machines {
		same(t, m+" before a create and after it was rolled back", "touched", before[m], u.snapshot(t, m))
	}
	if out := u.ok(t, "get", "clusters"); strings.Contains(out, name) {
		t.Errorf("the cluster is still listed:\n%s", out)
	}
}
