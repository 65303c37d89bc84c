//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/node/op"
)

// etcdDefragOp executes op.EtcdDefrag.
type etcdDefragOp struct{ o op.EtcdDefrag }

const (
	// defragTime limits the defragmentation of one member: etcd writes all used data
	// again.
	defragTime = 10 * time.Minute
	// worthwhile is the minimum share of a database that a defragmentation must free, in
	// percent, and leastWon the minimum in bytes.
	worthwhile = 10
	leastWon   = 1 << 20
	// nearlyFull is the share of its quota, in percent, from which a database still
	// counts as full.
	nearlyFull = 95
)

// wellMembers returns the states of all members, and the host's own separately; it is an
// error unless all of them are healthy.
func (s *session) wellMembers(ctx context.Context, o op.EtcdDefrag) (own etcdState, all []etcdState, err error) {
	ill := func(who, why string) error {
		return &op.Error{Reason: op.IDEtcdUnhealthy, Message: fmt.Sprintf("etcd member %s is unhealthy: %s", who, why)}
	}
	if own, err = s.etcdStatus(ctx, o.EtcdClient, o.Own); err != nil {
		return own, nil, ill(o.Own, failure(err).Message)
	}
	members, _, err := s.etcdMembers(ctx, o.EtcdClient)
	if err != nil {
		return own, nil, &op.Error{Reason: op.IDEtcdUnhealthy, Message: failure(err).Message}
	}
	for _, m := range members {
		who := m.called()
		switch {
		case m.Learner:
			return own, nil, ill(who, "it is a learner and cannot vote yet")
		case len(m.ClientURLs) == 0:
			return own, nil, ill(who, "it has not started")
		}
		state, err := s.etcdStatus(ctx, o.EtcdClient, m.ClientURLs[0])
		if err != nil {
			return own, nil, ill(who, "it does not respond")
		}
		if why := state.trouble(); why != "" {
			return own, nil, ill(who, why)
		}
		all = append(all, state)
	}
	return own, all, nil
}

func full(all []etcdState) bool {
	return slices.ContainsFunc(all, func(s etcdState) bool { return s.alarm("NOSPACE") })
}

// Check returns the result of a step. The effect of a compaction is not known
// in advance: with a full database every member is defragmented.
func (x *etcdDefragOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	own, all, err := s.wellMembers(ctx, o)
	if err != nil {
		return verdict{}, err
	}
	is := full(all)
	switch {
	case o.Do == op.DefragCompact && is:
		return verdict{change: "compact to the latest revision: the database is full"}, nil
	case o.Do == op.DefragDisarm && is:
		return verdict{change: "clear the alarm for a full database"}, nil
	case o.Do == op.DefragCompact, o.Do == op.DefragDisarm, o.Do == op.DefragFollower && own.leads():
		return verdict{}, nil
	}
	if free := own.DBSize - own.InUse; free >= leastWon && free*100 >= own.DBSize*worthwhile || is && s.planning {
		return verdict{change: fmt.Sprintf("free up to %s of %s", bytesize.Bytes(max(free, 0)), bytesize.Bytes(own.DBSize))}, nil
	}
	return verdict{}, nil
}

func (x *etcdDefragOp) Apply(ctx context.Context, s *session, res *op.Result) error {
	o := x.o
	own, all, err := s.wellMembers(ctx, o)
	if err != nil {
		return err
	}
	switch o.Do {
	case op.DefragCompact:
		return s.compact(ctx, o, own)
	case op.DefragDisarm:
		return s.disarm(ctx, o, all)
	}
	// etcd writes the used data into a new file next to the old one.
	if err := s.roomFor(s.path(etcdData), own.InUse); err != nil {
		return err
	}
	if _, err := s.output(ctx, append(s.etcdctlArgs(o.EtcdClient, o.Own), "--command-timeout="+defragTime.String(), "defrag")...); err != nil {
		return fmt.Errorf("defragmenting etcd: %w", err)
	}
	after, err := s.wellAgain(ctx, o)
	if err != nil {
		return err
	}
	res.Output, err = json.Marshal(op.EtcdDefragged{Before: own.DBSize, After: after.DBSize})
	return err
}

// etcdData is the data directory of members.
const etcdData = "/var/lib/etcd"

// wellAgain waits until all members are healthy after the one that did not serve.
func (s *session) wellAgain(ctx context.Context, o op.EtcdDefrag) (own etcdState, err error) {
	for deadline := time.Now().Add(s.etcdTime); ; {
		if own, _, err = s.wellMembers(ctx, o); err == nil || !again(ctx, deadline) {
			return own, err
		}
	}
}

// compact removes all revisions except the latest.
func (s *session) compact(ctx context.Context, o op.EtcdDefrag, own etcdState) error {
	_, err := s.output(ctx,
		append(s.etcdctlArgs(o.EtcdClient, o.Own), "--command-timeout="+defragTime.String(), "compact", "--physical",
			strconv.FormatInt(own.Header.Revision, 10))...)
	if err != nil && strings.Contains(err.Error(), "has been compacted") {
		return nil // another client has already done it
	}
	if err != nil {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	return nil
}

// disarm clears the alarms, unless they would be raised again at once.
func (s *session) disarm(ctx context.Context, o op.EtcdDefrag, all []etcdState) error {
	for _, m := range all {
		if m.Quota > 0 && m.DBSize*100 >= m.Quota*nearlyFull {
			return &op.Error{Reason: op.IDEtcdFull,
				Message: fmt.Sprintf("the etcd database uses %s of its quota of %s, and defragmentation cannot free more",
					bytesize.Bytes(m.DBSize), bytesize.Bytes(m.Quota))}
		}
	}
	if _, err := s.etcdctl(ctx, o.EtcdClient, o.Own, "alarm", "disarm"); err != nil {
		return fmt.Errorf("clearing etcd alarms: %w", err)
	}
	return nil
}
