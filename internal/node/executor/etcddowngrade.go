//go:build linux

package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// etcdDowngradeOp executes op.EtcdDowngrade.
type etcdDowngradeOp struct{ o op.EtcdDowngrade }

// downgradeTimes is how much longer members can take to downgrade their storage format:
// each checks every few seconds whether it can.
const downgradeTimes = 6

// A downgrade is the progress of etcd members towards an older minor version.
type downgrade struct {
	heard   []etcdState
	heardAt string // if one of them was queried
	unheard []string
	behind  []string // members with the storage format of a newer minor version
	to      string   // minor: "3.6"
}

// minorOfEtcd returns "3.6" for "3.6.8".
func minorOfEtcd(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// older reports whether a member has the older minor version: the cluster version is then
// not newer.
func (d downgrade) older() bool {
	return slices.ContainsFunc(d.heard, func(s etcdState) bool { return minorOfEtcd(s.Version) == d.to })
}

// begun reports whether a downgrade of etcd was started, and ready whether all members
// have the storage format of the older minor version.
func (d downgrade) begun() bool {
	return slices.ContainsFunc(d.heard, func(s etcdState) bool { return s.Downgrade.Enabled && minorOfEtcd(s.Downgrade.Target) == d.to })
}

func (d downgrade) ready() bool {
	return d.begun() && len(d.behind) == 0
}

// waits returns which members delay a started downgrade.
func (d downgrade) waits() error {
	if len(d.unheard) > 0 {
		return fmt.Errorf("an etcd downgrade needs answers from all members, but these do not answer: %s", strings.Join(d.unheard, ", "))
	}
	return fmt.Errorf("not all members use the storage format of etcd %s yet: waiting for %s", d.to, strings.Join(d.behind, ", "))
}

// downgrading queries the progress of all members.
func (s *session) downgrading(ctx context.Context, o op.EtcdDowngrade) (downgrade, error) {
	d := downgrade{to: minorOfEtcd(o.To)}
	members, _, err := s.etcdMembers(ctx, o.EtcdClient)
	if err != nil {
		return d, err
	}
	for _, m := range members {
		if len(m.ClientURLs) == 0 {
			d.unheard = append(d.unheard, m.called())
			continue
		}
		state, err := s.etcdStatus(ctx, o.EtcdClient, m.ClientURLs[0])
		if err != nil {
			d.unheard = append(d.unheard, m.called())
			continue
		}
		if minorOfEtcd(state.Storage) != d.to {
			d.behind = append(d.behind, m.called())
		}
		d.heard, d.heardAt = append(d.heard, state), m.ClientURLs[0]
	}
	return d, nil
}

func (x *etcdDowngradeOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	d, err := s.downgrading(ctx, o)
	if err != nil || d.older() || len(d.unheard) == 0 && d.ready() {
		return verdict{}, err
	}
	return verdict{change: "downgrade the storage format of all members to etcd " + d.to}, nil
}

// Apply starts a downgrade of etcd, and waits until it is possible. After
// all members reach the newer minor version, the cluster version can follow a moment
// later, and can then be downgraded; an unreachable member can be the reason why it never
// did.
func (x *etcdDowngradeOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	var last error
	for deadline := time.Now().Add(downgradeTimes * s.etcdTime); ; {
		d, err := s.downgrading(ctx, o)
		switch {
		case err != nil:
			last = err
		case d.older(), d.ready():
			return nil
		case d.begun():
			last = d.waits()
		default:
			_, last = s.etcdctl(ctx, o.EtcdClient, d.heardAt, "downgrade", "enable", d.to)
			if last == nil {
				continue
			}
			if len(d.unheard) > 0 && strings.Contains(last.Error(), "invalid downgrade target") {
				return nil // it has the older minor version
			}
		}
		if !again(ctx, deadline) {
			return fmt.Errorf("downgrading etcd to %s: %w", d.to, last)
		}
	}
}
