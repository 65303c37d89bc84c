//go:build linux

package etcd

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// RemoveOp executes op.EtcdRemove.
type RemoveOp struct{ Op op.EtcdRemove }

// A memberView is a member and whether it responds.
type memberView struct {
	Member
	answers bool
	goes    bool
}

// planRemovals returns the members to remove, in a possible order, and the endpoints for
// it; none if no member must be removed. It is an error if etcd would have too few
// members that respond, at any time.
func planRemovals(ctx context.Context, h *host.Host, o op.EtcdRemove) (gone []memberView, from string, err error) {
	o.Peers = slices.DeleteFunc(slices.Clone(o.Peers), func(p op.EtcdPeer) bool { return p.Stays })
	members, from, err := etcdMembers(ctx, h, o.EtcdClient)
	if err != nil || !slices.ContainsFunc(members, func(m Member) bool { return peerOf(o.Peers, m) != nil || isOrphan(o, m) }) {
		return nil, "", err
	}
	var all []memberView
	for _, m := range members {
		v := memberView{Member: m}
		if len(m.ClientURLs) > 0 {
			_, err := runEtcdctl(ctx, h, o.EtcdClient, m.ClientURLs[0], "endpoint", "status")
			v.answers = err == nil
		}
		p := peerOf(o.Peers, m)
		if v.answers && p != nil && p.Dead && !slices.Contains(m.PeerURLs, p.PeerURL) {
			return nil, "", &op.Error{
				Reason: op.IDEtcdNameTaken,
				Message: fmt.Sprintf("%s must be the etcd member at %s, but a member with this name runs at %s",
					p.Name, p.PeerURL, strings.Join(m.PeerURLs, ",")),
			}
		}
		if v.goes = p != nil && !p.Dead || !v.answers && (p != nil || isOrphan(o, m)); v.goes {
			gone = append(gone, v)
		}
		all = append(all, v)
	}
	sort.SliceStable(gone, func(i, j int) bool { return !gone[i].answers && gone[j].answers })
	return gone, from, canRemove(all, gone)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// peerOf returns the peer of a member, nil if it has none. The URL of a member identifies
// it only as long as it has no name: another machine can have the address of a dead one.
func peerOf(peers []op.EtcdPeer, m Member) *op.EtcdPeer {
	for i, p := range peers {
		if m.Name != "" && m.Name == p.Name || m.Name == "" && slices.Contains(m.PeerURLs, p.PeerURL) {
			return &peers[i]
		}
	}
	return nil
}

// isOrphan reports whether a member is a learner that belongs to no known host.
func isOrphan(o op.EtcdRemove, m Member) bool {
	return len(o.Known) > 0 && m.Learner && peerOf(o.Known, m) == nil
}

// canRemove rejects removals, in their order, if one of them would leave etcd without a
// majority that responds, or would run without a majority.
func canRemove(all, gone []memberView) error {
	voters, up := 0, 0
	var dead []string
	for _, v := range all {
		if v.Learner {
			continue
		}
		voters++
		switch {
		case v.answers:
			up++
		case !v.goes:
			dead = append(dead, v.displayName())
		}
	}
	for _, v := range gone {
		if up < voters/2+1 {
			return &op.Error{
				Reason:  op.IDEtcdQuorum,
				Message: fmt.Sprintf("etcd has %d members, of which %d respond; a change needs %d", voters, up, voters/2+1),
			}
		}
		if v.Learner {
			continue
		}
		voters--
		up -= boolInt(v.answers)
		if up < voters/2+1 {
			text := fmt.Sprintf("without %s etcd has %d members, of which %d respond, but it needs %d", v.displayName(), voters, up, voters/2+1)
			if len(dead) > 0 {
				text += "; first remove the members that do not respond (" + strings.Join(dead, ", ") + ")"
			}
			return &op.Error{Reason: op.IDEtcdQuorum, Message: text}
		}
	}
	return nil
}

func (x *RemoveOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	gone, _, err := planRemovals(ctx, h, o)
	if err != nil || len(gone) == 0 {
		return host.CheckResult{}, err
	}
	names := make([]string, len(gone))
	for i, v := range gone {
		names[i] = v.displayName()
	}
	return host.CheckResult{Change: "remove " + strings.Join(names, ", then ")}, nil
}

// Apply removes one member after the other. For some seconds after losing
// contact with a member etcd considers the cluster unhealthy, and removes none.
func (x *RemoveOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	deadline := time.Now().Add(h.EtcdTime)
	for {
		gone, from, err := planRemovals(ctx, h, o)
		if err != nil || len(gone) == 0 {
			return err
		}
		id := strconv.FormatUint(gone[0].ID, 16)
		if _, err := runEtcdctl(ctx, h, o.EtcdClient, from, "member", "remove", id); err != nil {
			if health.TryAgain(ctx, deadline) {
				continue
			}
			return fmt.Errorf("removing member %s of etcd: %w", gone[0].displayName(), err)
		}
		if err := awaitRemoved(ctx, h, o, gone[0]); err != nil {
			return err
		}
	}
}

// awaitRemoved waits until no member list has a member: the queried member may be behind,
// and the cluster may lack a leader right after a change.
func awaitRemoved(ctx context.Context, h *host.Host, o op.EtcdRemove, gone memberView) error {
	deadline := time.Now().Add(h.EtcdTime)
	for {
		all, _, err := etcdMembers(ctx, h, o.EtcdClient)
		if err == nil && !slices.ContainsFunc(all, func(m Member) bool { return m.ID == gone.ID }) {
			return nil
		}
		if err == nil {
			err = &op.Error{Reason: "EtcdStays", Message: "etcd still lists the removed member " + gone.displayName()}
		}
		if !health.TryAgain(ctx, deadline) {
			return err
		}
	}
}
