//go:build linux

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// DefragOp executes op.EtcdDefrag.
type DefragOp struct{ Op op.EtcdDefrag }

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

// healthyMembers returns the states of all members, and the host's own separately; it is
// an error unless all of them are healthy.
func healthyMembers(ctx context.Context, h *host.Host, o op.EtcdDefrag) (own Status, all []Status, err error) {
	ill := func(who, why string) error {
		return &op.Error{Reason: op.IDEtcdUnhealthy, Message: fmt.Sprintf("etcd member %s is unhealthy: %s", who, why)}
	}
	if own, err = QueryStatus(ctx, h, o.EtcdClient, o.Own); err != nil {
		return own, nil, ill(o.Own, host.FailureOf(err).Message)
	}
	members, _, err := etcdMembers(ctx, h, o.EtcdClient)
	if err != nil {
		return own, nil, &op.Error{Reason: op.IDEtcdUnhealthy, Message: host.FailureOf(err).Message}
	}
	for _, m := range members {
		who := m.displayName()
		switch {
		case m.Learner:
			return own, nil, ill(who, "it is a learner and cannot vote yet")
		case len(m.ClientURLs) == 0:
			return own, nil, ill(who, "it has not started")
		}
		state, err := QueryStatus(ctx, h, o.EtcdClient, m.ClientURLs[0])
		if err != nil {
			return own, nil, ill(who, "it does not respond")
		}
		if why := state.Problem(); why != "" {
			return own, nil, ill(who, why)
		}
		all = append(all, state)
	}
	return own, all, nil
}

func isNearlyFull(all []Status) bool {
	return slices.ContainsFunc(all, func(s Status) bool { return s.alarmOf("NOSPACE") })
}

// Check returns the result of a step. The effect of a compaction is not known
// in advance: with a full database every member is defragmented.
func (x *DefragOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	own, all, err := healthyMembers(ctx, h, o)
	if err != nil {
		return host.CheckResult{}, err
	}
	is := isNearlyFull(all)
	switch {
	case o.Do == op.DefragCompact && is:
		return host.CheckResult{Change: "compact to the latest revision: the database is full"}, nil
	case o.Do == op.DefragDisarm && is:
		return host.CheckResult{Change: "clear the alarm for a full database"}, nil
	case o.Do == op.DefragCompact, o.Do == op.DefragDisarm, o.Do == op.DefragFollower && own.isLeader():
		return host.CheckResult{}, nil
	}
	if free := own.DBSize - own.InUse; free >= leastWon && free*100 >= own.DBSize*worthwhile || is && h.Planning {
		return host.CheckResult{Change: fmt.Sprintf("free up to %s of %s", bytesize.Format(max(free, 0)), bytesize.Format(own.DBSize))}, nil
	}
	return host.CheckResult{}, nil
}

func (x *DefragOp) Apply(ctx context.Context, h *host.Host, res *op.Result) error {
	o := x.Op
	own, all, err := healthyMembers(ctx, h, o)
	if err != nil {
		return err
	}
	switch o.Do {
	case op.DefragCompact:
		return compactRevisions(ctx, h, o, own)
	case op.DefragDisarm:
		return disarmAlarm(ctx, h, o, all)
	}
	// etcd writes the used data into a new file next to the old one.
	if err := h.RoomFor(h.DiskPath(DefaultDataDir), own.InUse); err != nil {
		return err
	}
	if _, err := h.Output(ctx,
		append(EtcdctlArgs(h, o.EtcdClient, o.Own), "--command-timeout="+defragTime.String(), "defrag")...); err != nil {
		return fmt.Errorf("defragmenting etcd: %w", err)
	}
	after, err := awaitHealthy(ctx, h, o)
	if err != nil {
		return err
	}
	res.Output, err = json.Marshal(op.EtcdDefragged{Before: own.DBSize, After: after.DBSize})
	return err
}

// DefaultDataDir is the data directory of members.
const DefaultDataDir = "/var/lib/etcd"

// awaitHealthy waits until all members are healthy after the one that did not serve.
func awaitHealthy(ctx context.Context, h *host.Host, o op.EtcdDefrag) (own Status, err error) {
	for deadline := time.Now().Add(h.EtcdTime); ; {
		if own, _, err = healthyMembers(ctx, h, o); err == nil || !health.TryAgain(ctx, deadline) {
			return own, err
		}
	}
}

// compactRevisions removes all revisions except the latest.
func compactRevisions(ctx context.Context, h *host.Host, o op.EtcdDefrag, own Status) error {
	_, err := h.Output(ctx,
		append(EtcdctlArgs(h, o.EtcdClient, o.Own), "--command-timeout="+defragTime.String(), "compact", "--physical",
			strconv.FormatInt(own.Header.Revision, 10))...)
	if err != nil && strings.Contains(err.Error(), "has been compacted") {
		return nil // another client has already done it
	}
	if err != nil {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	return nil
}

// disarmAlarm clears the alarms, unless they would be raised again at once.
func disarmAlarm(ctx context.Context, h *host.Host, o op.EtcdDefrag, all []Status) error {
	for _, m := range all {
		if m.Quota > 0 && m.DBSize*100 >= m.Quota*nearlyFull {
			return &op.Error{
				Reason: op.IDEtcdFull,
				Message: fmt.Sprintf("the etcd database uses %s of its quota of %s, and defragmentation cannot free more",
					bytesize.Format(m.DBSize), bytesize.Format(m.Quota)),
			}
		}
	}
	if _, err := runEtcdctl(ctx, h, o.EtcdClient, o.Own, "alarm", "disarm"); err != nil {
		return fmt.Errorf("clearing etcd alarms: %w", err)
	}
	return nil
}
