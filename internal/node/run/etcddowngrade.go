//go:build linux

package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// downgradeTimes is how much longer members may take to keep their data otherwise:
// each looks every few seconds whether it may.
const downgradeTimes = 6

// A downgrade is how members of etcd are on their way to an older minor.
type downgrade struct {
	heard   []etcdState
	heardAt string // where one of them was asked
	unheard []string
	behind  []string // those that keep their data as a newer minor does
	to      string   // minor: "3.6"
}

// minorOfEtcd is "3.6" of "3.6.8".
func minorOfEtcd(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// older says that a member is of the older minor: the cluster is not of a newer one.
func (d downgrade) older() bool {
	return slices.ContainsFunc(d.heard, func(s etcdState) bool { return minorOfEtcd(s.Version) == d.to })
}

// begun says that etcd was told to go back, and ready that all members keep their data
// as those of the older minor do.
func (d downgrade) begun() bool {
	return slices.ContainsFunc(d.heard, func(s etcdState) bool { return s.Downgrade.Enabled && minorOfEtcd(s.Downgrade.Target) == d.to })
}

func (d downgrade) ready() bool {
	return d.begun() && len(d.behind) == 0
}

// waits says who holds a downgrade up that was begun.
func (d downgrade) waits() error {
	if len(d.unheard) > 0 {
		return fmt.Errorf("an etcd downgrade needs answers from all members, but these do not answer: %s", strings.Join(d.unheard, ", "))
	}
	return fmt.Errorf("not all members use the storage format of etcd %s yet: waiting for %s", d.to, strings.Join(d.behind, ", "))
}

// downgrading asks all members how far they are.
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

func (s *session) checkEtcdDowngrade(ctx context.Context, o op.EtcdDowngrade) (verdict, error) {
	d, err := s.downgrading(ctx, o)
	if err != nil || d.older() || len(d.unheard) == 0 && d.ready() {
		return verdict{}, err
	}
	return verdict{change: "downgrade the storage format of all members to etcd " + d.to + " does"}, nil
}

// applyEtcdDowngrade tells etcd to go back, and waits until it may. All members having
// come to the newer minor, the cluster may take a moment to be of it, and goes back from
// there; one that is not heard may be why it never was.
func (s *session) applyEtcdDowngrade(ctx context.Context, o op.EtcdDowngrade) error {
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
				return nil // it is of the older minor
			}
		}
		if !again(ctx, deadline) {
			return fmt.Errorf("downgrading etcd to %s: %w", d.to, last)
		}
	}
}
