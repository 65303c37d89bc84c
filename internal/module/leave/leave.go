// Package leave takes nodes off a cluster that goes on without them: their
// pods go elsewhere first, and the node is deleted when its host is put back.
package leave

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// IDBlocked is a node that cannot be drained however long one waits.
const IDBlocked = "drain-blocked"

// Drain is the module that moves the pods of nodes that leave to others.
func Drain(env module.Env) engine.Module {
	limit := env.Removal.DrainTimeout
	if limit == 0 {
		limit = module.DefaultDrainTimeout
	}
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.drain", Title: "drain node", On: env.Resets, Timeout: limit,
		// Those that come may have to take the pods of those that go.
		Needs: []string{"nodes.ready"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return undrained(ctx, env, s) },
			Apply: func(ctx context.Context, s *engine.Scope) error { return drain(ctx, env, s) },
		},
	}}}
}

// Node is the module that deletes the nodes of hosts that have been put back,
// or are given up. Until then the node tells everybody that the host is not
// done with.
func Node(env module.Env) engine.Module {
	return engine.Module{Name: "leave", Tasks: []engine.Task{{
		ID: "leave.node", Title: "delete node", On: env.Leaves, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				change := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "delete"}}
				if engine.Get(s, module.KeyKube) == nil {
					return change, nil
				}
				n, err := node(ctx, s)
				if n == nil || err != nil {
					return nil, err
				}
				return change, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				return engine.Get(s, module.KeyKube).DeleteNode(ctx, s.Host().Name)
			},
		},
	}}}
}

// node is the host's node, nil if there is none: one of its name that is
// another machine is not its own.
func node(ctx context.Context, s *engine.Scope) (*corev1.Node, error) {
	n, err := engine.Get(s, module.KeyKube).Node(ctx, s.Host().Name)
	if n == nil || err != nil {
		return nil, err
	}
	if f := s.Host().Facts; f != nil && !kube.SameMachine(n, f.MachineID) {
		return nil, nil
	}
	return n, nil
}

func undrained(ctx context.Context, env module.Env, s *engine.Scope) ([]plan.OpChange, error) {
	change := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "cordon and drain"}}
	client := engine.Get(s, module.KeyKube)
	if client == nil {
		return change, nil
	}
	n, err := node(ctx, s)
	if n == nil || err != nil {
		return nil, err
	}
	d, err := client.Undrained(ctx, n.Name)
	switch {
	case err != nil:
		return nil, err
	case !kube.State(n).Ready: // nobody ends its pods; they are lost with the node
		if !d.Cordon {
			return nil, nil
		}
		change[0].Summary = "cordon: its kubelet does not answer, its pods are made anew elsewhere when the node is gone"
	case len(d.Blocked) > 0 && !env.Removal.Force:
		return nil, blocked(n.Name, d.Blocked)
	case !d.Cordon && len(d.Pods) == 0:
		return nil, nil
	}
	return change, nil
}

// mostBlocked is how many pods a message names.
const mostBlocked = 10

func blocked(node string, pods []string) error {
	if more := len(pods) - mostBlocked; more > 0 {
		pods = append(pods[:mostBlocked:mostBlocked], fmt.Sprintf("and %d more", more))
	}
	return diag.List{{
		ID: IDBlocked, Severity: diag.Error,
		Message: "node " + node + " cannot be drained: pod " + strings.Join(pods, "; pod "),
		Hint:    "move or delete these pods, or change their disruption budgets; or have them deleted: --force",
	}}
}

func drain(ctx context.Context, env module.Env, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	n, err := node(ctx, s)
	if n == nil || err != nil {
		return err
	}
	if err := client.Cordon(ctx, n.Name); err != nil {
		return err
	}
	if !kube.State(n).Ready {
		return nil
	}
	last := time.Time{}
	return client.Drain(ctx, n.Name, env.Removal.Force, func(m string) {
		if time.Since(last) >= time.Second { // each pod that goes is a change
			last = time.Now()
			s.Tell("%s", m)
		}
	})
}
