package module

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
)

// IDDrainBlocked is a node that cannot be drained however long one waits.
const IDDrainBlocked = "drain-blocked"

// mostBlocked is how many pods a message names.
const mostBlocked = 10

// DrainBlocked refuses to drain a node, because of pods that no waiting helps.
func DrainBlocked(node string, pods []string) error {
	if more := len(pods) - mostBlocked; more > 0 {
		pods = append(pods[:mostBlocked:mostBlocked], fmt.Sprintf("and %d more", more))
	}
	return diag.List{{
		ID: IDDrainBlocked, Severity: diag.Error,
		Message: "node " + node + " cannot be drained: pod " + strings.Join(pods, "; pod "),
		Hint:    "move or delete these pods, or change their disruption budgets; or have them deleted: --force",
	}}
}

// Drain moves a node's pods to others, and tells how far it has come. The node
// is cordoned.
func (e Env) Drain(ctx context.Context, s *engine.Scope, node string) error {
	last := time.Time{}
	return engine.Get(s, KeyKube).Drain(ctx, node, e.Removal.Force, func(m string) {
		if time.Since(last) >= time.Second { // each pod that goes is a change
			last = time.Now()
			s.Tell("%s", m)
		}
	})
}

// DrainTimeout bounds how long the pods of a node are waited for.
func (e Env) DrainTimeout() time.Duration {
	if e.Removal.DrainTimeout == 0 {
		return DefaultDrainTimeout
	}
	return e.Removal.DrainTimeout
}
