package controller

import (
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// TestSnapshot_IsTestedAndRestored makes a backup set, tests it, and restores the cluster from it.
func TestSnapshot_IsTestedAndRestored(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		w.request("too-early", operation.DrillEtcd, func(s *v1alpha1.OperationSpec) { s.Parameters.Backup = "none" })
		w.requireReason("too-early", "backup-unknown")
		w.allowBackups("cp1")
		w.locked(func() { w.Hosts["w1"].Down = lifecycletest.ErrDown }) // a backup needs no worker
		w.request("snapshot", operation.SnapshotEtcd, nil)
		set := w.waitForOperation("snapshot", v1alpha1.OperationSucceeded, "").Status.Backup
		if set == nil || !strings.HasPrefix(set.Name, "prod-") || set.Revision != 20 || set.Host != "cp1" {
			w.t.Fatalf("the set is %+v", set)
		}
		w.locked(func() { w.Hosts["w1"].Down = nil })
		w.request("drill", operation.DrillEtcd, nil)
		tested := w.waitForOperation("drill", v1alpha1.OperationSucceeded, "").Status.Backup
		if tested == nil || tested.Name != set.Name || tested.Verdict != v1alpha1.RestoreTestPassed {
			w.t.Errorf("the test is %+v, want set %s", tested, set.Name)
		}
		for name, tc := range map[string]struct {
			reason string
			change func(*v1alpha1.OperationParameters)
		}{
			"no-set":    {"backup-unknown", func(*v1alpha1.OperationParameters) {}},
			"path":      {"backup-unknown", func(p *v1alpha1.OperationParameters) { p.Backup = "../" + set.Name }},
			"other-key": {"backup-encrypted", func(p *v1alpha1.OperationParameters) { p.Backup, p.Identity = set.Name, "/etc/passwd" }},
		} {
			w.request(name, operation.RestoreEtcd, func(s *v1alpha1.OperationSpec) { tc.change(&s.Parameters) })
			w.requireReason(name, tc.reason)
		}

		w.request("restore", operation.RestoreEtcd, func(s *v1alpha1.OperationSpec) { s.Parameters.Backup = set.Name })
		o := w.waitForOperation("restore", v1alpha1.OperationAwaitingApproval, "")
		if !strings.Contains(o.Status.Message, "everything written to cluster prod since") {
			w.t.Errorf("the restore waits with: %s", o.Status.Message)
		}
		if err := w.approve(o, o.Status.Plan.Digest); err != nil {
			w.t.Fatal(err)
		}
		w.waitForOperation("restore", v1alpha1.OperationSucceeded, "")
		w.locked(func() {
			if got := w.Hosts["cp1"].Files[facts.EtcdData]; !strings.HasPrefix(got, "restored ") {
				w.t.Errorf("etcd on cp1 has %q after the restore", got)
			}
		})
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestDrill_FailsAndIsRunAgain tests a set that differs after its restore. Without a set, a new snapshot is tested.
func TestDrill_FailsAndIsRunAgain(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1")
		w.allowBackups("cp1")
		w.locked(func() { w.Hosts["cp1"].RestoreDiffers = 7 })
		w.request("drill", operation.DrillEtcd, nil)
		w.requireReason("drill", "drill-failed")
		o := w.operation("drill")
		if is := o.Status.Backup; is == nil || is.Verdict != v1alpha1.RestoreTestFailed || is.Name != "" {
			w.t.Errorf("the test is %+v, want a failure of a set that was removed", is)
		}
		w.requireQuiet(quietTime)
		w.locked(func() { w.Hosts["cp1"].RestoreDiffers = 0 })
		w.update(o, func(s *v1alpha1.OperationSpec) { s.Retry++ })
		o = w.waitForOperation("drill", v1alpha1.OperationSucceeded, "")
		if is := o.Status.Backup; is == nil || is.Verdict != v1alpha1.RestoreTestPassed {
			w.t.Errorf("the test is %+v after a retry", is)
		}
		w.requireQuiet(quietTime)
	}, "cp1")
}

// TestRescue_NeedsApproval loses two of three members.
func TestRescue_NeedsApproval(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "cp2", "cp3")
		w.locked(func() {
			for _, name := range []string{"cp1", "cp3"} {
				w.Hosts[name].Down = lifecycletest.ErrDown
			}
			w.Hosts["cp2"].Files[facts.EtcdData] = "log 4 900 899"
		})
		w.API.StopServers()
		w.API.Mu.Lock()
		w.API.RescueMembers = []string{"cp2"}
		w.API.Rescuing, w.API.RestoreDone = true, map[string]bool{}
		w.API.Mu.Unlock()
		w.request("one-lost", operation.RescueEtcd, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"cp1"} })
		w.waitForOperation("one-lost", v1alpha1.OperationFailed, "")
		w.request("rescue", operation.RescueEtcd, func(s *v1alpha1.OperationSpec) { s.Parameters.Nodes = []string{"cp1", "cp3"} })
		o := w.waitForOperation("rescue", v1alpha1.OperationAwaitingApproval, "")
		if !strings.Contains(o.Status.Message, "data would be lost") {
			w.t.Errorf("the rescue waits with: %s", o.Status.Message)
		}
		if err := w.approve(o, o.Status.Plan.Digest); err != nil {
			w.t.Fatal(err)
		}
		w.waitForOperation("rescue", v1alpha1.OperationSucceeded, "")
		w.requireQuiet(quietTime)
	}, "cp1", "cp2", "cp3")
}
