package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
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

// toCome reports whether a time that a host has saved is in the future. The host's clock
// was ahead then, and until that time nothing would warn that the host does no more work.
func toCome(now, at time.Time) bool { return at.Sub(now) > maxAhead }

// Scheduled queries the hosts with etcd members about their automatic snapshots. It does
// not need the API or etcd.
func (s *service) Scheduled(ctx context.Context, name string, progress event.Sink) (*Scheduled, error) {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.Spec.Etcd.External != nil {
		return nil, external(name, "a snapshot")
	}
	ctx, l, done, err := s.look(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	l.only(l.asksEtcd)
	found := map[string]*ScheduledHost{}
	for _, h := range l.hosts {
		found[h.spec.Name] = &ScheduledHost{Host: h.spec.Name}
	}
	l.lookAt(ctx, s.looks.host, progress, func(ctx context.Context, h *hostLook) {
		h.err = found[h.spec.Name].ask(ctx, h)
	})
	out := &Scheduled{Name: name, On: c.Spec.Etcd.Backup != nil, Warnings: diag.List{}, Hosts: []ScheduledHost{}}
	warn := func(id, host, hint, format string, args ...any) {
		out.Warnings = append(out.Warnings,
			diag.Diagnostic{ID: id, Severity: diag.Warning, Host: host, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	for _, h := range l.hosts {
		if h.err != nil {
			d := hostconn.Diagnose(h.err)
			warn(cmp.Or(d.ID, idNodeNotReady), h.spec.Name, d.Hint, "%s", d.Message)
			continue
		}
		out.Hosts = append(out.Hosts, *found[h.spec.Name])
	}
	if out.On {
		out.judge(l.env.Cluster, s.Now(), warn)
	}
	out.conclude()
	return out, nil
}

// ask queries the host.
func (a *ScheduledHost) ask(ctx context.Context, h *hostLook) error {
	results, err := h.conn.Check(ctx, etcdbackup.ScheduleState())
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

// judge warns about hosts without recent snapshots.
func (s *Scheduled) judge(c *v1alpha1.Cluster, now time.Time, warn warner) {
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
		case len(h.Kept) > 0 && toCome(now, h.Kept[0].Taken):
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
		h.judgeElsewhere(c, now, warn)
		h.judgeDrill(c, now, warn)
	}
}

// judgeElsewhere warns about copies that fail, do not finish or are not made, for every
// target of the description, even if the host reports nothing about it.
func (a *ScheduledHost) judgeElsewhere(c *v1alpha1.Cluster, now time.Time, warn warner) {
	copying := func(h v1alpha1.Host) bool { return h.Name == a.Host && etcdbackup.HasCopies(c, h) }
	if a == nil || a.AutoSnapshotOutcome == nil || !slices.ContainsFunc(c.Spec.Hosts, copying) {
		return
	}
	late := lateBy * c.Spec.Etcd.Backup.Every.Duration
	for _, to := range targetsOf(c) {
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
		case toCome(now, k.Copied):
			warn(idBackupCopy, a.Host, "make a copy with the current time, on the host: systemctl start slipway-backup",
				"it is unknown whether its snapshots are copied to %s: %s, which is in the future", k.Target, last)
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

// judgeDrill warns about restore tests that fail or are not run. A host that reports
// nothing about restore tests is not set up for them, which the next plan shows.
func (a *ScheduledHost) judgeDrill(c *v1alpha1.Cluster, now time.Time, warn warner) {
	drilling := func(h v1alpha1.Host) bool { return h.Name == a.Host && etcdbackup.HasDrills(c, h) }
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
	case toCome(now, since):
		warn(idBackupDrill, a.Host, "run a restore test with the current time, on the host: systemctl start slipway-backup",
			"it is unknown whether its snapshots are tested: %s; the interval counts from %s, which is in the future",
			last, since.UTC().Format(time.RFC3339))
	case now.Sub(since) > lateBy*every:
		warn(idBackupDrill, a.Host, "start a snapshot and its restore test on the host: systemctl start slipway-backup",
			"its snapshots are not tested: %s, although one should be tested every %s", last, every)
	}
}

// byItself queries the results of a host's copies and restore tests, if it is to do
// either. Other checks report a host that does not respond.
func (l *looker) byItself(ctx context.Context, h *hostLook) {
	if !etcdbackup.HasCopies(l.env.Cluster, h.spec) && !etcdbackup.HasDrills(l.env.Cluster, h.spec) {
		return
	}
	is := &ScheduledHost{Host: h.spec.Name}
	if is.ask(ctx, h) == nil {
		h.schedule = is
	}
}

// judgeByItself warns about automatic copies and restore tests only.
func (l *looker) judgeByItself(warn warner) {
	for _, h := range l.hosts {
		h.schedule.judgeElsewhere(l.env.Cluster, l.svc.Now(), warn)
		h.schedule.judgeDrill(l.env.Cluster, l.svc.Now(), warn)
	}
}

func (s *Scheduled) conclude() {
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

// fromHost returns an automatic snapshot of a host: HOST selects its newest one,
// HOST/FILE a certain one.
func (m *snapshotting) fromHost(ctx context.Context, of string) (k op.KeptSnapshot, _ *hostLook, err error) {
	host, file, _ := strings.Cut(of, "/")
	see := "list the snapshots: slipway etcd snapshots " + m.report.Name + " --hosts"
	i := slices.IndexFunc(m.looker.hosts, func(h *hostLook) bool { return h.spec.Name == host && m.looker.asksEtcd(h.spec) })
	if i < 0 {
		return k, nil, refused(idBackupNotThere, "the cluster has no host "+host+" with an etcd member", see)
	}
	h := m.looker.hosts[i]
	if h.conn == nil || h.err != nil {
		d := hostconn.Diagnose(cmp.Or(h.err, errNoTime))
		return k, nil, refused(idBackupNotThere, host+" cannot be queried: "+d.Message,
			cmp.Or(d.Hint, "make the host reachable")+", or use a snapshot of another host: slipway etcd snapshots "+m.report.Name+" --hosts")
	}
	var is ScheduledHost
	if err := is.ask(ctx, h); err != nil {
		return k, nil, err
	}
	if is.AutoSnapshotOutcome != nil {
		for _, k := range is.Kept {
			if file == "" || path.Base(k.Path) == file {
				return k, h, nil
			}
		}
	}
	missing := "host " + host + " has no scheduled snapshot"
	if file != "" {
		missing += " named " + file
	}
	return k, nil, refused(idBackupNotThere, missing, see)
}
