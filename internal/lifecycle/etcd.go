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
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// EtcdReport is the current state of a cluster's etcd and the hosts used to query it.
type EtcdReport struct {
	Name     string     `json:"name"`
	Verdict  Verdict    `json:"verdict"`
	Summary  string     `json:"summary"` // the verdict in one line
	Warnings diag.List  `json:"warnings"`
	Etcd     EtcdInfo   `json:"etcd"`
	Hosts    []EtcdHost `json:"hosts"`
	// Next is the next command.
	Next string `json:"next"`
}

// EtcdHost is a host with an etcd member; for external etcd, a host from which it can be
// queried.
type EtcdHost struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Host is "ok" if SSH reaches the host, otherwise the reason.
	Host string `json:"host"`
	// FreeBytes is the free space on the disk of the etcd data, TotalBytes the size of
	// that disk; 0 if the host could not be queried.
	FreeBytes  uint64 `json:"freeBytes,omitempty"`
	TotalBytes uint64 `json:"totalBytes,omitempty"`
}

// Etcd returns the state of a cluster's etcd within a bounded time, even if hosts are
// down. It does not need the API. progress, which may be nil, receives events about
// connecting.
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

// only limits the hosts to the chosen ones.
func (l *looker) only(chosen func(v1alpha1.Host) bool) {
	l.hosts = slices.DeleteFunc(l.hosts, func(h *hostLook) bool { return !chosen(h.spec) })
}

// etcdReport connects to the hosts and queries etcd from a host that can.
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
		e.Host = hostconn.Diagnose(h.err).Message
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

// judgeReport sets the verdict, the warnings and the next command.
func (l *looker) judgeReport(r *EtcdReport) {
	warn := func(id, host, hint, format string, args ...any) {
		r.Warnings = append(r.Warnings,
			diag.Diagnostic{ID: id, Severity: diag.Warning, Host: host, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	for _, h := range l.hosts {
		if h.err != nil {
			d := hostconn.Diagnose(h.err)
			warn(cmp.Or(d.ID, idEtcdMember), h.spec.Name, d.Hint, "%s", d.Message)
		}
	}
	if r.Etcd.Message != "" {
		warn(idEtcdMember, "", "", "etcd cannot be queried (%s); the listed members are from the saved state", r.Etcd.Message)
	} else {
		judgeEtcd(&r.Etcd, warn)
		l.judgeRecord(r, warn)
	}
	l.judgeByItself(warn)
	l.concludeEtcd(r)
}

// judgeRecord warns about members without a host in the saved cluster, and about hosts
// that should have a member.
func (l *looker) judgeRecord(r *EtcdReport, warn warner) {
	if l.env.Cluster.Spec.Etcd.External != nil || len(r.Etcd.Members) == 0 {
		return
	}
	onRecord := func(m EtcdMember) bool {
		return slices.ContainsFunc(l.hosts, func(h *hostLook) bool { return isMemberOf(m, h.spec) })
	}
	for _, m := range r.Etcd.Members {
		if !onRecord(m) {
			warn(idEtcdMember, m.called(), "", "the etcd member does not belong to any host of the cluster")
		}
	}
	for _, h := range l.hosts {
		if l.asksEtcd(h.spec) && !slices.ContainsFunc(r.Etcd.Members, func(m EtcdMember) bool { return isMemberOf(m, h.spec) }) {
			warn(idEtcdMember, h.spec.Name, "make the host join etcd: slipway apply "+r.Name, "etcd has no member for this host")
		}
	}
}

// concludeEtcd sets the verdict, the summary and the next command.
func (l *looker) concludeEtcd(r *EtcdReport) {
	voters, up, leader := quorum(r.Etcd.Members)
	r.Next = "slipway etcd snapshot " + r.Name
	switch {
	case len(l.admin) == 0 && r.Etcd.Message != "":
		r.Verdict, r.Summary = Absent, "its control plane is not running yet"
		r.Next = "slipway cluster-info " + r.Name
	case r.Etcd.Message != "":
		r.Verdict, r.Summary = Down, r.Etcd.Message
		r.Next = "slipway cluster-info " + r.Name
	case up < voters/2+1:
		r.Verdict = Down
		r.Summary = fmt.Sprintf("%d of %d members respond, but a quorum needs %d: nothing can be written, and the API does not work",
			up, voters, voters/2+1)
		r.Next = "start the other members, or, if they are permanently lost: slipway etcd rescue " + r.Name + " --lost NAME,…"
	case leader == "":
		r.Verdict, r.Summary = Down, "no member is the leader; nothing can be written"
		r.Next = "slipway etcd health " + r.Name
	case len(r.Warnings) > 0:
		r.Verdict, r.Summary = Degraded, fmt.Sprintf("%d of %d members respond, the leader is %s", up, voters, leader)
		r.Next = l.nextForEtcd(r)
	default:
		r.Verdict, r.Summary = Healthy, answering(voters)+", the leader is "+leader
	}
	if l.env.Cluster.Spec.Etcd.External != nil {
		r.Next = "slipway cluster-info " + r.Name // the owner of the external etcd does the rest
	}
}

func answering(n int) string {
	if n == 1 {
		return "its only member responds"
	}
	return fmt.Sprintf("all %d members respond", n)
}

// nextForEtcd returns the next command for an etcd that works but has warnings.
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

// quorum returns the number of voting members, how many of these respond, and the leader.
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

// isMemberOf reports whether a member belongs to a host: by its name, or by its peer URL
// if it has no name yet.
func isMemberOf(m EtcdMember, h v1alpha1.Host) bool {
	if m.Name != "" {
		return m.Name == h.Name
	}
	return slices.Contains(m.PeerURLs, module.EtcdURL(h, facts.EtcdPeerPort))
}
