package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
)

// Scheduled describes the automatic snapshots of a cluster's hosts.
type Scheduled struct {
	Name string `json:"name"`
	// On reports whether automatic snapshots are switched on.
	On bool `json:"on"`
	// Good reports whether there are no warnings.
	Good     bool            `json:"good"`
	Warnings diag.List       `json:"warnings"`
	Hosts    []ScheduledHost `json:"hosts"`
	Next     string          `json:"next"`
}

// A ScheduledHost is a reachable host with an etcd member.
type ScheduledHost struct {
	Host string `json:"host"`
	// Active reports whether its timer runs as it was set up.
	Active bool `json:"active"`
	// AutoSnapshotOutcome is the result of the latest run; nil if there was none.
	*op.AutoSnapshotOutcome
}

// lateBy is how many intervals old the newest snapshot may be.
const lateBy = 2

// maxAhead is how far a host's clock may be ahead of this machine's.
const maxAhead = 5 * time.Minute

// isInFuture reports whether a time that a host has saved is in the future. The host's clock
// was ahead then, and until that time nothing would warn that the host does no more work.
func isInFuture(now, at time.Time) bool { return at.Sub(now) > maxAhead }

// Scheduled queries the hosts with etcd members about their automatic snapshots. It does
// not need the API or etcd.
func (in *Inspector) Scheduled(ctx context.Context, name string, progress event.Sink) (*Scheduled, error) {
	c, err := in.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.Spec.Etcd.External != nil {
		return nil, RefuseExternalEtcd(name, "a snapshot")
	}
	ctx, s, done, err := in.StartSession(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	s.Select(s.CanQueryEtcd)
	found := map[string]*ScheduledHost{}
	for _, h := range s.Hosts {
		found[h.Spec.Name] = &ScheduledHost{Host: h.Spec.Name}
	}
	s.QueryHosts(ctx, in.Limits.Host, progress, func(ctx context.Context, h *Host) {
		h.Err = found[h.Spec.Name].Read(ctx, h)
	})
	out := &Scheduled{Name: name, On: c.Spec.Etcd.Backup != nil, Warnings: diag.List{}, Hosts: []ScheduledHost{}}
	warn := warnInto(&out.Warnings)
	for _, h := range s.Hosts {
		if h.Err != nil {
			h.warnUnreachable(idNodeNotReady, warn)
			continue
		}
		out.Hosts = append(out.Hosts, *found[h.Spec.Name])
	}
	if out.On {
		out.evaluate(s.Env.Cluster, in.c.Now(), warn)
	}
	out.setVerdict()
	return out, nil
}

// Read queries the host.
func (a *ScheduledHost) Read(ctx context.Context, h *Host) error {
	results, err := h.Conn.Check(ctx, etcdbackup.ScheduleState())
	if err != nil {
		return err
	}
	for _, res := range results {
		switch {
		case res.Kind == op.KindUnit: // a missing unit has an error
			a.Active = res.Status == op.Unchanged
		case res.Error != nil:
			return fmt.Errorf("querying its automatic snapshots: %w", res.Error)
		case !res.Missing:
			a.AutoSnapshotOutcome = &op.AutoSnapshotOutcome{}
			if err := json.Unmarshal(res.Output, a.AutoSnapshotOutcome); err != nil {
				return fmt.Errorf("reading the result of its automatic snapshots: %w", err)
			}
		}
	}
	return nil
}

// evaluate warns about hosts without recent snapshots.
func (s *Scheduled) evaluate(c *v1alpha1.Cluster, now time.Time, warn warnFunc) {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		switch {
		case !h.Active:
			warn(idBackupTimer, h.Host, "set up the timer again: slipway apply "+s.Name,
				"%s is not active or was changed: no automatic snapshots are taken", etcdbackup.TimerUnit)
		case h.AutoSnapshotOutcome == nil:
			warn(idBackupOld, h.Host,
				"check again in a few minutes, then read the log on the host: journalctl -u slipway-backup",
				"the host has taken no automatic snapshot yet")
		case h.Failed != "":
			warn(idBackupByItself, h.Host, "read the log on the host: journalctl -u slipway-backup",
				"the automatic snapshot failed at %s: %s", h.At.Format(time.RFC3339), h.Failed)
		case len(h.Kept) > 0 && isInFuture(now, h.Kept[0].Taken):
			warn(idBackupOld, h.Host, "take a snapshot with the current time, on the host: systemctl start slipway-backup",
				"the latest snapshot on the host is dated %s, which is in the future: the host's clock was wrong or "+
					"this machine's clock is wrong, and it is unknown whether snapshots are taken",
				h.Kept[0].Taken.UTC().Format(time.RFC3339))
		case len(h.Kept) == 0 || now.Sub(h.Kept[0].Taken) > lateBy*c.Spec.Etcd.Backup.Every.Duration:
			warn(idBackupOld, h.Host, "check the timer on the host: systemctl list-timers slipway-backup.timer",
				"the latest snapshot on the host is older than %s, although one should be taken every %s",
				lateBy*c.Spec.Etcd.Backup.Every.Duration, c.Spec.Etcd.Backup.Every.Duration)
		case h.Unremoved != "":
			warn(idBackupByItself, h.Host, "read the log on the host: journalctl -u slipway-backup",
				"at %s a snapshot was taken, but the oldest one cannot be removed: %s", h.At.Format(time.RFC3339), h.Unremoved)
		}
		h.evaluateCopies(c, now, warn)
		h.evaluateRestoreTests(c, now, warn)
	}
}

// evaluateCopies warns about copies that fail, do not finish or are not made, for every
// target of the description, even if the host reports nothing about it.
func (a *ScheduledHost) evaluateCopies(c *v1alpha1.Cluster, now time.Time, warn warnFunc) {
	copying := func(h v1alpha1.Host) bool { return h.Name == a.Host && etcdbackup.HasCopies(c, h) }
	if a == nil || a.AutoSnapshotOutcome == nil || !slices.ContainsFunc(c.Spec.Hosts, copying) {
		return
	}
	late := lateBy * c.Spec.Etcd.Backup.Every.Duration
	for _, to := range c.Spec.Etcd.Backup.Copies {
		k := op.CopyOutcome{Target: to.Name}
		if i := slices.IndexFunc(a.Copies, func(k op.CopyOutcome) bool { return k.Target == to.Name }); i >= 0 {
			k = a.Copies[i]
		}
		last := "the target has no copy from this host yet"
		if !k.Copied.IsZero() {
			last = "the latest copy from this host there is from " + k.Copied.UTC().Format(time.RFC3339)
		}
		switch {
		case k.Failed != "":
			warn(idBackupCopy, a.Host, "read the log on the host: journalctl -u slipway-backup",
				"copying its snapshots to %s has failed since %s: %s; %s", k.Target, k.Since.UTC().Format(time.RFC3339), k.Failed, last)
		case !k.Begun.IsZero() && now.Sub(k.Begun) > etcdbackup.CopyTime(c.Spec.Etcd.Backup):
			warn(idBackupCopy, a.Host, "read the log on the host: journalctl -u slipway-backup",
				"copying its snapshots to %s began at %s and has not finished: the target may be stalled; %s",
				k.Target, k.Begun.UTC().Format(time.RFC3339), last)
		case isInFuture(now, k.Copied):
			warn(idBackupCopy, a.Host, "make a copy with the current time, on the host: systemctl start slipway-backup",
				"cannot tell whether its snapshots are copied to %s: %s, which is in the future", k.Target, last)
		case now.Sub(k.Copied) > late:
			warn(idBackupCopy, a.Host, "start a snapshot and its copies on the host: systemctl start slipway-backup",
				"its snapshots are not copied to %s: %s, although one should be made every %s", k.Target, last, c.Spec.Etcd.Backup.Every.Duration)
		case k.Unremoved != "":
			warn(idBackupCopy, a.Host,
				"check whether the host may remove its files there",
				"its snapshots are copied to %s, but old copies there cannot be removed: %s; %s", k.Target, k.Unremoved, last)
		}
	}
}

// evaluateRestoreTests warns about restore tests that fail or are not run. A host that reports
// nothing about restore tests is not set up for them, which the next plan shows.
func (a *ScheduledHost) evaluateRestoreTests(c *v1alpha1.Cluster, now time.Time, warn warnFunc) {
	drilling := func(h v1alpha1.Host) bool { return h.Name == a.Host && etcdbackup.HasRestoreTests(c, h) }
	if a == nil || a.AutoSnapshotOutcome == nil || a.Drill == nil || !slices.ContainsFunc(c.Spec.Hosts, drilling) {
		return
	}
	d, every := a.Drill, c.Spec.Etcd.Backup.DrillEvery.Duration
	last, since := "no snapshot of this host has passed a restore test yet", d.Since
	if !d.Good.IsZero() {
		last, since = "the latest snapshot of this host that passed a restore test is from "+d.Good.UTC().Format(time.RFC3339), d.Good
	}
	switch {
	case d.Failed != "":
		warn(idBackupDrill, a.Host,
			"read the log on the host: journalctl -u slipway-backup",
			"the restore test of its snapshots has failed since %s: %s; %s", d.Since.UTC().Format(time.RFC3339), d.Failed, last)
	case !d.Begun.IsZero() && now.Sub(d.Begun) > op.AutoDrillTime:
		warn(idBackupDrill, a.Host, "read the log on the host: journalctl -u slipway-backup",
			"the restore test of a snapshot that began at %s was interrupted; %s", d.Begun.UTC().Format(time.RFC3339), last)
	case isInFuture(now, since):
		warn(idBackupDrill, a.Host, "run a restore test with the current time, on the host: systemctl start slipway-backup",
			"cannot tell whether its snapshots are tested on schedule: %s; the interval starts at %s, which is in the future",
			last, since.UTC().Format(time.RFC3339))
	case now.Sub(since) > lateBy*every:
		warn(idBackupDrill, a.Host, "start a snapshot and its restore test on the host: systemctl start slipway-backup",
			"its snapshots are not tested: %s, although one should be tested every %s", last, every)
	}
}

// readSchedule queries the results of a host's copies and restore tests, if it is to do
// either. Other checks report a host that does not respond.
func (s *Session) readSchedule(ctx context.Context, h *Host) {
	if !etcdbackup.HasCopies(s.Env.Cluster, h.Spec) && !etcdbackup.HasRestoreTests(s.Env.Cluster, h.Spec) {
		return
	}
	is := &ScheduledHost{Host: h.Spec.Name}
	if is.Read(ctx, h) == nil {
		h.schedule = is
	}
}

// evaluateSchedules warns about automatic copies and restore tests only.
func (s *Session) evaluateSchedules(warn warnFunc) {
	for _, h := range s.Hosts {
		h.schedule.evaluateCopies(s.Env.Cluster, s.in.c.Now(), warn)
		h.schedule.evaluateRestoreTests(s.Env.Cluster, s.in.c.Now(), warn)
	}
}

func (s *Scheduled) setVerdict() {
	s.Good = len(s.Warnings) == 0
	has := func(h ScheduledHost) bool { return h.AutoSnapshotOutcome != nil && len(h.Kept) > 0 }
	switch i := slices.IndexFunc(s.Hosts, has); {
	case i >= 0:
		s.Next = "slipway etcd snapshot " + s.Name + " --of " + s.Hosts[i].Host
	case s.On:
		s.Next = "slipway etcd snapshot " + s.Name
	default:
		s.Next = "write spec.etcd.backup into the cluster file, then run: slipway apply -f FILE"
	}
}
