//go:build linux

package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// DowngradeOp executes op.EtcdDowngrade.
type DowngradeOp struct{ Op op.EtcdDowngrade }

// downgradeTimes is how much longer members can take to downgrade their storage format:
// each checks every few seconds whether it can.
const downgradeTimes = 6

// A downgrade is the progress of etcd members towards an older minor version.
type downgrade struct {
	heard   []Status
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

// isOlder reports whether a member has the older minor version: the cluster version is
// then not newer.
func (d downgrade) isOlder() bool {
	return slices.ContainsFunc(d.heard, func(s Status) bool { return minorOfEtcd(s.Version) == d.to })
}

// hasBegun reports whether a downgrade of etcd was started.
func (d downgrade) hasBegun() bool {
	return slices.ContainsFunc(d.heard, func(s Status) bool { return s.Downgrade.Enabled && minorOfEtcd(s.Downgrade.Target) == d.to })
}

// isReady reports whether all members have the storage format of the older minor version.
func (d downgrade) isReady() bool {
	return d.hasBegun() && len(d.behind) == 0
}

// waitsFor returns which members delay a started downgrade.
func (d downgrade) waitsFor() error {
	if len(d.unheard) > 0 {
		return fmt.Errorf("an etcd downgrade needs answers from all members, but these do not answer: %s", strings.Join(d.unheard, ", "))
	}
	return fmt.Errorf("not all members use the storage format of etcd %s yet: waiting for %s", d.to, strings.Join(d.behind, ", "))
}

// readDowngrade queries the progress of all members.
func readDowngrade(ctx context.Context, h *host.Host, o op.EtcdDowngrade) (downgrade, error) {
	d := downgrade{to: minorOfEtcd(o.To)}
	members, _, err := etcdMembers(ctx, h, o.EtcdClient)
	if err != nil {
		return d, err
	}
	for _, m := range members {
		if len(m.ClientURLs) == 0 {
			d.unheard = append(d.unheard, m.displayName())
			continue
		}
		state, err := QueryStatus(ctx, h, o.EtcdClient, m.ClientURLs[0])
		if err != nil {
			d.unheard = append(d.unheard, m.displayName())
			continue
		}
		if minorOfEtcd(state.Storage) != d.to {
			d.behind = append(d.behind, m.displayName())
		}
		d.heard, d.heardAt = append(d.heard, state), m.ClientURLs[0]
	}
	return d, nil
}

func (x *DowngradeOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	d, err := readDowngrade(ctx, h, o)
	if err != nil || d.isOlder() || len(d.unheard) == 0 && d.isReady() {
		return host.CheckResult{}, err
	}
	return host.CheckResult{Change: "downgrade the storage format of all members to etcd " + d.to}, nil
}

// Apply starts a downgrade of etcd, and waits until it is possible. After
// all members reach the newer minor version, the cluster version can follow a moment
// later, and can then be downgraded; an unreachable member can be the reason why it never
// did.
func (x *DowngradeOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	var last error
	for deadline := time.Now().Add(downgradeTimes * h.EtcdTime); ; {
		d, err := readDowngrade(ctx, h, o)
		switch {
		case err != nil:
			last = err
		case d.isOlder(), d.isReady():
			return nil
		case d.hasBegun():
			last = d.waitsFor()
		default:
			_, last = runEtcdctl(ctx, h, o.EtcdClient, d.heardAt, "downgrade", "enable", d.to)
			if last == nil {
				continue
			}
			if len(d.unheard) > 0 && strings.Contains(last.Error(), "invalid downgrade target") {
				return nil // it has the older minor version
			}
		}
		if !health.TryAgain(ctx, deadline) {
			return fmt.Errorf("downgrading etcd to %s: %w", d.to, last)
		}
	}
}
