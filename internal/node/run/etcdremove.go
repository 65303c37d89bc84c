//go:build linux

package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// A voice is a member with what can be heard of it.
type voice struct {
	etcdMember
	answers bool
	goes    bool
}

// called is a member's name, or where it is as long as it has none.
func (v voice) called() string { return cmp.Or(v.Name, strings.Join(v.PeerURLs, ",")) }

// ask speaks to etcd by the credentials of an operation.
func (s *session) askEtcd(ctx context.Context, o op.EtcdRemove, endpoint string, args ...string) (string, error) {
	return s.etcdctl(ctx, op.EtcdMember{Client: o.Client, CA: o.CA, Cert: o.Cert, Key: o.Key}, endpoint, args...)
}

// voices are all members, from the first endpoint that tells.
func (s *session) voices(ctx context.Context, o op.EtcdRemove) (all []voice, from string, err error) {
	err = errors.New("there is no other member to ask")
	for _, endpoint := range o.Endpoints {
		var out string
		if out, err = s.askEtcd(ctx, o, endpoint, "member", "list", "-w", "json"); err != nil {
			continue
		}
		var list struct {
			Members []etcdMember `json:"members"`
		}
		if err = json.Unmarshal([]byte(out), &list); err != nil {
			continue
		}
		for _, m := range list.Members {
			all = append(all, voice{etcdMember: m})
		}
		return all, endpoint, nil
	}
	return nil, "", fmt.Errorf("asking etcd for its members: %w", err)
}

// removals are the members that go, in the order in which they can, and where
// to ask for it; none if none of the peers is a member. It is refused if etcd
// would not have enough that answer, at any time.
func (s *session) removals(ctx context.Context, o op.EtcdRemove) (gone []voice, from string, err error) {
	all, from, err := s.voices(ctx, o)
	if err != nil || !slices.ContainsFunc(all, func(v voice) bool { return peerOf(o, v) != nil }) {
		return nil, "", err
	}
	for i := range all {
		v := &all[i]
		if len(v.ClientURLs) > 0 {
			_, err := s.askEtcd(ctx, o, v.ClientURLs[0], "endpoint", "status")
			v.answers = err == nil
		}
		p := peerOf(o, *v)
		if v.goes = p != nil && (!p.Dead || !v.answers && !v.Learner && v.Name != ""); v.goes {
			gone = append(gone, *v)
		}
	}
	slices.SortStableFunc(gone, func(a, b voice) int { return boolInt(a.answers) - boolInt(b.answers) })
	return gone, from, safely(all, gone)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// peerOf is the peer that a member is, nil for none. Where a member is tells
// only as long as it has no name: another machine may have a dead one's address.
func peerOf(o op.EtcdRemove, m voice) *op.EtcdPeer {
	for i, p := range o.Peers {
		if m.Name != "" && m.Name == p.Name || m.Name == "" && slices.Contains(m.PeerURLs, p.PeerURL) {
			return &o.Peers[i]
		}
	}
	return nil
}

// safely refuses removals, in their order, of which one would leave etcd
// without a majority that answers, or is asked for without one.
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
				Message: fmt.Sprintf("of etcd's %d members %d answer; it takes %d to change anything", voters, up, voters/2+1),
			}
		}
		if v.Learner {
			continue
		}
		voters--
		up -= boolInt(v.answers)
		if up < voters/2+1 {
			text := fmt.Sprintf("without %s etcd has %d members, of which %d answer: it needs %d", v.called(), voters, up, voters/2+1)
			if len(dead) > 0 {
				text += "; take those off first that do not answer (" + strings.Join(dead, ", ") + ")"
			}
			return &op.Error{Reason: op.IDEtcdQuorum, Message: text}
		}
	}
	return nil
}

func (s *session) checkEtcdRemove(ctx context.Context, o op.EtcdRemove) (verdict, error) {
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

func (s *session) applyEtcdRemove(ctx context.Context, o op.EtcdRemove) error {
	for {
		gone, from, err := s.removals(ctx, o)
		if err != nil || len(gone) == 0 {
			return err
		}
		id := strconv.FormatUint(gone[0].ID, 16)
		if _, err := s.askEtcd(ctx, o, from, "member", "remove", id); err != nil {
			return fmt.Errorf("removing member %s of etcd: %w", gone[0].called(), err)
		}
		if err := s.absent(ctx, o, gone[0]); err != nil {
			return err
		}
	}
}

// absent waits until no list has a member any more: whoever tells may be
// behind, and right after a change there may be no leader to ask.
func (s *session) absent(ctx context.Context, o op.EtcdRemove, gone voice) error {
	deadline := time.Now().Add(s.etcdTime)
	for {
		all, _, err := s.voices(ctx, o)
		if err == nil && !slices.ContainsFunc(all, func(v voice) bool { return v.ID == gone.ID }) {
			return nil
		}
		if err == nil {
			err = &op.Error{Reason: "EtcdStays", Message: "etcd still lists " + gone.called() + " after its removal"}
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(etcdEvery):
		}
	}
}
