package inspect

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module/certs"
)

// HealthReport is the part of the state of a cluster that is read from its hosts.
type HealthReport struct {
	// Hosts are the hosts that were queried. Unasked is the number of hosts for which there was no time.
	Hosts   []HostHealth
	Unasked int
	// Etcd is the etcd of the cluster, and EtcdProblems its problems.
	Etcd         EtcdInfo
	EtcdProblems diag.List
	// Certificates are sorted by their expiry, earliest first.
	Certificates        []Certificate
	CertificateProblems diag.List
	// RenewAfter is the time from which the management plane renews the first certificate if its host fails to do so. It is
	// zero if there is no certificate. RenewEvery is the time between two attempts.
	RenewAfter time.Time
	RenewEvery time.Duration
	// Backups reports whether automatic snapshots are configured, with the intervals of snapshots and of restore tests,
	// 0 for never. Schedules are the results of hosts.
	Backups                bool
	BackupEvery, TestEvery time.Duration
	Schedules              []ScheduledHost
	BackupProblems         diag.List
	RestoreTestProblems    diag.List
}

// Parts of the lifetime of a certificate.
const (
	// hostPart is the last part, in which hosts renew it. managerPart is the last part, in which the management plane
	// does so: all hosts that work have renewed it before.
	hostPart, managerPart = 5, 20
	// attemptPart is the part between two attempts, at most maxAttemptTime.
	attemptPart    = 100
	maxAttemptTime = 24 * time.Hour
)

// setRenewal determines when the management plane has to renew a certificate. hosts reports whether hosts renew
// certificates themselves.
func (r *HealthReport) setRenewal(validity time.Duration, hosts bool) {
	part := time.Duration(hostPart)
	if hosts {
		part = managerPart
	}
	for _, c := range r.Certificates {
		if c.CA || c.Rotates || c.External || c.Expires.IsZero() || c.Begins.IsZero() {
			continue
		}
		life := c.Expires.Sub(c.Begins)
		if validity > 0 { // kubeadm makes certificates begin with their CA
			life = min(life, validity)
		}
		if at := c.Expires.Add(-life / part); r.RenewAfter.IsZero() || at.Before(r.RenewAfter) {
			r.RenewAfter, r.RenewEvery = at, min(life/attemptPart, maxAttemptTime)
		}
	}
}

// HostHealth is the state of one host.
type HostHealth struct {
	Name string
	// Problem is the reason why SSH does not reach the host, "" if it does.
	Problem string
	// Endpoint is "ok" if the API responds to this node, otherwise the reason; "" if it was not queried.
	Endpoint string
}

// HostsTime is the time that a query of all hosts of a cluster can take, for a limit of one host.
func HostsTime(hosts int, limit time.Duration) time.Duration {
	return time.Duration(1+(hosts-1)/hostconn.MaxParallel) * limit
}

// QueryHealth queries all hosts of a cluster. It does not need the API.
func (in *Inspector) QueryHealth(ctx context.Context, name string) (*HealthReport, error) {
	c, err := in.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, s, done, err := in.StartSession(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	backups := c.Spec.Etcd.Backup != nil && c.Spec.Etcd.External == nil
	out := &HealthReport{Backups: backups, Etcd: EtcdInfo{Type: c.Spec.Etcd.Type}}
	if backups {
		out.BackupEvery, out.TestEvery = durationOf(c.Spec.Etcd.Backup.Every), durationOf(c.Spec.Etcd.Backup.DrillEvery)
	}
	var asked sync.WaitGroup
	asked.Go(func() { s.queryEtcd(ctx, &out.Etcd) })
	s.QueryHosts(ctx, in.Limits.Host, nil, func(ctx context.Context, h *Host) {
		s.queryHost(ctx, h)
		if backups && h.Err == nil && h.schedule == nil && s.CanQueryEtcd(h.Spec) {
			is := &ScheduledHost{Host: h.Spec.Name}
			if h.Err = is.Read(ctx, h); h.Err == nil {
				h.schedule = is
			}
		}
	})
	asked.Wait()
	for _, h := range s.Hosts {
		out.addHost(h)
	}
	sortCertificates(out.Certificates)
	s.evaluateHealth(out)
	return out, nil
}

// durationOf returns a duration, 0 for none.
func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

// addHost adds the result of a host.
func (r *HealthReport) addHost(h *Host) {
	if errors.Is(h.Err, ErrNoTime) {
		r.Unasked++
		return
	}
	is := HostHealth{Name: h.Spec.Name}
	if h.Err != nil {
		is.Problem = hostconn.Diagnose(h.Err).Message
	}
	if h.triedEndpoint {
		is.Endpoint = "ok"
		if h.endpoint != nil {
			is.Endpoint = describeAPIError(h.endpoint)
		}
	}
	r.Hosts = append(r.Hosts, is)
	r.Certificates = append(r.Certificates, h.certificates...)
	if h.schedule != nil && r.Backups {
		r.Schedules = append(r.Schedules, *h.schedule)
	}
}

// evaluateHealth adds the problems, as the commands for etcd, certificates and snapshots report them.
func (s *Session) evaluateHealth(r *HealthReport) {
	c, now := s.Env.Cluster, s.in.c.Now()
	if r.Etcd.Message == "" {
		warn := warnInto(&r.EtcdProblems)
		evaluateEtcd(&r.Etcd, warn)
		s.evaluateMembership(&EtcdReport{Name: c.Name, Etcd: r.Etcd}, warn)
	}
	certificateCheck{cluster: c.Name, now: now, validity: s.Env.CertValidity()}.evaluate(r.Certificates, warnInto(&r.CertificateProblems))
	r.setRenewal(s.Env.CertValidity(), certs.AutoRenews(s.Env))
	if !r.Backups {
		return
	}
	taken := &Scheduled{Name: c.Name, On: true, Hosts: r.Schedules}
	taken.evaluate(c, now, warnInto(&taken.Warnings))
	for _, d := range taken.Warnings {
		if d.ID == idBackupDrill {
			r.RestoreTestProblems = append(r.RestoreTestProblems, d)
			continue
		}
		r.BackupProblems = append(r.BackupProblems, d)
	}
}

// FindProblem returns the reason why the control planes of a cluster are not all healthy, "" if they are. A nil
// report is not known.
func FindProblem(api *APIReport, hosts *HealthReport) string {
	switch {
	case api == nil || !api.Answers:
		return "the API does not respond"
	case hosts == nil || hosts.Etcd.Message != "":
		return "etcd cannot be queried"
	}
	for _, n := range api.Nodes {
		if slices.Contains(n.Roles, v1alpha1.RoleControlPlane) && n.Ready != "Ready" {
			return "control plane " + n.Name + " is not ready"
		}
	}
	for _, m := range hosts.Etcd.Members {
		if !m.Learner && !m.Healthy {
			return "etcd member " + m.Label() + " is not healthy"
		}
	}
	return ""
}
