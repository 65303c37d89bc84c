package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
)

// AutoRenewal is what a host does about its certificates by itself.
type AutoRenewal struct {
	Host string `json:"host"`
	// Active says that its timer runs as it was set up.
	Active bool `json:"active"`
	// AutoOutcome is what came of the latest look; nil if there was none yet.
	*op.AutoOutcome
}

// autoRenewal asks a host for it; nil if there is nothing that it renews by itself.
func (l *looker) autoRenewal(ctx context.Context, h *hostLook) (*AutoRenewal, error) {
	if !certs.HasTimer(l.env, h.spec) {
		return nil, nil
	}
	results, err := h.conn.Check(ctx, certs.TimerState())
	if err != nil {
		return nil, err
	}
	out := &AutoRenewal{Host: h.spec.Name}
	for _, res := range results {
		switch {
		case res.Error != nil:
			return nil, fmt.Errorf("asking what it renews by itself: %w", res.Error)
		case res.Kind == op.KindUnit:
			out.Active = res.Status == op.Unchanged
		case !res.Missing:
			out.AutoOutcome = &op.AutoOutcome{}
			if err := json.Unmarshal(res.Output, out.AutoOutcome); err != nil {
				return nil, fmt.Errorf("reading what came of renewing by itself: %w", err)
			}
		}
	}
	return out, nil
}

// missedLooks is how many looks a host may have missed, being off for a while,
// before it counts as one that does not look any more.
const missedLooks = 4

// judgeAutoRenewals warns of hosts that do not look after their certificates as
// often as they are to, and says on how many that is so.
func (c *Certificates) judgeAutoRenewals(now time.Time, every time.Duration, warn warner) (wrong int) {
	for _, a := range c.Automatic {
		switch {
		case !a.Active:
			warn(idRenewalTimer, a.Host, "have it be set up again: slipway apply "+c.Name, "%s does not run there, or not as it was set up: certificates are not renewed by themselves", certs.TimerUnit)
		case a.AutoOutcome != nil && now.Sub(a.At) > missedLooks*every:
			warn(idRenewalTimer, a.Host, "see why on the host: journalctl -u "+certs.TimerUnit+" -u slipway-certs", "the host has not looked at its certificates since %s, which it is to do every %s", a.At.Format(time.RFC3339), every)
		case a.AutoOutcome != nil && a.Result == op.AutoFailed:
			warn(idRenewalFailed, a.Host, "when the cause is gone, renew what is due: slipway certs renew "+c.Name, "on %s the host could not renew by itself: %s", a.At.Format(time.RFC3339), a.Message)
		default:
			continue
		}
		wrong++
	}
	return wrong
}
