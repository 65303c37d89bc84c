// Package hooks runs scripts of the user.
package hooks

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

const dir = "/var/lib/slipway/hooks"

// RunHooks is the module that runs the hooks of one phase, in the order of the file. A hook
// that has succeeded does not run again when its operation is resumed. A hook around
// upgrades runs in each upgrade that has something to do.
func RunHooks(env module.Env, phase v1alpha1.HookPhase) engine.Module {
	m := engine.Module{Name: "hooks " + string(phase)}
	for _, h := range env.Cluster.Spec.Hooks {
		if h.Phase != phase {
			continue
		}
		timeout := 10 * time.Minute
		if h.Timeout != nil {
			timeout = h.Timeout.Duration
		}
		id := "hooks." + string(phase) + "." + h.Name
		m.Tasks = append(m.Tasks, engine.Task{
			ID: id, Title: "run hook " + h.Name,
			On:   func(host *engine.Host) bool { return hasHookRole(h, host) },
			When: func(s *engine.Scope) bool { return appliesTo(env, phase, s.Host()) },
			Once: true, Barrier: true, Timeout: timeout + time.Minute, IgnoreError: h.IgnoreErrors,
			Ops: func(s *engine.Scope) (op.List, error) {
				list, run, err := hookOps(env, h, s.Host(), timeout)
				if aroundUpgrades(phase) {
					list, run = runOncePerOperation(list, run, h, s.OperationID())
				}
				return append(list, op.RevertStep{Step: id}, run), err // files that the hook no longer has are removed first
			},
		})
	}
	return m
}

// aroundUpgrades reports whether a phase occurs more than once on a host.
func aroundUpgrades(phase v1alpha1.HookPhase) bool {
	return phase == v1alpha1.HookPreUpgrade || phase == v1alpha1.HookPostUpgrade
}

// appliesTo reports whether a phase applies to a host. A host that has already been
// reset is not removed again.
func appliesTo(env module.Env, phase v1alpha1.HookPhase, host *engine.Host) bool {
	if phase == v1alpha1.HookPreDelete && host.Facts != nil {
		return host.Facts.Ledger
	}
	return !aroundUpgrades(phase) || env.Upgrade.Backup
}

func hasHookRole(h v1alpha1.Hook, host *engine.Host) bool {
	return len(h.Roles) == 0 || slices.ContainsFunc(h.Roles, host.HasRole)
}

// runOncePerOperation makes a hook run once in each operation: a file next to its
// directory has the id of the last one. A plan has no id, so the hook counts as
// changed.
func runOncePerOperation(list op.List, run op.Exec, h v1alpha1.Hook, operation string) (op.List, op.Exec) {
	last := op.File{Path: path.Join(dir, string(h.Phase), "."+h.Name), Mode: 0o600, Content: []byte(operation + "\n"), Secret: true}
	run.Inputs = append(run.Inputs, last.Path)
	return append(list, last), run
}

// hookOps returns operations that copy the files of a hook under their own names, which
// differ, and run it.
func hookOps(env module.Env, h v1alpha1.Hook, host *engine.Host, timeout time.Duration) (list op.List, run op.Exec, err error) {
	home := path.Join(dir, string(h.Phase), h.Name)
	var inputs []string
	list = op.List{op.Dir{Path: home, Mode: 0o700, Exclusive: true}}
	add := func(from string, mode fs.FileMode) error {
		content, err := bounded.ReadArgument(from, bounded.Config)
		if err != nil {
			return fmt.Errorf("reading a file of hook %s: %w", h.Name, err)
		}
		file := path.Join(home, filepath.Base(from))
		inputs = append(inputs, file)
		list = append(list, op.File{Path: file, Mode: mode, Content: content, Secret: true})
		return nil
	}
	if err := add(h.Script, 0o700); err != nil {
		return nil, run, err
	}
	for _, m := range h.Materials {
		if err := add(m, 0o600); err != nil {
			return nil, run, err
		}
	}
	return list, op.Exec{
		Name: "hook-" + string(h.Phase) + "-" + h.Name,
		Argv: []string{path.Join(home, filepath.Base(h.Script))},
		Dir:  home,
		Env: []string{
			"SLIPWAY_CLUSTER=" + env.Cluster.Name, "SLIPWAY_HOST=" + host.Name,
			"SLIPWAY_ADDRESS=" + module.InternalAddress(host.Host), "SLIPWAY_PHASE=" + string(h.Phase),
		},
		TimeoutSeconds: int(timeout.Seconds()),
		// A script that has run is not repeated because its result was lost, and is not
		// interrupted when the connection is lost.
		Inputs: inputs, Whole: true,
	}, nil
}
