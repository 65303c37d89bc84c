package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// EtcdReport is a cluster's etcd at this moment, and the hosts it is asked on.
type EtcdReport struct {
	Name     string     `json:"name"`
	Verdict  Verdict    `json:"verdict"`
	Summary  string     `json:"summary"` // the verdict in one line
	Warnings diag.List  `json:"warnings"`
	Etcd     EtcdInfo   `json:"etcd"`
	Hosts    []EtcdHost `json:"hosts"`
	// Next is what to type now.
	Next string `json:"next"`
}

// EtcdHost is a host with a member of etcd, or, of an etcd of others, one on
// which it can be asked.
type EtcdHost struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Host is whether SSH reaches it: ok, or why not.
	Host string `json:"host"`
	// FreeBytes is the room on the disk of etcd's data, TotalBytes that disk's
	// size; 0 if the host could not be asked.
	FreeBytes  uint64 `json:"freeBytes,omitempty"`
	TotalBytes uint64 `json:"totalBytes,omitempty"`
}

// Etcd looks at a cluster's etcd. It needs no API, and answers with what can be
// known within a bounded time, whoever is down. progress, which may be nil,
// hears of connecting.
func (s *service) Etcd(ctx context.Context, name string, progress event.Sink) (*EtcdReport, error) {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, l, done, err := s.look(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	l.only(l.asksEtcd)
	return l.etcdReport(ctx, progress), nil
}

// only has it look at some of the hosts.
func (l *looker) only(chosen func(v1alpha1.Host) bool) {
	l.hosts = slices.DeleteFunc(l.hosts, func(h *hostLook) bool { return !chosen(h.spec) })
}

// etcdReport connects to hosts, and asks etcd on those on which it can be asked.
func (l *looker) etcdReport(ctx context.Context, progress event.Sink) *EtcdReport {
	c := l.env.Cluster
	r := &EtcdReport{
		Name: c.Name, Warnings: diag.List{}, Hosts: []EtcdHost{},
		Etcd: EtcdInfo{Type: cmp.Or(c.Spec.Etcd.Type, "stacked"), Members: []EtcdMember{}},
	}
	var asked sync.WaitGroup
	asked.Go(func() { l.askEtcd(ctx, &r.Etcd) })
	l.lookAt(ctx, l.svc.looks.host, progress, func(ctx context.Context, h *hostLook) {
		f := facts.Ask(ctx, h.spec, h.conn, op.Facts{Dirs: []string{facts.DirEtcd}})
		h.facts, h.err = f.Facts, f.Err
		l.byItself(ctx, h)
	})
	asked.Wait()
	for _, h := range l.hosts {
		if l.asksEtcd(h.spec) {
			r.Hosts = append(r.Hosts, etcdHost(h))
		}
	}
	l.judgeReport(r)
	return r
}

func etcdHost(h *hostLook) EtcdHost {
	e := EtcdHost{Name: h.spec.Name, Address: h.spec.Address, Host: "ok"}
	if h.err != nil {
		e.Host = why(h.err).Message
	}
	if h.facts == nil {
		return e
	}
	for _, d := range h.facts.Disks {
		if d.Dir == facts.DirEtcd {
			e.FreeBytes, e.TotalBytes = d.FreeBytes, d.TotalBytes
		}
	}
	return e
}

// judgeReport is the verdict, with what is wrong and what to do about it.
func (l *looker) judgeReport(r *EtcdReport) {
	warn := func(id, host, hint, format string, args ...any) {
		r.Warnings = append(r.Warnings, diag.Diagnostic{ID: id, Severity: diag.Warning, Host: host, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	for _, h := range l.hosts {
		if h.err != nil {
			d := why(h.err)
			warn(cmp.Or(d.ID, idEtcdMember), h.spec.Name, d.Hint, "%s", d.Message)
		}
	}
	if r.Etcd.Message != "" {
		warn(idEtcdMember, "", "", "etcd cannot be asked (%s); its members are those on record", r.Etcd.Message)
	} else {
		judgeEtcd(&r.Etcd, warn)
		l.judgeRecord(r, warn)
	}
	l.judgeByItself(warn)
	l.concludeEtcd(r)
}

// judgeRecord tells of members that nobody knows, and of hosts that ought to
// have one.
func (l *looker) judgeRecord(r *EtcdReport, warn warner) {
	if l.env.Cluster.Spec.Etcd.External != nil || len(r.Etcd.Members) == 0 {
		return
	}
	onRecord := func(m EtcdMember) bool {
		return slices.ContainsFunc(l.hosts, func(h *hostLook) bool { return isMemberOf(m, h.spec) })
	}
	for _, m := range r.Etcd.Members {
		if !onRecord(m) {
			warn(idEtcdMember, m.called(), "", "the etcd member is that of no host on record")
		}
	}
	for _, h := range l.hosts {
		if l.asksEtcd(h.spec) && !slices.ContainsFunc(r.Etcd.Members, func(m EtcdMember) bool { return isMemberOf(m, h.spec) }) {
			warn(idEtcdMember, h.spec.Name, "have it join: slipway apply "+r.Name, "etcd has no member of this host")
		}
	}
}

// concludeEtcd says it in one word, one line, and one command.
func (l *looker) concludeEtcd(r *EtcdReport) {
	voters, up, leader := quorum(r.Etcd.Members)
	r.Next = "slipway etcd snapshot " + r.Name
	switch {
	case len(l.admin) == 0 && r.Etcd.Message != "":
		r.Verdict, r.Summary = Absent, "its control plane has not come up yet"
		r.Next = "slipway cluster-info " + r.Name
	case r.Etcd.Message != "":
		r.Verdict, r.Summary = Down, r.Etcd.Message
		r.Next = "slipway cluster-info " + r.Name
	case up < voters/2+1:
		r.Verdict = Down
		r.Summary = fmt.Sprintf("%d of %d members answer, and it takes %d: nothing can be written, and the API does not work", up, voters, voters/2+1)
		r.Next = "bring the others back; or, if they are gone for good: slipway etcd rescue " + r.Name + " --lost NAME,…; or, if all data are lost: slipway etcd restore " + r.Name + " --from FILE"
	case leader == "":
		r.Verdict, r.Summary = Down, "its members follow no leader: nothing can be written"
		r.Next = "slipway etcd health " + r.Name
	case len(r.Warnings) > 0:
		r.Verdict, r.Summary = Degraded, fmt.Sprintf("%d of %d members answer, the leader is %s", up, voters, leader)
		r.Next = l.nextForEtcd(r)
	default:
		r.Verdict, r.Summary = Healthy, answering(voters)+", the leader is "+leader
	}
	if l.env.Cluster.Spec.Etcd.External != nil {
		r.Next = "slipway cluster-info " + r.Name // the rest is its owner's business
	}
}

func answering(n int) string {
	if n == 1 {
		return "its one member answers"
	}
	return fmt.Sprintf("all %d members answer", n)
}

// nextForEtcd is what to do about an etcd that works, and has something wrong.
func (l *looker) nextForEtcd(r *EtcdReport) string {
	for _, m := range r.Etcd.Members {
		if full := m.QuotaBytes > 0 && m.DBBytes*100 >= m.QuotaBytes*nearQuota; full || slices.Contains(m.Alarms, "NOSPACE") {
			return "slipway etcd defrag " + r.Name
		}
	}
	for _, h := range l.hosts {
		silent := slices.ContainsFunc(r.Etcd.Members, func(m EtcdMember) bool {
			return !m.Answers && isMemberOf(m, h.spec)
		})
		if silent && h.err == nil {
			log := "journalctl -u etcd -n 30 --no-pager"
			if l.env.Stacked() {
				log = "journalctl -u kubelet -n 30 --no-pager"
			}
			return "slipway exec " + r.Name + "@" + h.spec.Name + " --sudo -- " + log
		}
	}
	if slices.ContainsFunc(r.Warnings, func(d diag.Diagnostic) bool { return d.ID == idBackupCopy || d.ID == idBackupDrill }) {
		return "slipway etcd snapshots " + r.Name + " --hosts"
	}
	return "slipway cluster-info " + r.Name
}

// quorum is how many members vote, how many of these answer, and whom they
// follow.
func quorum(members []EtcdMember) (voters, up int, leader string) {
	for _, m := range members {
		if m.Learner {
			continue
		}
		voters++
		if m.Answers {
			up++
		}
		if m.Leader {
			leader = m.called()
		}
	}
	return voters, up, leader
}

// isMemberOf says that a member is that of a host: by its name, or by where it
// is as long as it has none.
func isMemberOf(m EtcdMember, h v1alpha1.Host) bool {
	if m.Name != "" {
		return m.Name == h.Name
	}
	return slices.Contains(m.PeerURLs, module.EtcdURL(h, facts.EtcdPeerPort))
}
