//go:build linux

package executor

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// etcdRemoveOp executes op.EtcdRemove.
type etcdRemoveOp struct{ o op.EtcdRemove }

// A voice is a member and whether it responds.
type voice struct {
	etcdMember
	answers bool
	goes    bool
}

// removals returns the members to remove, in a possible order, and the endpoints for it;
// none if no member must be removed. It is an error if etcd would have too few members
// that respond, at any time.
func (s *session) removals(ctx context.Context, o op.EtcdRemove) (gone []voice, from string, err error) {
	o.Peers = slices.DeleteFunc(slices.Clone(o.Peers), func(p op.EtcdPeer) bool { return p.Stays })
	members, from, err := s.etcdMembers(ctx, o.EtcdClient)
	if err != nil || !slices.ContainsFunc(members, func(m etcdMember) bool { return peerOf(o.Peers, m) != nil || orphan(o, m) }) {
		return nil, "", err
	}
	var all []voice
	for _, m := range members {
		v := voice{etcdMember: m}
		if len(m.ClientURLs) > 0 {
			_, err := s.etcdctl(ctx, o.EtcdClient, m.ClientURLs[0], "endpoint", "status")
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
		if v.goes = p != nil && !p.Dead || !v.answers && (p != nil || orphan(o, m)); v.goes {
			gone = append(gone, v)
		}
		all = append(all, v)
	}
	sort.SliceStable(gone, func(i, j int) bool { return !gone[i].answers && gone[j].answers })
	return gone, from, safely(all, gone)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// peerOf returns the peer of a member, nil if it has none. The URL of a member identifies
// it only as long as it has no name: another machine can have the address of a dead one.
func peerOf(peers []op.EtcdPeer, m etcdMember) *op.EtcdPeer {
	for i, p := range peers {
		if m.Name != "" && m.Name == p.Name || m.Name == "" && slices.Contains(m.PeerURLs, p.PeerURL) {
			return &peers[i]
		}
	}
	return nil
}

// orphan reports whether a member is a learner that belongs to no known host.
func orphan(o op.EtcdRemove, m etcdMember) bool {
	return len(o.Known) > 0 && m.Learner && peerOf(o.Known, m) == nil
}

// safely rejects removals, in their order, if one of them would leave etcd without a
// majority that responds, or would run without a majority.
func safely(all, gone []voice) error {
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
			dead = append(dead, v.called())
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
			text := fmt.Sprintf("without %s etcd has %d members, of which %d respond, but it needs %d", v.called(), voters, up, voters/2+1)
			if len(dead) > 0 {
				text += "; first remove the members that do not respond (" + strings.Join(dead, ", ") + ")"
			}
			return &op.Error{Reason: op.IDEtcdQuorum, Message: text}
		}
	}
	return nil
}

func (x *etcdRemoveOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	gone, _, err := s.removals(ctx, o)
	if err != nil || len(gone) == 0 {
		return verdict{}, err
	}
	names := make([]string, len(gone))
	for i, v := range gone {
		names[i] = v.called()
	}
	return verdict{change: "remove " + strings.Join(names, ", then ")}, nil
}

// Apply removes one member after the other. For some seconds after losing
// contact with a member etcd considers the cluster unhealthy, and removes none.
func (x *etcdRemoveOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	deadline := time.Now().Add(s.etcdTime)
	for {
		gone, from, err := s.removals(ctx, o)
		if err != nil || len(gone) == 0 {
			return err
		}
		id := strconv.FormatUint(gone[0].ID, 16)
		if _, err := s.etcdctl(ctx, o.EtcdClient, from, "member", "remove", id); err != nil {
			if again(ctx, deadline) {
				continue
			}
			return fmt.Errorf("removing member %s of etcd: %w", gone[0].called(), err)
		}
		if err := s.absent(ctx, o, gone[0]); err != nil {
			return err
		}
	}
}

// absent waits until no member list has a member: the queried member may be behind, and
// right after a change there may be no leader.
func (s *session) absent(ctx context.Context, o op.EtcdRemove, gone voice) error {
	deadline := time.Now().Add(s.etcdTime)
	for {
		all, _, err := s.etcdMembers(ctx, o.EtcdClient)
		if err == nil && !slices.ContainsFunc(all, func(m etcdMember) bool { return m.ID == gone.ID }) {
			return nil
		}
		if err == nil {
			err = &op.Error{Reason: "EtcdStays", Message: "etcd still lists the removed member " + gone.called()}
		}
		if !again(ctx, deadline) {
			return err
		}
	}
}
