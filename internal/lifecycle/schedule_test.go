package lifecycle

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

const backupJob = "/etc/slipway/backup.json"

// everyHour returns a cluster with automatic hourly snapshots.
func (w *world) everyHour(keep int) *v1alpha1.Cluster {
	c := w.Manifest()
	c.Spec.Etcd.Backup = &v1alpha1.EtcdBackup{Every: &metav1.Duration{Duration: time.Hour}, Keep: keep}
	return c
}

// untried switches off restore tests of automatic snapshots.
func untried(c *v1alpha1.Cluster) *v1alpha1.Cluster {
	c.Spec.Etcd.Backup.DrillEvery = &metav1.Duration{}
	return c
}

// Automatic snapshots can be switched on, changed and switched off in the file of a
// running cluster. Only hosts with an etcd member change.
func TestSchedule_SwitchesOnAndOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	for _, step := range []struct {
		name string
		c    *v1alpha1.Cluster
		want string
	}{
		{"on", w.everyHour(8), `"keep": 8`},
		{"changed", w.everyHour(3), `"keep": 3`},
		{"untried", untried(w.everyHour(3)), `"keep": 3`},
		{"off", w.Manifest(), ""},
		{"on again", w.everyHour(8), `"keep": 8`},
	} {
		request := applying(step.c)
		p := w.prepared(w.service().Prepare(t.Context(), request, nil))
		for _, s := range p.Plan().Steps {
			if s.Task != "backup.timer" && s.Task != "record.cluster" || s.Host == "w1" {
				t.Errorf("%s: the plan has %s on %s", step.name, s.Task, s.Host)
			}
		}
		w.apply(p, event.Succeeded)
		if got := w.Hosts["cp1"].Files[backupJob]; !strings.Contains(got, step.want) || (got == "") != (step.want == "") ||
			w.Hosts["w1"].HasFile(backupJob) {
			t.Errorf("%s: the job is %q", step.name, got)
		}
		if got := w.Hosts["cp1"].Files[backupJob]; strings.Contains(got,
			`"everySeconds": 604800`) != (step.want != "" && step.name != "untried") {
			t.Errorf("%s: the interval of restore tests: %s", step.name, got)
		}
		if p := w.prepared(w.service().Prepare(t.Context(), request, nil)); !p.Plan().IsEmpty() {
			t.Errorf("%s: something is left to do: %+v", step.name, p.Plan().Steps)
		}
	}
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// Restore tests look for Secrets below the etcd prefix of the API servers.
func TestSchedule_UsesEtcdPrefixForSecrets(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"": "/registry/secrets/", "/other": "/other/secrets/", "other/": "/other/secrets/"} {
		w := newWorld(t, "cp1")
		c := w.everyHour(8)
		if prefix != "" {
			c.Spec.Kubernetes.APIServer.ExtraArgs = map[string]string{"etcd-prefix": prefix}
		}
		w.do(creating(c), event.Succeeded)
		if got := w.Hosts["cp1"].Files[backupJob]; !strings.Contains(got, `"prefix": "`+want+`"`) {
			t.Errorf("%q: the job is %q", prefix, got)
		}
	}
}

// toldOf checks that all reports about snapshots contain the text want. If want is "", no
// report has a warning with the id.
func toldOf(t *testing.T, svc *Service, id, want, reason string) {
	t.Helper()
	s, err := svc.Scheduled(t.Context(), "prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	health, err := svc.Etcd(t.Context(), "prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := svc.Info(t.Context(), "prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	for where, list := range map[string]diag.List{
		"snapshots --hosts": s.Warnings, "etcd health": health.Warnings,
		"cluster-info": info.Warnings,
	} {
		text := list.Error()
		if want == "" && strings.Contains(text, id) || !strings.Contains(text, want) {
			t.Errorf("%s: %s has %s", reason, where, text)
		}
	}
}

// Dedicated etcd hosts take automatic snapshots too, and a backup set can be made from
// them. Only hosts with the CA keys make copies.
func TestSchedule_IncludesDedicatedEtcdHosts(t *testing.T) {
	t.Parallel()
	w, s := managed(t), copiestest.ListenS3(t)
	w.create(event.Succeeded)
	w.do(applying(copiedToStorage(t, w.everyHour(8), s)), event.Succeeded)
	svc := w.impatient()
	taken := svc.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	for name, m := range w.Hosts {
		job := m.Files[backupJob]
		if !strings.Contains(job, "https://127.0.0.1:2379") || strings.Contains(job, `"copies"`) != (name == "cp1") ||
			!strings.Contains(job, `"drill"`) || strings.Contains(job, `"encryption"`) != (name == "cp1") ||
			m.HasFile(storageKey) != (name == "cp1") {
			t.Errorf("the job of %s is %s", name, job)
		}
		m.Snapshot = lifecycletest.NewEtcdSnapshot(t, 4711)
		m.TakeSnapshot(t, taken, "")
	}
	is, err := svc.Scheduled(t.Context(), "prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(is.Hosts) != 3 || len(is.Warnings) != 1 || is.Warnings[0].ID != "backup-copy" || is.Warnings[0].Host != "cp1" {
		t.Errorf("%+v", is)
	}
	i, err := svc.Snapshot(t.Context(), "prod", backups.SnapshotOptions{Of: "e1"}, nil)
	if err != nil || i.Member != "e1" || !i.Taken.Equal(taken) || !slices.Contains(i.Files, "/etc/kubernetes/pki/ca.key") ||
		!slices.Contains(i.Files, module.EtcdCA) {
		t.Errorf("%+v, %v", i, err)
	}
	w.Hosts["e1"].Down = &remote.Error{Host: "e1", Reason: remote.HostKeyUnknown, Cause: "its key is not known", Remedy: "trust it"}
	_, err = svc.Snapshot(t.Context(), "prod", backups.SnapshotOptions{Of: "e1", Out: filepath.Join(t.TempDir(), "x.tar")}, nil)
	refusal(t, err, idBackupNotThere)
	if err == nil || !strings.Contains(err.Error(), "e1 cannot be queried: its key is not known") ||
		!strings.Contains(err.Error(), "trust it, or") {
		t.Errorf("%v", err)
	}
	w.Hosts["e1"].Down = nil
	w.do(applying(w.Manifest()), event.Succeeded)
	for name, m := range w.Hosts {
		if m.HasFile(backupJob) || m.HasFile(storageKey) {
			t.Errorf("switched off, %s has %v", name, m.Files)
		}
	}
}

// Missing or old automatic snapshots of hosts are reported.
func TestSchedule_WarnsOfMissingOrOldSnapshots(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		do           func(*testing.T, *world, time.Time)
		want, next   string
	}{
		{
			"good", "there is a new one",
			func(t *testing.T, w *world, now time.Time) { w.Hosts["cp1"].TakeSnapshot(t, now.Add(-time.Hour), "") },
			"", "slipway etcd snapshot prod --of cp1",
		},
		{
			"old", "it is too old",
			func(t *testing.T, w *world, now time.Time) { w.Hosts["cp1"].TakeSnapshot(t, now.Add(-3*time.Hour), "") },
			"backup-old cp1", "slipway etcd snapshot prod --of cp1",
		},
		{
			"in the future", "the clock was ahead",
			func(t *testing.T, w *world, now time.Time) { w.Hosts["cp1"].TakeSnapshot(t, now.Add(20*time.Hour), "") },
			"backup-old cp1", "slipway etcd snapshot prod --of cp1",
		},
		{
			"a clock that is a little ahead", "clocks differ a little",
			func(t *testing.T, w *world, now time.Time) { w.Hosts["cp1"].TakeSnapshot(t, now.Add(time.Minute), "") },
			"", "slipway etcd snapshot prod --of cp1",
		},
		{
			"failed", "the disk may be full", func(t *testing.T, w *world, now time.Time) { w.Hosts["cp1"].TakeSnapshot(t, now, "no room") },
			"backup-by-itself cp1", "slipway etcd snapshot prod --of cp1",
		},
		{"one too many", "the disk may fill up", func(t *testing.T, w *world, now time.Time) {
			w.Hosts["cp1"].TakeSnapshot(t, now, "")
			w.Hosts["cp1"].ChangeSnapshotReport(t, func(out *op.AutoSnapshotOutcome) { out.Unremoved = "it is locked" })
		}, "backup-by-itself cp1", "slipway etcd snapshot prod --of cp1"},
		{"none yet", "the timer may never run", func(*testing.T, *world, time.Time) {}, "backup-old cp1", "slipway etcd snapshot prod"},
		{"timer changed", "a user changed it", func(_ *testing.T, w *world, _ time.Time) {
			w.Hosts["cp1"].Files["/etc/systemd/system/slipway-backup.timer"] = "[Timer]\n"
		}, "backup-timer cp1", "slipway etcd snapshot prod"},
		{
			"down", "it cannot be queried", func(_ *testing.T, w *world, _ time.Time) { w.Hosts["cp1"].Down = errDown },
			"cp1", "slipway etcd snapshot prod",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			w.create(event.Succeeded)
			w.do(applying(w.everyHour(8)), event.Succeeded)
			w.Hosts["cp1"].Snapshot = lifecycletest.NewEtcdSnapshot(t, 4711)
			svc := w.impatient()
			tc.do(t, w, svc.Now())
			s, err := svc.Scheduled(t.Context(), "prod", nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range s.Warnings {
				got = append(got, d.ID+" "+d.Host)
			}
			if !strings.HasSuffix(strings.Join(got, ","), tc.want) || len(got) > 1 || s.Good != (tc.want == "") || s.Next != tc.next {
				t.Errorf("%s: %v, next %s", tc.reason, got, s.Next)
			}
		})
	}
}

// A failed or missing restore test is reported in all reports about snapshots. If restore
// tests are switched off, there is no warning.
func TestRestoreTests_AreReported(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	for _, tc := range []struct {
		name, reason string
		outcome      func(now time.Time) *op.DrillOutcome
		untried      bool
		want         string
	}{
		{
			"good", "the last test passed a week ago",
			func(now time.Time) *op.DrillOutcome { return &op.DrillOutcome{Good: now.Add(-week)} }, false, "",
		},
		{"not reported", "the host's program is older than restore tests", func(time.Time) *op.DrillOutcome { return nil }, false, ""},
		{
			"none yet", "it was just switched on",
			func(now time.Time) *op.DrillOutcome { return &op.DrillOutcome{Since: now.Add(-time.Hour)} }, false, "",
		},
		{"running", "large snapshots take time", func(now time.Time) *op.DrillOutcome {
			return &op.DrillOutcome{Good: now.Add(-week), Begun: now.Add(-10 * time.Minute)}
		}, false, ""},
		{"failed", "the snapshot cannot be restored", func(now time.Time) *op.DrillOutcome {
			return &op.DrillOutcome{Good: now.Add(-week), Failed: "it panics", Since: now}
		}, false, "has failed since"},
		{
			"the first failed", "no test has ever passed",
			func(now time.Time) *op.DrillOutcome { return &op.DrillOutcome{Failed: "it panics", Since: now} }, false,
			"it panics; no snapshot of this host has passed a restore test yet",
		},
		{"interrupted", "the host went down", func(now time.Time) *op.DrillOutcome {
			return &op.DrillOutcome{Good: now.Add(-week), Begun: now.Add(-time.Hour)}
		}, false, "was interrupted; the latest snapshot of this host that passed a restore test is from"},
		{
			"overdue", "copying leaves no time for tests",
			func(now time.Time) *op.DrillOutcome { return &op.DrillOutcome{Good: now.Add(-3 * week)} }, false, "are not tested: the latest",
		},
		{
			"in the future", "the clock was ahead", func(now time.Time) *op.DrillOutcome { return &op.DrillOutcome{Good: now.Add(week)} },
			false, "cannot tell whether its snapshots are tested on schedule: the latest",
		},
		{
			"none yet, in the future", "the clock was ahead",
			func(now time.Time) *op.DrillOutcome { return &op.DrillOutcome{Since: now.Add(week)} }, false,
			"cannot tell whether its snapshots are tested on schedule: no snapshot",
		},
		{
			"never", "no test has run for weeks", func(now time.Time) *op.DrillOutcome { return &op.DrillOutcome{Since: now.Add(-3 * week)} },
			false, "are not tested: no snapshot",
		},
		{
			"switched off since", "tests are no longer required",
			func(now time.Time) *op.DrillOutcome { return &op.DrillOutcome{Failed: "it panics", Since: now} }, true, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			w.create(event.Succeeded)
			c := w.everyHour(8)
			if tc.untried {
				c = untried(c)
			}
			w.do(applying(c), event.Succeeded)
			m, svc := w.Hosts["cp1"], w.impatient()
			m.Snapshot = lifecycletest.NewEtcdSnapshot(t, 4711)
			m.TakeSnapshot(t, svc.Now(), "")
			m.ChangeSnapshotReport(t, func(out *op.AutoSnapshotOutcome) { out.Drill = tc.outcome(svc.Now()) })
			toldOf(t, svc, "backup-drill", tc.want, tc.reason)
		})
	}
}

// A backup set can be made from an automatic snapshot of a host, also when etcd is down,
// and from no other file.
func TestSnapshot_UsesAutomaticSnapshotWhileEtcdIsDown(t *testing.T) {
	t.Parallel()
	w, e := backedUp(t)
	m := w.Hosts["cp2"]
	taken := w.service().Now().Add(-2 * time.Hour).UTC().Truncate(time.Second)
	m.TakeSnapshot(t, taken, "")
	for _, member := range e.members {
		member.down = true
	}
	i := w.snapshot(backups.SnapshotOptions{Of: "cp2"})
	if i.Member != "cp2" || !i.Taken.Equal(taken) || i.Etcd != "3.6.8" || i.Snapshot.Revision != 4711 || i.Snapshot.Keys != 600 ||
		len(i.Files) == 0 {
		t.Errorf("%+v %+v", i, i.Snapshot)
	}
	if of, at, _, ok := backup.ParseFileName(filepath.Base(i.File)); !ok || of != "prod" || !at.Equal(taken) {
		t.Errorf("its file is %s", i.File)
	}
	for _, tc := range []struct{ of, want string }{
		{"cp2", string(backup.Exists)},
		{"cp2/prod-20200101-000000.db", idBackupNotThere},
		{"cp1", idBackupNotThere},
		{"w9", idBackupNotThere},
	} {
		_, err := w.impatient().Snapshot(t.Context(), "prod", backups.SnapshotOptions{Of: tc.of}, nil)
		refusal(t, err, tc.want)
	}
	m.Files[op.AutoSnapshots+"/prod-"+taken.Format("20060102-150405")+".db"] = lifecycletest.NewEtcdSnapshot(t, 4712)
	_, err := w.impatient().Snapshot(t.Context(), "prod", backups.SnapshotOptions{Of: "cp2", Out: filepath.Join(t.TempDir(), "x.tar")}, nil)
	refusal(t, err, string(backup.Damaged))
}
