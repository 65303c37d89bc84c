package cli

import (
	"context"
	"fmt"
	"io"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// Targets chooses among the hosts that Cluster answers.
func (s service) Targets(ctx context.Context, selector, cluster string) ([]lifecycle.Target, diag.List, error) {
	var out []lifecycle.Target
	for _, choice := range spec.Choices(selector) {
		if choice.Cluster != "" {
			cluster = choice.Cluster
		}
		c, err := s.Cluster(ctx, cluster)
		if err != nil {
			return nil, nil, err
		}
		hosts, err := spec.Select(c, choice.Selector)
		if err != nil {
			return nil, nil, err
		}
		for _, h := range hosts {
			out = append(out, lifecycle.Target{Cluster: cluster, Host: h})
		}
	}
	if s.Lacks {
		return out, diag.List{{ID: "unknown-host", Severity: diag.Warning, Message: `cluster lab: no host has the role "worker"`}}, nil
	}
	return out, nil, nil
}

// worked is how each host ends: w1 is cut off when the scenario says so.
func (s service) worked(w lifecycle.Work, do func(lifecycle.Target) lifecycle.HostResult) []lifecycle.HostResult {
	var out []lifecycle.HostResult
	for _, t := range w.Targets {
		r := lifecycle.HostResult{ExitCode: -1, Error: &diag.Diagnostic{ID: string(remote.Unreachable), Severity: diag.Error, Message: "no answer\x1b[2J on\nport 22", Hint: "is it up?"}}
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

func (s service) Exec(_ context.Context, w lifecycle.Work, p lifecycle.Program) ([]lifecycle.HostResult, error) {
	c := call{Method: "Exec", Args: p.Argv}
	if w.Root {
		c.Kind = "root"
	}
	if err := s.record(c); err != nil {
		return nil, err
	}
	return s.worked(w, func(t lifecycle.Target) lifecycle.HostResult {
		out, errw := p.Output(t)
		fmt.Fprintf(out, "one\r\ntwo")
		fmt.Fprintln(errw, "oops")
		if p.In != nil {
			_, _ = io.Copy(out, p.In)
		}
		return lifecycle.HostResult{ExitCode: s.Exit}
	}), nil
}

func (s service) Copy(_ context.Context, w lifecycle.Work, c lifecycle.Copy) ([]lifecycle.HostResult, error) {
	kind := "send"
	if c.Fetch {
		kind = "fetch"
	}
	if err := s.record(call{Method: "Copy", Kind: kind, Args: []string{c.Here, c.There}}); err != nil {
		return nil, err
	}
	return s.worked(w, func(t lifecycle.Target) lifecycle.HostResult {
		c.Progress(t, transfer.Progress{Done: 5, Total: 5})
		sum := &transfer.Summary{To: "/there", Files: 2, Bytes: 5}
		if c.There == "partly" {
			sum.Skipped, sum.SkippedFiles = 3, []transfer.Skipped{{Path: "sub/\x1b[2Jx", Reason: "permission denied"}}
		}
		return lifecycle.HostResult{Copied: sum}
	}), nil
}

func (s service) Login(_ context.Context, t lifecycle.Target, sh remote.Shell) (int, error) {
	return s.Exit, s.record(call{Method: "Login", Name: t.Cluster + "@" + t.Host.Name, Args: sh.Argv})
}

// Info is of a cluster whose API answers, unless a host is lost.
func (s service) Info(ctx context.Context, name string, _ event.Sink) (*lifecycle.Info, error) {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	in := &lifecycle.Info{
		Name: name, Verdict: lifecycle.Healthy, Summary: "all is well", Warnings: diag.List{}, Phase: c.Status.Phase, Kubernetes: "v1.37.1",
		Endpoint: lifecycle.EndpointInfo{Address: "api.prod.internal:6443", Mode: "none", Answers: true, Through: "cp1"},
		Etcd:     lifecycle.EtcdInfo{Type: "stacked", Members: []lifecycle.EtcdMember{{Name: "cp1", ID: "a", Leader: true, Healthy: true, DBBytes: 3 << 20, Version: "3.7.0", Endpoint: "https://10.0.0.11:2379"}}},
		Certificates: []lifecycle.Certificate{
			{Host: "cp1", Path: "/etc/kubernetes/admin.conf", Expires: epoch.AddDate(0, 0, -1)},
			{Host: "cp1", Path: "/etc/kubernetes/pki/apiserver.crt", Expires: epoch.AddDate(1, 0, 0)},
		},
		AddOns:     []lifecycle.AddOn{{Name: "coredns", Version: "v1.14.2", Ready: 2, Wanted: 2}, {Name: "kube-proxy", Version: "v1.37.1", Ready: -1, Wanted: -1}},
		Operations: []lifecycle.OperationInfo{{ID: operationID, Type: "create", Phase: "Succeeded", Created: epoch}},
		Next:       "slipway kubectl " + name + " -- get pods -A",
	}
	res := lifecycle.Resources{CPU: "2", Memory: "4Gi", Pods: "110", Disk: "40Gi"}
	for _, h := range c.Spec.Hosts {
		n := lifecycle.NodeInfo{
			Name: h.Name, Roles: h.Roles, Address: h.Address, Version: "v1.37.1", Ready: "Ready", Host: "ok", Endpoint: "ok", Kubelet: "active",
			Capacity: res, Allocatable: lifecycle.Resources{CPU: "1900m", Memory: "3Gi", Pods: "110"}, ResourcesFrom: "api", OS: "Debian 12",
		}
		if h.Name == s.Lost {
			in.Verdict = lifecycle.Degraded
			in.Warnings = append(in.Warnings, diag.Diagnostic{ID: "host-unreachable", Severity: diag.Warning, Host: h.Name, Message: "no answer on port 22", Hint: "is it up?"})
			n.Host, n.Endpoint, n.Ready, n.ResourcesFrom = "no answer", "", "Unknown", ""
		}
		in.Nodes = append(in.Nodes, n)
	}
	return in, nil
}

func (s service) Dump(ctx context.Context, name string, w io.Writer, _ event.Sink) error {
	if _, err := s.Cluster(ctx, name); err != nil {
		return err
	}
	_, err := io.WriteString(w, "bundle")
	return err
}
