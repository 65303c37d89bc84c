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

// IDDrainBlocked identifies a node that cannot be drained, no matter how long one waits.
const IDDrainBlocked = "drain-blocked"

// mostBlocked is how many pods a message names.
const mostBlocked = 10

// DrainBlocked returns the error for a node with pods that cannot be moved by waiting.
func DrainBlocked(node string, pods []string) error {
	if more := len(pods) - mostBlocked; more > 0 {
		pods = append(pods[:mostBlocked:mostBlocked], fmt.Sprintf("and %d more", more))
	}
	return diag.List{{
		ID: IDDrainBlocked, Severity: diag.Error,
		Message: "node " + node + " cannot be drained: pod " + strings.Join(pods, "; pod "),
		Hint:    "move or delete these pods, or change their PodDisruptionBudgets, or let Slipway delete them: --force",
	}}
}

// DrainNode moves the pods of a node to other nodes, and shows its progress. The node is
// cordoned. Pods without a controller stop it, as they stop a plan: some may have been
// created since, or may tolerate the cordon.
func (e Env) DrainNode(ctx context.Context, s *engine.Scope, node string) error {
	err := e.DrainNodeWith(ctx, s, engine.GetValue(s, KeyKube), node)
	var blocked *kube.BlockedError
	if errors.As(err, &blocked) {
		return DrainBlocked(blocked.Node, blocked.Pods)
	}
	return err
}

// DrainNodeWith drains a node with a client. Pods without a controller cause a
// kube.BlockedError.
func (e Env) DrainNodeWith(ctx context.Context, s *engine.Scope, client *kube.Client, node string) error {
	last := time.Time{}
	return client.Nodes().Drain(ctx, node, e.Removal.Force, func(m string) {
		if time.Since(last) >= time.Second { // the text changes with each pod
			last = time.Now()
			s.ShowProgress("%s", m)
		}
	})
}

// DrainTimeout returns how long to wait for the pods of a node.
func (e Env) DrainTimeout() time.Duration {
	if e.Removal.DrainTimeout == 0 {
		return DefaultDrainTimeout
	}
	return e.Removal.DrainTimeout
}
