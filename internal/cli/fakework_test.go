package cli

import (
	"context"
	"fmt"
	"io"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// Targets chooses among the hosts that Cluster answers.
func (s service) Targets(ctx context.Context, selector, cluster string) ([]lifecycle.Target, error) {
	var out []lifecycle.Target
	for _, choice := range spec.Choices(selector) {
		if choice.Cluster != "" {
			cluster = choice.Cluster
		}
		c, err := s.Cluster(ctx, cluster)
		if err != nil {
			return nil, err
		}
		hosts, err := spec.Select(c, choice.Selector)
		if err != nil {
			return nil, err
		}
		for _, h := range hosts {
			out = append(out, lifecycle.Target{Cluster: cluster, Host: h})
		}
	}
	return out, nil
}

// worked is how each host ends: w1 is cut off when the scenario says so.
func (s service) worked(w lifecycle.Work, do func(lifecycle.Target) lifecycle.HostResult) []lifecycle.HostResult {
	var out []lifecycle.HostResult
	for _, t := range w.Targets {
		r := lifecycle.HostResult{ExitCode: -1, Error: &diag.Diagnostic{ID: string(remote.Unreachable), Severity: diag.Error, Message: "no answer on port 22", Hint: "is it up?"}}
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
		return lifecycle.HostResult{Copied: &transfer.Summary{To: "/there", Files: 2, Bytes: 5}}
	}), nil
}

func (s service) Login(_ context.Context, t lifecycle.Target, sh remote.Shell) (int, error) {
	return s.Exit, s.record(call{Method: "Login", Name: t.Cluster + "@" + t.Host.Name, Args: sh.Argv})
}
