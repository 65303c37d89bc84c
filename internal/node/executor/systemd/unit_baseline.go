//go:build linux

package systemd

import (
	"context"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/ledger"
)

// OnlineTarget is a target that Slipway's units want: starting one of them starts it as
// well.
const OnlineTarget = "network-online.target"

// saveUnitBaseline records the original state of a unit, the directories of links that
// enabling units can extend, and the target that starting units can start.
func saveUnitBaseline(ctx context.Context, h *host.Host, name string, now systemctl.UnitState) error {
	if h.Ledger.FindEntry(ledger.KindUnit, OnlineTarget) == nil {
		target, err := systemctl.ShowUnit(ctx, h, OnlineTarget)
		if err != nil {
			return err
		}
		was := unitWas{Enablement: target.Enablement, Active: target.IsRunning(), Masked: target.IsMasked()}
		if err := h.Ledger.SaveEntry(ledger.KindUnit, OnlineTarget, was); err != nil {
			return err
		}
	}
	for _, pattern := range []string{"/etc/systemd/system/*.wants", "/etc/systemd/system/*.requires"} {
		if err := h.Ledger.SaveGlob(pattern, true); err != nil {
			return err
		}
	}
	return h.Ledger.SaveEntry(ledger.KindUnit, name, unitWas{Enablement: now.Enablement, Active: now.IsRunning(), Masked: now.IsMasked()})
}
