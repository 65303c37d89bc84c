//go:build linux

package systemd

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// shutdownTime is how long a host may take to shut down before the reboot counts as
	// failed. systemd gives units that do not stop 90 seconds, some of them one after the
	// other.
	shutdownTime = 10 * time.Minute
	// silentTime is how long the helper sends nothing after it got a signal to stop. The
	// shutdown ends the connection in that time. A failure that is sent before would look
	// as if the host had not rebooted.
	silentTime = time.Second
)

// RebootOp executes op.Reboot.
type RebootOp struct{ Op op.Reboot }

// Check compares the current boot ID with the one that must end.
func (x *RebootOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	if x.Op.Boot == "" {
		return host.CheckResult{}, host.Invalid("the reboot does not name the boot that must end")
	}
	switch boot := h.ReadText("/proc/sys/kernel/random/boot_id"); boot {
	case "":
		return host.CheckResult{}, fmt.Errorf("reading the boot ID: it is empty")
	case x.Op.Boot:
		return host.CheckResult{Change: "reboot"}, nil
	}
	return host.CheckResult{}, nil
}

// Apply asks systemd to reboot, and returns only if the host does not shut down: the
// shutdown ends this process. The manager connects again and checks the new boot.
func (x *RebootOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	if err := health.AwaitGate(ctx, h, x.Op.Gate); err != nil {
		return err
	}
	err := systemctl.RunSystemctl(ctx, h, "reboot")
	if err != nil && ctx.Err() == nil {
		return err
	}
	down := time.NewTimer(shutdownTime)
	defer down.Stop()
	select {
	case <-down.C:
		return &op.Error{Reason: "Timeout", Message: fmt.Sprintf("the host did not shut down within %s", shutdownTime)}
	case <-ctx.Done():
	}
	silent := time.NewTimer(silentTime)
	defer silent.Stop()
	<-silent.C
	return ctx.Err()
}

// LedgerEntries returns none: a reboot changes nothing that can be restored.
func (*RebootOp) LedgerEntries() ([]host.Subject, bool) { return nil, true }
