package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module/kubeadm"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// dialAtOnce bounds how many hosts are dialled at the same time; the rest of
// the work is bounded by what tasks say.
const dialAtOnce = 100

// observe connects to all hosts and asks what they are. A host that cannot be
// asked is in the answer with its error.
func (s *service) observe(ctx context.Context, c *v1alpha1.Cluster, blobs remote.Blobs, progress event.Sink) ([]*engine.Host, []facts.Host) {
	conns := make([]remote.Host, len(c.Spec.Hosts))
	found := make([]facts.Host, len(c.Spec.Hosts))
	opts := remote.Options{Blobs: blobs, KnownHosts: filepath.Join(s.Store.Home(), "known_hosts"), Home: s.Home, Log: s.Log}
	wanted := facts.Wanted(c)
	wanted.Paths = append(wanted.Paths, kubeadm.MarkPaths()...)
	var g errgroup.Group
	g.SetLimit(dialAtOnce)
	for i, h := range c.Spec.Hosts {
		g.Go(func() error {
			h.SSH = spec.MergeSSH(c.Spec.SSH, h.SSH)
			found[i] = facts.Host{Spec: c.Spec.Hosts[i]}
			note(progress, h.Name, "connecting")
			conns[i], found[i].Err = s.Connect(ctx, h, opts)
			if found[i].Err == nil {
				found[i].Facts, found[i].Skew, found[i].Err = s.ask(ctx, conns[i], wanted)
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

// ask has a host describe itself, and compares clocks.
func (s *service) ask(ctx context.Context, conn remote.Host, wanted op.Facts) (*op.HostFacts, time.Duration, error) {
	before := s.Now()
	results, err := conn.Check(ctx, op.List{wanted})
	if err != nil {
		return nil, 0, err
	}
	if len(results) != 1 {
		return nil, 0, fmt.Errorf("the node helper answered %d results for one question", len(results))
	}
	if results[0].Status == op.Failed {
		return nil, 0, results[0].Error
	}
	middle := before.Add(s.Now().Sub(before) / 2)
	f := &op.HostFacts{}
	if err := json.Unmarshal(results[0].Output, f); err != nil {
		return nil, 0, fmt.Errorf("reading the host's facts: %w", err)
	}
	return f, time.Unix(f.TimeUnix, 0).Sub(middle), nil
}

// complete fills in what only the hosts know: the addresses by which they
// reach each other, where the file gives a name or localhost.
func complete(c *v1alpha1.Cluster, hosts []*engine.Host) diag.List {
	var problems diag.List
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		if h.InternalAddress == "" && hosts[i].Facts != nil {
			if h.InternalAddress = ownAddress(hosts[i].Facts); h.InternalAddress == "" {
				problems = append(problems, diag.Diagnostic{
					ID: "host-without-address", Severity: diag.Error, Host: h.Name,
					Message: "the host has no address that others could reach",
					Hint:    "set internalAddress in the file",
				})
			}
		}
		hosts[i].Host = *h
	}
	return problems
}

// ownAddress is a host's first address that is neither loopback nor of its
// link alone nor of a bridge for containers.
func ownAddress(f *op.HostFacts) string {
	for _, a := range f.Addresses {
		p, err := netip.ParsePrefix(a.Prefix)
		if err != nil || !p.Addr().IsGlobalUnicast() || !p.Addr().Is4() || virtual(a.Link) {
			continue
		}
		return p.Addr().String()
	}
	return ""
}

func virtual(link string) bool {
	for _, prefix := range []string{"docker", "br-", "cni", "flannel", "veth", "virbr", "kube-"} {
		if strings.HasPrefix(link, prefix) {
			return true
		}
	}
	return false
}

// closeAll closes connections.
func closeAll(hosts []*engine.Host) error {
	var errs []error
	for _, h := range hosts {
		if h.Conn != nil {
			errs = append(errs, h.Conn.Close())
		}
	}
	return errors.Join(errs...)
}
