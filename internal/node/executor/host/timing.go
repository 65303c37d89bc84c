//go:build linux

package host

import (
	"context"
	"time"
)

// Pause waits for a short time, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// SettleTime limits how long a Reset waits for killed processes to end.
const SettleTime = 15 * time.Second
