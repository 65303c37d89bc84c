//go:build linux

package executor

import (
	"context"

	"slipway.dev/slipway/internal/node/ledger"
)

// online is a target that Slipway's units want: starting one of them starts it as well.
const online = "network-online.target"

// saveUnit records the original state of a unit, the directories of links that enabling
// units can extend, and the target that starting units can start.
func (s *session) saveUnit(ctx context.Context, name string, now unitState) error {
	if s.ledger.Get(ledger.KindUnit, online) == nil {
		target, err := s.unit(ctx, online)
		if err != nil {
			return err
		}
		was := unitWas{Enablement: target.enablement, Active: target.running(), Masked: target.masked()}
		if err := s.ledger.Save(ledger.KindUnit, online, was); err != nil {
			return err
		}
	}
	for _, pattern := range []string{"/etc/systemd/system/*.wants", "/etc/systemd/system/*.requires"} {
		if err := s.ledger.SaveGlob(pattern, true); err != nil {
			return err
		}
	}
	return s.ledger.Save(ledger.KindUnit, name, unitWas{Enablement: now.enablement, Active: now.running(), Masked: now.masked()})
}
