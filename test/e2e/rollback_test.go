//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRollback runs a create that is first rejected. Then it is interrupted while another
// process watches, cancelled from another terminal, and stopped by a damaged bundle. Each
// time it is resumed, until a hook of the user fails. After a rollback, the machines are
// as before.
func TestRollback(t *testing.T) {
	u := newUser(t)
	const name = "e2e-back"
	machines := []string{name + "-1", name + "-2"}
	file := u.createMachines(t, name, len(machines))
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "fail.sh"),
		[]byte("#!/bin/sh\necho not today >&2\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	editSpec(t, file, func(spec map[string]any) {
		spec["hooks"] = []any{map[string]any{
			"name": "fail", "phase": "postControlPlane",
			"roles": []string{"control-plane"}, "script": "fail.sh",
		}}
	})
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.takeSnapshot(t, m)
	}
	u.refusesBadHosts(t, file, machines, before)
	bundle := u.damageBundle(t, "etcd")
	u.refusesTruncated(t, file, bundle)

	bundle.putComponent(t, func(content []byte) []byte { content[len(content)/2] ^= 1; return content })
	u.interruptCreate(t, name, file)
	o := u.startOperation(t, "resume", name, "--yes")
	cancelled := false
	for h := range o.events {
		if !cancelled && h.beginsTask("kubernetes.programs") {
			cancelled = true
			u.mustRun(t, "cancel", name)
		}
	}
	if code := o.waitForExit(); !cancelled || code != 130 {
		t.Fatalf("an operation that was cancelled (%v) ends with %d:\n%s", cancelled, code, textTail(o.stderr.String()))
	}
	u.damageStops(t, name, machines[0], bundle)

	u.mustExit(t, 0, "rollback", name, "--yes", "--allow-removal")
	for _, m := range machines {
		requireSame(t, m+" before a create and after it was rolled back", "touched", before[m], u.takeSnapshot(t, m))
	}
	if out := u.mustRun(t, "get", "clusters"); strings.Contains(out, name) {
		t.Errorf("the cluster is still listed:\n%s", out)
	}
}

// interruptCreate begins a create, watches it from another process, and presses Ctrl-C.
// The create stops, and prints how to continue; the watching process sees all of it.
func (u *user) interruptCreate(t *testing.T, cluster, file string) {
	t.Helper()
	o := u.startOperation(t, "create", "cluster", "-f", file, "--yes")
	var run []happening
	var watcher *operation
	watched := make(chan []happening, 1)
	interrupted := false
	for h := range o.events {
		run = append(run, h)
		if watcher == nil && h.Operation != "" {
			watcher = u.startOperation(t, "operations", "watch", h.Operation)
			go func() { watched <- watcher.readRest() }()
		}
		if !interrupted && h.beginsTask("runtime.containerd") {
			interrupted = true
			if err := o.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := o.waitForExit(); !interrupted || code != 130 {
		t.Fatalf("a create that was interrupted (%v) ends with %d:\n%s", interrupted, code, textTail(o.stderr.String()))
	}
	for _, want := range []string{
		"STOPPED", "no step is half done", "Next: slipway resume " + cluster,
		"Rollback: slipway rollback " + cluster,
	} {
		if !strings.Contains(o.stderr.String(), want) {
			t.Errorf("a create that was interrupted does not say %q:\n%s", want, textTail(o.stderr.String()))
		}
	}
	seen := <-watched
	if code := watcher.waitForExit(); code != 130 {
		t.Errorf("who watches it ends with %d, want its 130:\n%s", code, textTail(watcher.stderr.String()))
	}
	did, saw := listBoundaries(run), listBoundaries(seen)
	slices.Sort(did)
	slices.Sort(saw)
	if diff := cmp.Diff(did, saw); diff != "" || len(did) == 0 {
		t.Errorf("steps that ended, and those that a watcher saw (-did +saw):\n%s", diff)
	}
}

// damageStops resumes with a bundle of which a machine receives a damaged part. There is
// one line for the machine, with the cause and the remedy. With a repaired bundle the
// operation continues, until the hook fails.
func (u *user) damageStops(t *testing.T, cluster, machine string, bundle damaged) {
	t.Helper()
	o := u.startOperation(t, "resume", cluster, "--yes")
	first := o.readRest()
	if code := o.waitForExit(); code != 1 {
		t.Fatalf("a create from a damaged bundle ends with %d, want 1:\n%s", code, textTail(o.stderr.String()))
	}
	oneFailure(t, o.stderr.String(), machine, "the bundle is damaged", "slipway bundle verify")
	if r := u.runSlipway(t, "bundle", "verify", bundle.dir); r.code != 2 || !strings.Contains(r.stderr, filepath.Base(bundle.original)) {
		t.Errorf("bundle verify ends with %d and does not name the blob:\n%s", r.code, textTail(r.stderr))
	}

	bundle.putComponent(t, bytes.Clone)
	o = u.startOperation(t, "resume", cluster, "--yes")
	second := o.readRest()
	if code := o.waitForExit(); code != 1 {
		t.Fatalf("a create whose hook fails ends with %d, want 1:\n%s", code, textTail(o.stderr.String()))
	}
	for _, want := range []string{"not today", "slipway resume " + cluster, "slipway rollback " + cluster} {
		if !strings.Contains(o.stderr.String(), want) {
			t.Errorf("the failure does not say %q:\n%s", want, textTail(o.stderr.String()))
		}
	}
	kept, lost := keptWork(first, second, machine)
	if len(lost) > 0 || kept == 0 {
		t.Errorf("%d steps of the other host were kept; these were done again: %s", kept, strings.Join(lost, ", "))
	}
}
