package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
)

// AutoRenewal describes the automatic certificate renewal of a host.
type AutoRenewal struct {
	Host string `json:"host"`
	// Active reports whether the timer runs as it was set up.
	Active bool `json:"active"`
	// AutoOutcome is the result of the latest run; nil if there was none yet.
	*op.AutoOutcome
}

// readAutoRenewal queries the automatic renewal of a host; nil if the host has none.
func (s *Session) readAutoRenewal(ctx context.Context, h *Host) (*AutoRenewal, error) {
	if !certs.HasTimer(s.Env, h.Spec) {
		return nil, nil
	}
	results, err := h.Conn.Check(ctx, certs.TimerState())
	if err != nil {
		return nil, err
	}
	out := &AutoRenewal{Host: h.Spec.Name}
	for _, res := range results {
		switch {
		case res.Error != nil:
			return nil, fmt.Errorf("querying its automatic certificate renewal: %w", res.Error)
		case res.Kind == op.KindUnit:
			out.Active = res.Status == op.Unchanged
		case !res.Missing:
			out.AutoOutcome = &op.AutoOutcome{}
			if err := json.Unmarshal(res.Output, out.AutoOutcome); err != nil {
				return nil, fmt.Errorf("reading the result of its automatic certificate renewal: %w", err)
			}
		}
	}
	return out, nil
}

// maxMissedChecks is how many checks a host may miss, for example while it is off, before
// it counts as a host that no longer checks its certificates.
const maxMissedChecks = 4

// evaluateAutoRenewals warns about hosts that do not check or renew their certificates as
// scheduled, and returns their number.
func (c *Certificates) evaluateAutoRenewals(now time.Time, every time.Duration, warn warnFunc) (wrong int) {
	for _, a := range c.Automatic {
		switch {
		case !a.Active:
			warn(idRenewalTimer, a.Host, "set up the timer again: slipway apply "+c.Name,
				"%s is not active or was changed: certificates are not renewed automatically", certs.TimerUnit)
		case a.AutoOutcome != nil && now.Sub(a.At) > maxMissedChecks*every:
			warn(idRenewalTimer, a.Host, "find the cause on the host: journalctl -u "+certs.TimerUnit+" -u slipway-certs",
				"the host has not checked its certificates since %s, although it should every %s", a.At.Format(time.RFC3339), every)
		case a.AutoOutcome != nil && a.Result == op.AutoFailed:
			warn(idRenewalFailed, a.Host, "fix the cause, then renew the certificates: slipway certs renew "+c.Name,
				"the automatic certificate renewal failed at %s: %s", a.At.Format(time.RFC3339), a.Message)
		default:
			continue
		}
		wrong++
	}
	return wrong
}
