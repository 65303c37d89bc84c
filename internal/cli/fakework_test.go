package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec/hostselector"
)

// Targets selects from the hosts that Cluster returns.
func (s service) Targets(ctx context.Context, selector, cluster string) ([]hostexec.Target, diag.List, error) {
	var out []hostexec.Target
	for _, choice := range hostselector.SplitByCluster(selector) {
		if choice.Cluster != "" {
			cluster = choice.Cluster
		}
		c, err := s.Cluster(ctx, cluster)
		if err != nil {
			return nil, nil, err
		}
		hosts, err := hostselector.SelectHosts(c, choice.Selector)
		if err != nil {
			return nil, nil, err
		}
		for _, h := range hosts {
			out = append(out, hostexec.Target{Cluster: cluster, Host: h})
		}
	}
	if s.Lacks {
		return out, diag.List{{ID: "unknown-host", Severity: diag.Warning, Message: `cluster lab: no host has the role "worker"`}}, nil
	}
	return out, nil, nil
}

// runOnTargets returns the result of each host. The scenario can make w1 unreachable.
func (s service) runOnTargets(w hostexec.Work, do func(hostexec.Target) hostexec.HostResult) []hostexec.HostResult {
	var out []hostexec.HostResult
	for _, t := range w.Targets {
		r := hostexec.HostResult{
			ExitCode: -1,
			Error: &diag.Diagnostic{
				ID: string(remote.Unreachable), Severity: diag.Error,
				Message: "no answer\x1b[2J on\nport 22", Hint: "is it up?",
			},
		}
		if t.Host.Name != s.Lost {
			r = do(t)
		}
		r.Cluster, r.Host = t.Cluster, t.Host.Name
		out = append(out, r)
		if w.Done != nil {
			w.Done(r)
		}
	}
	return out
}

func (s service) Exec(_ context.Context, w hostexec.Work, p hostexec.Program) ([]hostexec.HostResult, error) {
	c := call{Method: "Exec", Args: p.Argv}
	if w.Root {
		c.Kind = "root"
	}
	if err := s.recordCall(c); err != nil {
		return nil, err
	}
	return s.runOnTargets(w, func(t hostexec.Target) hostexec.HostResult {
		out, errw := p.Output(t)
		fmt.Fprintf(out, "one\r\ntwo")
		fmt.Fprintln(errw, "oops")
		if p.In != nil {
			_, _ = io.Copy(out, p.In)
		}
		return hostexec.HostResult{ExitCode: s.Exit}
	}), nil
}

func (s service) Copy(_ context.Context, w hostexec.Work, c hostexec.Copy) ([]hostexec.HostResult, error) {
	kind := "send"
	if c.Fetch {
		kind = "fetch"
	}
	if err := s.recordCall(call{Method: "Copy", Kind: kind, Args: []string{c.Here, c.There}}); err != nil {
		return nil, err
	}
	return s.runOnTargets(w, func(t hostexec.Target) hostexec.HostResult {
		c.Progress(t, transfer.Progress{Done: 5, Total: 5})
		sum := &transfer.Summary{To: "/there", Files: 2, Bytes: 5}
		if c.There == "partly" {
			sum.Skipped, sum.SkippedFiles = 3, []transfer.Skipped{{Path: "sub/\x1b[2Jx", Reason: "permission denied"}}
		}
		return hostexec.HostResult{Copied: sum}
	}), nil
}

func (s service) Login(_ context.Context, t hostexec.Target, sh remote.Shell) (int, error) {
	return s.Exit, s.recordCall(call{Method: "Login", Name: t.Cluster + "@" + t.Host.Name, Args: sh.Argv})
}

// Info describes a cluster whose API is reachable, unless a host is lost.
func (s service) Info(ctx context.Context, name string, _ event.Sink) (*inspect.Info, error) {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	in := &inspect.Info{
		Name: name, Verdict: inspect.Healthy, Summary: "all is well", Warnings: diag.List{}, Phase: c.Status.Phase, Kubernetes: "v1.37.1",
		Endpoint: inspect.EndpointInfo{Address: "api.prod.internal:6443", Mode: "none", Answers: true, Through: "cp1"},
		Etcd: inspect.EtcdInfo{
			Type: "stacked",
			Members: []inspect.EtcdMember{{
				Name: "cp1", ID: "a", Leader: true, Answers: true, Healthy: true,
				DBBytes: 3 << 20, Version: "3.7.0", Endpoint: "https://10.0.0.11:2379",
			}},
		},
		Certificates: []inspect.Certificate{
			{Host: "cp1", Path: "/etc/kubernetes/admin.conf", Expires: epoch.AddDate(0, 0, -1)},
			{Host: "cp1", Path: "/etc/kubernetes/pki/apiserver.crt", Expires: epoch.AddDate(1, 0, 0)},
		},
		AddOns: []inspect.AddOn{
			{Name: "coredns", Version: "v1.14.2", Ready: 2, Wanted: 2},
			{Name: "kube-proxy", Version: "v1.37.1", Ready: -1, Wanted: -1},
		},
		Operations: []inspect.OperationInfo{{ID: operationID, Type: "create", Phase: "Succeeded", Created: epoch}},
		Next:       "slipway kubectl " + name + " -- get pods -A",
	}
	res := inspect.Resources{CPU: "2", Memory: "4Gi", Pods: "110", Disk: "40Gi"}
	for _, h := range c.Spec.Hosts {
		n := inspect.NodeInfo{
			Name: h.Name, Roles: h.Roles, Address: h.Address, Version: "v1.37.1", Ready: "Ready", Host: "ok", Endpoint: "ok", Kubelet: "active",
			Capacity: res, Allocatable: inspect.Resources{CPU: "1900m", Memory: "3Gi", Pods: "110"}, ResourcesFrom: "api", OS: "Debian 12",
		}
		if h.Name == s.Lost {
			in.Verdict = inspect.Degraded
			in.Warnings = append(in.Warnings,
				diag.Diagnostic{ID: "host-unreachable", Severity: diag.Warning, Host: h.Name, Message: "no answer on port 22", Hint: "is it up?"})
			n.Host, n.Endpoint, n.Ready, n.ResourcesFrom = "no answer", "", "Unknown", ""
		}
		in.Nodes = append(in.Nodes, n)
	}
	return in, nil
}

// Certificates returns some certificates of a cluster with two hosts.
func (s service) Certificates(ctx context.Context, of lifecycle.Subject, within time.Duration,
	_ event.Sink,
) (*inspect.Certificates, error) {
	if err := s.recordCall(call{
		Method: "Certificates", Name: of.Name, HasSource: of.Cluster != nil,
		Args: []string{within.String()},
	}); err != nil {
		return nil, err
	}
	name := of.Name
	if of.Cluster == nil {
		if _, err := s.Cluster(ctx, name); err != nil {
			return nil, err
		}
	}
	c := &inspect.Certificates{
		Name: name, Verdict: cmp.Or(inspect.CertificateVerdict(s.Certs), inspect.CertificatesFine),
		Warnings: diag.List{}, Unasked: []string{}, Next: "slipway certs check prod --within 2160h",
	}
	c.Automatic = []inspect.AutoRenewal{
		{
			Host: "cp1", Active: true,
			AutoOutcome: &op.AutoOutcome{
				At: epoch.Add(-time.Hour), Result: op.AutoNothing,
				Renewed: []string{"/etc/kubernetes/admin.conf"}, RenewedAt: epoch.AddDate(0, 0, -3),
			},
		},
		{Host: "w1"},
	}
	add := func(host, what, path, by string, days int) *inspect.Certificate {
		at := epoch.AddDate(0, 0, days)
		c.Certificates = append(c.Certificates, inspect.Certificate{
			Host: host, Name: what, Path: path, Subject: what, Authority: by, Begins: epoch.AddDate(-1, 0, days),
			Expires: at, SecondsLeft: int64(days) * 24 * 3600,
		})
		return &c.Certificates[len(c.Certificates)-1]
	}
	switch c.Verdict {
	case inspect.CertificatesExpired:
		c.Summary, c.Next = "1 of 4 certificates have expired", "slipway certs renew prod"
		c.Warnings = diag.List{{
			ID: "certificate-expires", Severity: diag.Warning, Host: "cp1",
			Message: "/etc/kubernetes/admin.conf expired on 2026-11-19", Hint: "renew it: slipway certs renew prod",
		}}
		add("cp1", "admin.conf", "/etc/kubernetes/admin.conf", "kubernetes", -1).Due = true
	case inspect.CertificatesUnknown:
		c.Summary, c.Next, c.Unasked = "hosts could not be asked: w1", "slipway precheck prod", []string{"w1"}
		c.Warnings = diag.List{{ID: "host-unreachable", Severity: diag.Warning, Host: "w1", Message: "no answer on port 22", Hint: "is it up?"}}
	default:
		c.Summary = "all 3 certificates are valid, the first of them until 2026-12-20"
	}
	add("cp1", "etcd-peer", "/etc/kubernetes/pki/etcd/peer.crt", "etcd-ca", 30)
	add("w1", "kubelet-client", "/var/lib/kubelet/pki/kubelet-client-current.pem", "kubernetes", 300).Rotates = true
	add("cp1", "ca", "/etc/kubernetes/pki/ca.crt", "kubernetes", 3650).CA = true
	return c, nil
}

// Etcd describes an etcd in which one member is on a host that may be lost; the member is
// unreachable then.
func (s service) Etcd(ctx context.Context, name string, _ event.Sink) (*inspect.EtcdReport, error) {
	if _, err := s.Cluster(ctx, name); err != nil {
		return nil, err
	}
	r := &inspect.EtcdReport{
		Name: name, Verdict: inspect.Healthy, Summary: "all 2 members answer, the leader is cp1", Warnings: diag.List{},
		Etcd: inspect.EtcdInfo{Type: "stacked", ClusterID: "c0ffee", Revision: 4711, Through: "cp1"}, Next: "slipway etcd snapshot " + name,
	}
	for i, host := range []string{"cp1", "w1"} {
		m := inspect.EtcdMember{
			Name: host, ID: fmt.Sprintf("%x", 10+i), Endpoint: "https://" + host + ":2379",
			PeerURLs: []string{"https://" + host + ":2380"},
		}
		h := inspect.EtcdHost{Name: host, Address: "10.0.0.1" + fmt.Sprint(i+1), Host: "ok", FreeBytes: 30 << 30, TotalBytes: 40 << 30}
		if host == s.Lost {
			r.Verdict, r.Summary = inspect.Degraded, "1 of 2 members answer, the leader is cp1"
			r.Warnings = append(r.Warnings,
				diag.Diagnostic{ID: "etcd-member", Severity: diag.Warning, Host: host, Message: "the etcd member does not answer"})
			h.Host, h.FreeBytes, h.TotalBytes = "no answer", 0, 0
		} else {
			m.Answers, m.Healthy, m.Leader, m.Version = true, true, i == 0, "3.7.0"
			m.DBBytes, m.InUseBytes, m.QuotaBytes, m.RaftIndex, m.AppliedIndex, m.Behind = 30<<20, 12<<20, 2<<30, 5100, 5098, 2
		}
		r.Etcd.Members, r.Hosts = append(r.Etcd.Members, m), append(r.Hosts, h)
	}
	return r, nil
}

// newBackupSets returns a plain backup set, an encrypted one, and others.
func (s service) newBackupSets(name string) []backups.SnapshotInfo {
	return []backups.SnapshotInfo{
		{Cluster: name, File: "/b/" + name + "-2.tar.age", Bytes: 3 << 20, Taken: epoch, Encrypted: true},
		{
			Cluster: name, File: "/b/" + name + "-1.tar", Bytes: 3 << 20, Taken: epoch.Add(-24 * time.Hour),
			Kubernetes: "v1.37.1", Etcd: "3.7.0", Member: "cp2", Verified: true,
			Snapshot: &backup.Snapshot{Bytes: 2 << 20, Hash: 0xc0ffee, Revision: 4711, Keys: 600}, Files: []string{"/etc/kubernetes/pki/ca.key"},
		},
		{
			Cluster: name, File: "/b/" + name + "-0.tar", Bytes: 20 << 10, Taken: epoch.Add(-48 * time.Hour),
			Kubernetes: "v1.36.4", KeysOnly: true, Files: []string{"/etc/kubernetes/pki/ca.key"},
		},
		{
			Cluster: name, File: "/b/" + name + "-00.tar", Bytes: 20 << 10, Taken: epoch.Add(-72 * time.Hour), Kubernetes: "v1.36.4", Verified: true,
			Problem: &diag.Diagnostic{ID: "backup-damaged", Severity: diag.Error, Message: "the set is incomplete before snapshot.db"},
		},
	}
}

func (s service) Snapshot(ctx context.Context, name string, o backups.SnapshotOptions, _ event.Sink) (*backups.SnapshotInfo, error) {
	if _, err := s.Cluster(ctx, name); err != nil {
		return nil, err
	}
	if s.Lost != "" {
		return nil, diag.List{{ID: "etcd-unhealthy", Severity: diag.Error, Message: "no member of etcd is well"}}
	}
	if o.Copy != "" {
		i := backups.SnapshotInfo{
			Cluster: name, File: "/b/" + name + ".tar.age", Bytes: 4 << 20, Taken: epoch,
			Encrypted: true, Member: "cp1", Revision: 4711, Verified: !o.Unverified,
		}
		return &i, s.recordCall(call{Method: "Snapshot", Name: name, Args: []string{o.Copy}})
	}
	i := s.newBackupSets(name)[1]
	i.Encrypted = len(o.Recipients) > 0
	return &i, s.recordCall(call{Method: "Snapshot", Name: name, Args: append([]string{o.Out}, o.Recipients...)})
}

func (s service) Scheduled(ctx context.Context, name string, _ event.Sink) (*inspect.Scheduled, error) {
	if _, err := s.Cluster(ctx, name); err != nil {
		return nil, err
	}
	at := epoch.Add(-time.Hour)
	return &inspect.Scheduled{
		Name: name, On: true, Next: "slipway etcd snapshot " + name + " --of cp1",
		Warnings: diag.List{{
			ID: "backup-by-itself", Severity: diag.Warning, Host: "cp1",
			Message: "it could not take a snapshot: there is no room", Hint: "on the host: journalctl -u slipway-backup",
		}},
		Hosts: []inspect.ScheduledHost{{Host: "cp1", Active: true, AutoSnapshotOutcome: &op.AutoSnapshotOutcome{
			At: epoch, Failed: "there is no room", Kept: []op.KeptSnapshot{
				{
					Taken: at, Etcd: "3.7.0",
					EtcdSnapshotInfo: op.EtcdSnapshotInfo{Path: op.AutoSnapshots + "/prod-1.db", Bytes: 4 << 20, Revision: 4711, Keys: 600},
				},
			}, Copies: []op.CopyOutcome{{Target: "nas", Copied: at, Kept: 8}, {Target: "vault", Failed: "connection refused", Since: at}},
			Drill: &op.DrillOutcome{
				Good: at, Path: op.AutoSnapshots + "/prod-1.db", At: at, Seconds: 3.21,
				Revision: 4711, Keys: 600, Etcd: "3.7.0", Secret: "decrypted (secretbox, key 1-a)",
			},
		}}, {
			Host: "cp2", Active: true,
			AutoSnapshotOutcome: &op.AutoSnapshotOutcome{
				At:    epoch,
				Drill: &op.DrillOutcome{Since: at, Failed: "it ended by itself", Path: op.AutoSnapshots + "/prod-2.db", At: at, Seconds: 180},
			},
		}},
	}, nil
}

func (s service) Copies(ctx context.Context, name string, _ event.Sink) (*inspect.CopyReport, error) {
	if _, err := s.Cluster(ctx, name); err != nil {
		return nil, err
	}
	r := &inspect.CopyReport{
		Name: name, Good: s.Lost == "", Next: "slipway etcd snapshot " + name + " --copy nas",
		Targets: []inspect.CopyTarget{{
			Name: "nas", At: "/mnt/nas",
			Copies: []inspect.CopyInfo{{
				File:  name + "_0123456789ab_cp1_20261120-170000_4711.tar.age",
				Bytes: 4 << 20, Host: "cp1", Taken: epoch.Add(-time.Hour), Revision: 4711, Verified: true,
			}},
		}},
	}
	if !r.Good {
		r.Targets[0].Problem = &diag.Diagnostic{
			ID: "backup-copy-unreachable", Severity: diag.Warning,
			Message: "nas (/mnt/nas) cannot be looked at: it hangs",
		}
	}
	return r, nil
}

func (s service) Drill(ctx context.Context, name string, o backups.DrillOptions, _ event.Sink) (*backups.DrillReport, error) {
	if _, err := s.Cluster(ctx, name); err != nil {
		return nil, err
	}
	r := &backups.DrillReport{
		Cluster: name, File: "/b/" + name + "-1.tar", Taken: epoch, Member: "cp1", Revision: 4711,
		Verified: !o.Unverified, Host: "cp2", Etcd: "3.7.0", Good: s.Lost == "", Seconds: 4, Checks: []backups.DrillCheck{
			{Name: "revision", Want: "4711", Got: "4711", Good: true}, {Name: "keys", Want: "600", Got: "600", Good: s.Lost == ""},
		},
	}
	return r,
		s.recordCall(call{
			Method: "Drill", Name: name,
			Args: slices.DeleteFunc([]string{o.From, o.Identity, o.SignedBy}, func(a string) bool { return a == "" }),
		})
}

func (s service) Snapshots(_ context.Context, name string) ([]backups.SnapshotInfo, error) {
	if s.Phase == "" {
		return []backups.SnapshotInfo{}, nil
	}
	if name == "" {
		name = "prod"
	}
	return s.newBackupSets(name), nil
}

func (s service) Dump(ctx context.Context, name string, w io.Writer, _ event.Sink) (diag.List, error) {
	if _, err := s.Cluster(ctx, name); err != nil {
		return nil, err
	}
	_, err := io.WriteString(w, "bundle")
	return diag.List{{ID: "dump-incomplete", Severity: diag.Warning, Host: "w1", Message: "the support bundle lacks data of this host"}}, err
}
