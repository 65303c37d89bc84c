package lifecycle

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module/containerruntime"
	"slipway.dev/slipway/internal/module/endpoint"
	"slipway.dev/slipway/internal/module/etcd"
	"slipway.dev/slipway/internal/module/kubeadm"
	"slipway.dev/slipway/internal/module/noderemoval"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// observe connects to all hosts of a description and reads their facts, including which
// marks of the operation they have. A host that cannot be queried is in the result with its
// error.
func (s *Service) observe(ctx context.Context, c *v1alpha1.Cluster, p *prepared, progress event.Sink) ([]*engine.Host, []facts.Host) {
	conns := make([]remote.Host, len(c.Spec.Hosts))
	found := make([]facts.Host, len(c.Spec.Hosts))
	p.connections.SetSink(progress)
	opts := remote.Options{
		Blobs: p.content, KnownHosts: s.Files.KnownHosts(), Home: s.Home, Reconnect: p.reconnect, Notify: p.connections.Send, Log: s.Log,
	}
	wanted := facts.WantedFacts(c)
	wanted.Paths = slices.Concat(wanted.Paths, kubeadm.MarkPaths(), etcd.MarkPaths(), endpoint.MarkPaths(),
		noderemoval.MarkPaths(), containerruntime.MarkPaths(), p.marks)
	var g errgroup.Group
	g.SetLimit(hostconn.MaxParallel)
	for i, h := range c.Spec.Hosts {
		g.Go(func() error {
			h.SSH = spec.MergeSSH(c.Spec.SSH, h.SSH)
			found[i] = facts.Host{Spec: c.Spec.Hosts[i]}
			note(progress, h.Name, s.connecting(h, opts))
			conns[i], found[i].Err = s.Connect(ctx, h, opts)
			if found[i].Err == nil {
				wanted := wanted
				wanted.Reach = facts.RequiredPeers(c, h.Roles)
				found[i] = facts.ReadHost(ctx, c.Spec.Hosts[i], conns[i], wanted)
			}
			if found[i].Err == nil {
				note(progress, h.Name, "connected")
			}
			return nil
		})
	}
	_ = g.Wait() // errors are per host, in found
	hosts := make([]*engine.Host, len(conns))
	for i := range conns {
		hosts[i] = &engine.Host{Host: c.Spec.Hosts[i], Facts: found[i].Facts, Conn: conns[i]}
	}
	return hosts, found
}

// complete fills in the internal addresses that only the hosts know, where the file has
// a name or localhost.
func complete(c *v1alpha1.Cluster, hosts []*engine.Host, found []facts.Host) {
	for i := range hosts {
		h := &found[i].Spec
		if h.InternalAddress == "" && found[i].Facts != nil {
			h.InternalAddress = facts.DefaultAddress(found[i].Facts)
		}
		hosts[i].Host = *h
		if at := spec.FindHost(c.Spec.Hosts, h.Name); at >= 0 {
			c.Spec.Hosts[at] = *h
		}
	}
}

// addresses returns the internal addresses of hosts by name.
func addresses(hosts []*engine.Host) map[string]string {
	out := map[string]string{}
	for _, h := range hosts {
		if h.Conn != nil {
			out[h.Name] = spec.InternalAddress(h.Host)
		}
	}
	return out
}

// closeAll closes connections in parallel: each waits for its helper to end.
func closeAll(hosts []*engine.Host) error {
	errs := make([]error, len(hosts))
	var g errgroup.Group
	g.SetLimit(hostconn.MaxParallel)
	for i, h := range hosts {
		if h.Conn != nil {
			g.Go(func() error {
				errs[i] = h.Conn.Close()
				return nil
			})
		}
	}
	_ = g.Wait() // errors are in errs
	return errors.Join(errs...)
}
