package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

// A StateLossFunc reports whether the kubelet of a host starts without its state.
type StateLossFunc func(context.Context, *engine.Scope) (bool, error)

// DrainAroundChange returns the modules before and after a change of settings that
// removes the state of kubelets: the first drains the node, the second waits until the
// node is ready and uncordons it. A node without another node for its pods is not
// drained.
func DrainAroundChange(env module.Env, outdated StateLossFunc) (before, after engine.Module) {
	consumes := []engine.KeyRef{module.KeyKubeBefore.Ref()}
	on := func(h *engine.Host) bool { return module.IsNode(h) && module.IsJoined(h) }
	needs := func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
		return planSettingsDrain(ctx, env, outdated, s)
	}
	before = engine.Module{Name: "node", Tasks: []engine.Task{{
		ID: "settings.drain", Title: "drain node", On: on, Timeout: env.DrainTimeout(), Consumes: consumes,
		Run: &engine.Action{
			Check: needs,
			Apply: func(ctx context.Context, s *engine.Scope) error { return drainForSettings(ctx, env, s) },
		},
	}}}
	after = engine.Module{Name: "node", Tasks: []engine.Task{
		{
			ID: "kubelet.ready", Title: "wait until node is ready", On: on, Timeout: 6 * time.Minute, Consumes: consumes,
			Run: &engine.Action{
				Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
					set, err := isSetAside(ctx, env, needs, s)
					if !set || err != nil {
						return nil, err
					}
					return []plan.OpChange{{Kind: "wait", Target: "node " + s.Host().Name, Summary: "ready"}}, nil
				},
				Apply: waitReady,
			},
		},
		{
			ID: "settings.uncordon", Title: "uncordon node", On: on, Consumes: consumes,
			Run: &engine.Action{
				Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
					set, err := isSetAside(ctx, env, needs, s)
					if !set || err != nil {
						return nil, err
					}
					return []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: "uncordon"}}, nil
				},
				Apply: func(ctx context.Context, s *engine.Scope) error {
					return engine.GetValue(s, module.KeyKubeBefore).Nodes().Uncordon(ctx, s.Host().Name)
				},
			},
		},
	}}
	return before, after
}

// planSettingsDrain returns the change that a node needs before its kubelet starts
// without its state. A node that is not ready is not drained, because its kubelet
// cannot stop its pods. Neither is a control plane that is down together with the API,
// because only its kubelet can start the API server.
func planSettingsDrain(ctx context.Context, env module.Env, outdated StateLossFunc, s *engine.Scope) ([]plan.OpChange, error) {
	client := engine.GetValue(s, module.KeyKubeBefore)
	if changes, err := outdated(ctx, s); !changes || err != nil {
		return nil, err
	}
	const why = "cordon, and move its pods to other nodes, because its kubelet starts without its state"
	drain := []plan.OpChange{{Kind: "node", Target: s.Host().Name, Summary: why}}
	if client == nil {
		return drain, nil
	}
	nodes, err := client.Nodes().List(ctx)
	if err != nil {
		return nil, unlessDown(ctx, env, s, err)
	}
	at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == s.Host().Name })
	if at < 0 || !kube.NodeStateOf(&nodes[at]).Ready || !hasReplacement(nodes, at) {
		return nil, nil
	}
	d, err := client.Nodes().PodsToDrain(ctx, s.Host().Name)
	switch {
	case err != nil:
		return nil, err
	case len(d.Blocked) > 0 && !env.Removal.Force && !env.Upgrade.IsRollback:
		return nil, module.DrainBlocked(s.Host().Name, d.Blocked)
	case !d.Cordon && len(d.Pods) == 0:
		return nil, nil
	}
	return drain, nil
}

// drainForSettings drains a node. In a rollback, pods that cannot be moved do not
// prevent the change of the settings: the kubelet gives them other CPUs or memory while
// they run.
func drainForSettings(ctx context.Context, env module.Env, s *engine.Scope) error {
	client := engine.GetValue(s, module.KeyKubeBefore)
	if err := client.Nodes().Cordon(ctx, s.Host().Name); err != nil {
		return err
	}
	err := env.DrainNodeWith(ctx, s, client, s.Host().Name)
	var blocked *kube.BlockedError
	errors.As(err, &blocked)
	if env.Upgrade.IsRollback && blocked != nil {
		s.ShowProgress("continuing with pods that cannot be moved: %v", blocked)
		return nil
	}
	if blocked != nil {
		return module.DrainBlocked(blocked.Node, blocked.Pods)
	}
	return err
}

// isSetAside reports whether Slipway has cordoned a node, or is about to. Without the
// API, a control plane that is down counts as cordoned, so that it is waited for.
func isSetAside(ctx context.Context, env module.Env, needs func(context.Context, *engine.Scope) ([]plan.OpChange,
	error), s *engine.Scope,
) (bool, error) {
	client := engine.GetValue(s, module.KeyKubeBefore)
	if s.OperationID() == "" {
		if will, err := needs(ctx, s); len(will) > 0 || err != nil {
			return true, err
		}
	}
	if client == nil {
		return true, nil
	}
	n, err := client.Nodes().Get(ctx, s.Host().Name)
	if err != nil {
		return true, unlessDown(ctx, env, s, err)
	}
	return n != nil && kube.IsCordoned(n), nil
}

// unlessDown returns the failure of a request to the API, or nil if the host is a control
// plane that is down.
func unlessDown(ctx context.Context, env module.Env, s *engine.Scope, failed error) error {
	down, err := isServerDown(ctx, env, s.Host())
	if down && err == nil {
		return nil
	}
	return errors.Join(failed, err)
}

// waitReady waits until a kubelet has reported its node ready since the kubelet started.
func waitReady(ctx context.Context, s *engine.Scope) error {
	results, err := s.Host().Conn.Check(ctx, op.List{op.UnitStarted{Name: "kubelet.service"}})
	if err != nil {
		return err
	}
	if len(results) != 1 || results[0].Missing || results[0].Error != nil {
		return fmt.Errorf("reading when the kubelet was started: no result")
	}
	at, err := time.Parse(time.RFC3339Nano, string(results[0].Output))
	if err != nil {
		return fmt.Errorf("reading when the kubelet was started: %w", err)
	}
	return engine.GetValue(s, module.KeyKubeBefore).Nodes().WaitReady(ctx, s.Host().Name, at, func(m string) { s.ShowProgress("%s", m) })
}
