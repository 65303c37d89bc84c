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
	recovery "slipway.dev/slipway/internal/module/backup"
	"slipway.dev/slipway/internal/node/op"
)

// Scheduled is what the hosts of a cluster do about snapshots by themselves.
type Scheduled struct {
	Name string `json:"name"`
	// On says that the cluster is to have it.
	On bool `json:"on"`
	// Good says that there is nothing to warn of.
	Good     bool            `json:"good"`
	Warnings diag.List       `json:"warnings"`
	Hosts    []ScheduledHost `json:"hosts"`
	Next     string          `json:"next"`
}

// A ScheduledHost is one with a member of etcd that answers.
type ScheduledHost struct {
	Host string `json:"host"`
	// Active says that its timer runs as it was set up.
	Active bool `json:"active"`
	// AutoSnapshotOutcome is what came of the latest time; nil if there was none.
	*op.AutoSnapshotOutcome
}

// lateBy is how many times as old as snapshots are apart the newest may be.
const lateBy = 2

// maxAhead is how far a host's clock may be ahead of this machine's.
const maxAhead = 5 * time.Minute

// toCome says that a time that a host has written down is not to be gone by: its clock was
// ahead, and for as long nobody would be told that nothing is done there any more.
func toCome(now, at time.Time) bool { return at.Sub(now) > maxAhead }

// Scheduled asks the hosts with members of etcd for the snapshots that they take by
// themselves. It needs no API and no etcd.
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
		out.Warnings = append(out.Warnings, diag.Diagnostic{ID: id, Severity: diag.Warning, Host: host, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	for _, h := range l.hosts {
		if h.err != nil {
			d := why(h.err)
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

// ask asks the host.
func (a *ScheduledHost) ask(ctx context.Context, h *hostLook) error {
	results, err := h.conn.Check(ctx, recovery.ScheduleState())
	if err != nil {
		return err
	}
	for _, res := range results {
		switch {
		case res.Kind == op.KindUnit: // one that is not there fails
			a.Active = res.Status == op.Unchanged
		case res.Error != nil:
			return fmt.Errorf("asking for the snapshots that it takes by itself: %w", res.Error)
		case !res.Missing:
			a.AutoSnapshotOutcome = &op.AutoSnapshotOutcome{}
			if err := json.Unmarshal(res.Output, a.AutoSnapshotOutcome); err != nil {
				return fmt.Errorf("reading what came of the snapshots that it takes by itself: %w", err)
			}
		}
	}
	return nil
}

// judge warns of hosts that take none, or none that are new.
func (s *Scheduled) judge(c *v1alpha1.Cluster, now time.Time, warn warner) {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		switch {
		case !h.Active:
			warn(idBackupTimer, h.Host, "have it be set up again: slipway apply "+s.Name, "%s does not run there, or not as it was set up: no snapshots are taken by themselves", recovery.TimerUnit)
		case h.AutoSnapshotOutcome == nil:
			warn(idBackupOld, h.Host, "look again in a few minutes; then on the host: journalctl -u slipway-backup", "it has taken no snapshot by itself yet")
		case h.Failed != "":
			warn(idBackupByItself, h.Host, "on the host: journalctl -u slipway-backup", "on %s it could not take a snapshot: %s", h.At.Format(time.RFC3339), h.Failed)
		case len(h.Kept) > 0 && toCome(now, h.Kept[0].Taken):
			warn(idBackupOld, h.Host, "have one be taken by the clock of now: on the host: systemctl start slipway-backup", "the latest snapshot that is there is said to be of %s, which is yet to come: the host's clock was wrong, or this machine's is, and whether any is taken is not known", h.Kept[0].Taken.UTC().Format(time.RFC3339))
		case len(h.Kept) == 0 || now.Sub(h.Kept[0].Taken) > lateBy*c.Spec.Etcd.Backup.Every.Duration:
			warn(idBackupOld, h.Host, "on the host: systemctl list-timers slipway-backup.timer", "the latest snapshot that is there is older than %s, and one is to be taken every %s", lateBy*c.Spec.Etcd.Backup.Every.Duration, c.Spec.Etcd.Backup.Every.Duration)
		case h.Unremoved != "":
			warn(idBackupByItself, h.Host, "on the host: journalctl -u slipway-backup", "on %s a snapshot was taken, but the oldest cannot be removed: %s", h.At.Format(time.RFC3339), h.Unremoved)
		}
		h.judgeElsewhere(c, now, warn)
		h.judgeDrill(c, now, warn)
	}
}

// judgeElsewhere warns of copies that fail, do not come to an end, or are not made: to
// all places that there are to be, whether the host has told of them or not.
func (a *ScheduledHost) judgeElsewhere(c *v1alpha1.Cluster, now time.Time, warn warner) {
	copying := func(h v1alpha1.Host) bool { return h.Name == a.Host && recovery.HasCopies(c, h) }
	if a == nil || a.AutoSnapshotOutcome == nil || !slices.ContainsFunc(c.Spec.Hosts, copying) {
		return
	}
	late := lateBy * c.Spec.Etcd.Backup.Every.Duration
	for _, to := range targetsOf(c) {
		k := op.CopyOutcome{Target: to.Name}
		if i := slices.IndexFunc(a.Copies, func(k op.CopyOutcome) bool { return k.Target == to.Name }); i >= 0 {
			k = a.Copies[i]
		}
		last := "there is none of this host's yet"
		if !k.Copied.IsZero() {
			last = "the latest of this host's there is of " + k.Copied.UTC().Format(time.RFC3339)
		}
		switch {
		case k.Failed != "":
			warn(idBackupCopy, a.Host, "on the host: journalctl -u slipway-backup", "copying its snapshots to %s has failed since %s: %s; %s", k.Target, k.Since.UTC().Format(time.RFC3339), k.Failed, last)
		case !k.Begun.IsZero() && now.Sub(k.Begun) > recovery.CopyTime(c.Spec.Etcd.Backup):
			warn(idBackupCopy, a.Host, "on the host: journalctl -u slipway-backup", "copying its snapshots to %s, begun at %s, has not ended: what is there may be stalled; %s", k.Target, k.Begun.UTC().Format(time.RFC3339), last)
		case toCome(now, k.Copied):
			warn(idBackupCopy, a.Host, "have one be made by the clock of now: on the host: systemctl start slipway-backup", "whether its snapshots are copied to %s is not known: %s, which is yet to come", k.Target, last)
		case now.Sub(k.Copied) > late:
			warn(idBackupCopy, a.Host, "on the host: systemctl start slipway-backup", "its snapshots are not copied to %s: %s, and one is to be made every %s", k.Target, last, c.Spec.Etcd.Backup.Every.Duration)
		case k.Unremoved != "":
			warn(idBackupCopy, a.Host, "may the host remove there what it has written? on the host: journalctl -u slipway-backup", "its snapshots are copied to %s, but what is to go there stays: %s; %s", k.Target, k.Unremoved, last)
		}
	}
}

// judgeDrill warns of snapshots that were tried and are not good, or are not tried. What
// a host says nothing of it has not been set up for: a plan says so.
func (a *ScheduledHost) judgeDrill(c *v1alpha1.Cluster, now time.Time, warn warner) {
	drilling := func(h v1alpha1.Host) bool { return h.Name == a.Host && recovery.HasDrills(c, h) }
	if a == nil || a.AutoSnapshotOutcome == nil || a.Drill == nil || !slices.ContainsFunc(c.Spec.Hosts, drilling) {
		return
	}
	d, every := a.Drill, c.Spec.Etcd.Backup.DrillEvery.Duration
	last, since := "none of this host's has been found good yet", d.Since
	if !d.Good.IsZero() {
		last, since = "the latest of this host's that was found good is of "+d.Good.UTC().Format(time.RFC3339), d.Good
	}
	switch {
	case d.Failed != "":
		warn(idBackupDrill, a.Host, "on the host: journalctl -u slipway-backup; until it is mended, have a backup that was tried: slipway etcd snapshot "+c.Name+", then: slipway etcd drill "+c.Name, "restoring its snapshots into an etcd of its own has failed since %s: %s; %s", d.Since.UTC().Format(time.RFC3339), d.Failed, last)
	case !d.Begun.IsZero() && now.Sub(d.Begun) > op.AutoDrillTime:
		warn(idBackupDrill, a.Host, "on the host: journalctl -u slipway-backup", "restoring one of its snapshots into an etcd of its own, begun at %s, was cut off; %s", d.Begun.UTC().Format(time.RFC3339), last)
	case toCome(now, since):
		warn(idBackupDrill, a.Host, "have one be tried by the clock of now: on the host: systemctl start slipway-backup", "whether its snapshots are tried is not known: %s; it counts from %s, which is yet to come", last, since.UTC().Format(time.RFC3339))
	case now.Sub(since) > lateBy*every:
		warn(idBackupDrill, a.Host, "on the host: systemctl start slipway-backup", "its snapshots are not tried: %s, and one is to be tried every %s", last, every)
	}
}

// byItself has a host tell what came of its copies and of trying its snapshots, if it is
// to do either. One that does not say is told of by others.
func (l *looker) byItself(ctx context.Context, h *hostLook) {
	if !recovery.HasCopies(l.env.Cluster, h.spec) && !recovery.HasDrills(l.env.Cluster, h.spec) {
		return
	}
	is := &ScheduledHost{Host: h.spec.Name}
	if is.ask(ctx, h) == nil {
		h.schedule = is
	}
}

// judgeByItself warns of copies and drills, and of nothing else that hosts do by
// themselves.
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
		s.Next = "write spec.etcd.backup into the cluster's file, then: slipway apply -f FILE"
	}
}

// fromHost is a snapshot that a host has taken by itself: HOST is its newest,
// HOST/FILE another one.
func (m *snapshotting) fromHost(ctx context.Context, of string) (k op.KeptSnapshot, _ *hostLook, err error) {
	host, file, _ := strings.Cut(of, "/")
	see := "see them: slipway etcd snapshots " + m.report.Name + " --hosts"
	i := slices.IndexFunc(m.looker.hosts, func(h *hostLook) bool { return h.spec.Name == host && m.looker.asksEtcd(h.spec) })
	if i < 0 {
		return k, nil, refused(idBackupNotThere, "the cluster has no host "+host+" with a member of etcd", see)
	}
	h := m.looker.hosts[i]
	if h.conn == nil || h.err != nil {
		d := why(cmp.Or(h.err, errNoTime))
		return k, nil, refused(idBackupNotThere, host+" cannot be asked: "+d.Message, cmp.Or(d.Hint, "bring it back")+"; or take that of another host: "+see)
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
	return k, nil, refused(idBackupNotThere, host+" has taken no such snapshot by itself: "+cmp.Or(file, "it has none"), see)
}
