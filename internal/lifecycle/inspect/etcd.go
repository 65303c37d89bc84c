package inspect

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
	"slipway.dev/slipway/internal/spec/hostroles"
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
func (in *Inspector) Etcd(ctx context.Context, name string, progress event.Sink) (*EtcdReport, error) {
	c, err := in.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, s, done, err := in.StartSession(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	s.Select(s.CanQueryEtcd)
	return s.ReportEtcd(ctx, progress), nil
}

// Select limits the hosts to the chosen ones.
func (s *Session) Select(chosen func(v1alpha1.Host) bool) {
	s.Hosts = slices.DeleteFunc(s.Hosts, func(h *Host) bool { return !chosen(h.Spec) })
}

// ReportEtcd connects to the hosts and queries etcd from a host that can.
func (s *Session) ReportEtcd(ctx context.Context, progress event.Sink) *EtcdReport {
	c := s.Env.Cluster
	r := &EtcdReport{
		Name: c.Name, Warnings: diag.List{}, Hosts: []EtcdHost{},
		Etcd: EtcdInfo{Type: cmp.Or(c.Spec.Etcd.Type, "stacked"), Members: []EtcdMember{}},
	}
	var asked sync.WaitGroup
	asked.Go(func() { s.queryEtcd(ctx, &r.Etcd) })
	s.QueryHosts(ctx, s.in.Limits.Host, progress, func(ctx context.Context, h *Host) {
		f := facts.ReadHost(ctx, h.Spec, h.Conn, op.Facts{Dirs: []string{facts.DirEtcd}})
		h.facts, h.Err = f.Facts, f.Err
		s.readSchedule(ctx, h)
	})
	asked.Wait()
	for _, h := range s.Hosts {
		if s.CanQueryEtcd(h.Spec) {
			r.Hosts = append(r.Hosts, NewEtcdHost(h))
		}
	}
	s.evaluateEtcdReport(r)
	return r
}

// NewEtcdHost returns what is known about an etcd host before its members are queried.
func NewEtcdHost(h *Host) EtcdHost {
	e := EtcdHost{Name: h.Spec.Name, Address: h.Spec.Address, Host: "ok"}
	if h.Err != nil {
		e.Host = hostconn.Diagnose(h.Err).Message
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

// evaluateEtcdReport sets the verdict, the warnings and the next command.
func (s *Session) evaluateEtcdReport(r *EtcdReport) {
	warn := warnInto(&r.Warnings)
	for _, h := range s.Hosts {
		if h.Err != nil {
			h.warnUnreachable(idEtcdMember, warn)
		}
	}
	if r.Etcd.Message != "" {
		warn(idEtcdMember, "", "", "etcd cannot be queried (%s); the listed members are from the saved state", r.Etcd.Message)
	} else {
		evaluateEtcd(&r.Etcd, warn)
		s.evaluateMembership(r, warn)
	}
	s.evaluateSchedules(warn)
	s.setEtcdVerdict(r)
}

// evaluateMembership warns about members without a host in the saved cluster, and about hosts
// that should have a member.
func (s *Session) evaluateMembership(r *EtcdReport, warn warnFunc) {
	if s.Env.Cluster.Spec.Etcd.External != nil || len(r.Etcd.Members) == 0 {
		return
	}
	onRecord := func(m EtcdMember) bool {
		return slices.ContainsFunc(s.Hosts, func(h *Host) bool { return IsMemberOf(m, h.Spec) })
	}
	for _, m := range r.Etcd.Members {
		if !onRecord(m) {
			warn(idEtcdMember, m.Label(), "", "the etcd member does not belong to any host of the cluster")
		}
	}
	for _, h := range s.Hosts {
		if s.CanQueryEtcd(h.Spec) && !slices.ContainsFunc(r.Etcd.Members, func(m EtcdMember) bool { return IsMemberOf(m, h.Spec) }) {
			warn(idEtcdMember, h.Spec.Name, "make the host join etcd: slipway apply "+r.Name, "etcd has no member for this host")
		}
	}
}

// setEtcdVerdict sets the verdict, the summary and the next command.
func (s *Session) setEtcdVerdict(r *EtcdReport) {
	voters, up, leader := CountVoters(r.Etcd.Members)
	r.Next = "slipway etcd snapshot " + r.Name
	switch {
	case len(s.Admin) == 0 && r.Etcd.Message != "":
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
		r.Next = s.nextEtcdCommand(r)
	default:
		r.Verdict, r.Summary = Healthy, describeVoters(voters)+", the leader is "+leader
	}
	if s.Env.Cluster.Spec.Etcd.External != nil {
		r.Next = "slipway cluster-info " + r.Name // the owner of the external etcd does the rest
	}
}

func describeVoters(n int) string {
	if n == 1 {
		return "its only member responds"
	}
	return fmt.Sprintf("all %d members respond", n)
}

// nextEtcdCommand returns the next command for an etcd that works but has warnings.
func (s *Session) nextEtcdCommand(r *EtcdReport) string {
	for _, m := range r.Etcd.Members {
		if full := m.QuotaBytes > 0 && m.DBBytes*100 >= m.QuotaBytes*nearQuota; full || slices.Contains(m.Alarms, "NOSPACE") {
			return "slipway etcd defrag " + r.Name
		}
	}
	for _, h := range s.Hosts {
		silent := slices.ContainsFunc(r.Etcd.Members, func(m EtcdMember) bool {
			return !m.Answers && IsMemberOf(m, h.Spec)
		})
		if silent && h.Err == nil {
			log := "journalctl -u etcd -n 30 --no-pager"
			if s.Env.HasStackedEtcd() {
				log = "journalctl -u kubelet -n 30 --no-pager"
			}
			return "slipway exec " + r.Name + "@" + h.Spec.Name + " --sudo -- " + log
		}
	}
	if slices.ContainsFunc(r.Warnings, func(d diag.Diagnostic) bool { return d.ID == idBackupCopy || d.ID == idBackupDrill }) {
		return "slipway etcd snapshots " + r.Name + " --hosts"
	}
	return "slipway cluster-info " + r.Name
}

// CountVoters returns the number of voting members, how many of these respond, and the leader.
func CountVoters(members []EtcdMember) (voters, up int, leader string) {
	for _, m := range members {
		if m.Learner {
			continue
		}
		voters++
		if m.Answers {
			up++
		}
		if m.Leader {
			leader = m.Label()
		}
	}
	return voters, up, leader
}

// IsMemberOf reports whether a member belongs to a host: by its name, or by its peer URL
// if it has no name yet.
func IsMemberOf(m EtcdMember, h v1alpha1.Host) bool {
	if m.Name != "" {
		return m.Name == h.Name
	}
	return slices.Contains(m.PeerURLs, module.EtcdURL(h, hostroles.EtcdPeerPort))
}

// RefuseExternalEtcd returns the error for an operation that Slipway cannot do on external etcd.
func RefuseExternalEtcd(name, what string) error {
	return diag.Refuse(idEtcdExternal, "the etcd of cluster "+name+" is external: "+what+" is not supported",
		"ask the owner of the etcd")
}
