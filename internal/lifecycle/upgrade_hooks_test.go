package lifecycle

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// Upgrade hooks run once in each upgrade, even if they have not changed since the previous
// one. Files that a hook no longer has are removed.
func TestUpgradeHooks_RunOncePerUpgrade(t *testing.T) {
	t.Parallel()
	const (
		oldest = "v1.35.6"
		before = "hook-preUpgrade-before"
		behind = "hook-postUpgrade-behind"
		secret = "/var/lib/slipway/hooks/preUpgrade/before/secret"
	)
	build(t, oldest)
	built.older.Do(func() { build(t, older) })
	w := newWorld(t, "cp1", "w1")
	dir := t.TempDir()
	script, material := manifest(t, dir, "hook.sh", "#!/bin/sh\n"), manifest(t, dir, "secret", "secret")
	c := w.Manifest()
	c.Spec.Kubernetes.Version = oldest
	c.Spec.Hooks = []v1alpha1.Hook{
		{Name: "before", Phase: v1alpha1.HookPreUpgrade, Script: script, Materials: []string{material}},
		{Name: "behind", Phase: v1alpha1.HookPostUpgrade, Script: script},
	}
	w.do(creating(c), event.Succeeded)
	w.backable(t)
	ran := func(hook string, n int, why string) {
		t.Helper()
		for name, m := range w.Hosts {
			if m.HookRuns[hook] != n {
				t.Errorf("%s ran %d times on %s, want %d: %s", hook, m.HookRuns[hook], name, n, why)
			}
		}
	}
	to := UpgradeRequest{Subject: Subject{Name: "prod"}, Version: older}
	w.do(to, event.Succeeded)
	ran(before, 1, "it is an upgrade")
	ran(behind, 1, "it is an upgrade")
	w.do(to, event.Succeeded)
	ran(before, 1, "there is nothing to upgrade")

	c.Spec.Kubernetes.Version, c.Spec.Hooks[0].Materials = older, nil
	w.do(applying(c), event.Succeeded)
	if !w.Hosts["w1"].HasFile(secret) {
		t.Errorf("%s does not exist", secret)
	}
	w.refusing("w1", "kubernetes.programs")
	w.do(toNewest, event.Failed)
	w.Hosts["w1"].Refuse = nil
	ran(before, 2, "it is another upgrade")
	if w.Hosts["w1"].HasFile(secret) {
		t.Errorf("%s is left, but the hook no longer has it", secret)
	}
	w.resume(event.Succeeded)
	ran(before, 2, "it succeeded in the first attempt")
	ran(behind, 2, "it is another upgrade")
}
