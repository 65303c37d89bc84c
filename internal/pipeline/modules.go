package pipeline

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/containerruntime"
	"slipway.dev/slipway/internal/module/hooks"
)

// hooksOfChange returns the hooks of a phase for some hosts of a running cluster. It
// returns none if no hosts are added or removed, because hooks wait for all other tasks.
func hooksOfChange(env module.Env, chosen func(*engine.Host) bool, phase v1alpha1.HookPhase) modules {
	if len(env.Coming) == 0 && len(env.Leaving) == 0 {
		return nil
	}
	return restrictTo(chosen, modules{hooks.RunHooks(env, phase)})
}

// runHooksEarly makes the hooks of leaving hosts run as soon as the remaining hosts are
// ready, like their drain. They wait for nothing else, because many tasks wait for them.
func runHooksEarly(list modules) modules {
	for _, m := range list {
		for i := range m.Tasks {
			m.Tasks[i].Barrier, m.Tasks[i].Needs = false, []string{"nodes.ready"}
		}
	}
	return list
}

// pruneAtEnd removes files of other versions from hosts when all hosts are complete. Until
// then they are needed for a rollback, also by hosts that do not take part yet.
func pruneAtEnd(env module.Env, m modules) modules {
	if len(env.Absent) > 0 {
		return m
	}
	return append(m, runLast(m, containerruntime.PruneBundles(env)))
}

// runLast makes a module wait until all tasks of others are done on all their hosts.
func runLast(others modules, m engine.Module) engine.Module {
	for i := range m.Tasks {
		m.Tasks[i].NeedsAll = true
		for _, o := range others {
			for _, t := range o.Tasks {
				m.Tasks[i].Needs = append(m.Tasks[i].Needs, t.ID)
			}
		}
	}
	return m
}

// withoutOutsideNeeds removes all needs of tasks that are not among the modules.
func withoutOutsideNeeds(list ...engine.Module) modules {
	there := map[string]bool{}
	for _, m := range list {
		for _, t := range m.Tasks {
			there[t.ID] = true
		}
	}
	for _, m := range list {
		for i := range m.Tasks {
			t := &m.Tasks[i]
			t.Needs = slices.DeleteFunc(slices.Clone(t.Needs), func(id string) bool { return !there[id] })
		}
	}
	return list
}

// restrictTo restricts the tasks of modules to the chosen hosts.
func restrictTo(chosen func(*engine.Host) bool, list modules) modules {
	for _, m := range list {
		for i := range m.Tasks {
			on := m.Tasks[i].On
			m.Tasks[i].On = func(h *engine.Host) bool { return chosen(h) && (on == nil || on(h)) }
		}
	}
	return list
}

// keepKubeconfig makes a module save the kubeconfig of the administrator in a given step,
// after other steps.
func keepKubeconfig(step string, when func(*engine.Scope) bool, m engine.Module, after ...string) engine.Module {
	m.Tasks[0].ID, m.Tasks[0].When, m.Tasks[0].Needs = step, when, after
	return m
}
