package module

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
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
// is cordoned. Pods that nobody makes again stop it as they do a plan: some may have
// come since, or bear with the cordon.
func (e Env) Drain(ctx context.Context, s *engine.Scope, node string) error {
	err := e.DrainBy(ctx, s, engine.Get(s, KeyKube), node)
	var blocked *kube.BlockedError
	if errors.As(err, &blocked) {
		return DrainBlocked(blocked.Node, blocked.Pods)
	}
	return err
}

// DrainBy drains a node by a client. Pods that nobody makes again are a
// kube.BlockedError.
func (e Env) DrainBy(ctx context.Context, s *engine.Scope, client *kube.Client, node string) error {
	last := time.Time{}
	return client.Drain(ctx, node, e.Removal.Force, func(m string) {
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
