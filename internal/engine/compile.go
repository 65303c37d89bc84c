package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"slipway.dev/slipway/internal/graph"
)

// A step is one task on one host, or on the manager.
type step struct {
	module string
	task   *Task
	host   *Host // nil on the manager
}

func (s *step) hostName() string {
	if s.host == nil {
		return ""
	}
	return s.host.Name
}

// program is a pipeline laid out over hosts: a graph of steps. After each task, and before
// each barrier, a joint waits for all hosts.
type program struct {
	graph.Graph
	steps  []*step // by node; nil for a joint
	joints map[string]int
	// strict holds the joints that a single failed host blocks, even if errors are
	// ignored.
	strict map[int]bool
	// pauses holds the joints at which the run stops if something changed before them.
	pauses map[int]bool
	// order lists the step nodes in the order of the pipeline.
	order []int
	// providers maps the name of a key to the task that provides it.
	providers map[string]string
}

// phase is the purpose of a program: a check waits only for values, an apply also for
// Needs, barriers and waves.
type phase bool

const (
	checking phase = false
	applying phase = true
)

func compileProgram(p Pipeline, hosts []*Host, ph phase, planned map[string]*declaration) (*program, error) {
	providers, err := verifyPipeline(p)
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", p.Kind, err)
	}
	b := &builder{
		program: &program{joints: map[string]int{}, strict: map[int]bool{}, pauses: map[int]bool{}, providers: providers},
		hosts:   hosts, last: map[string]int{},
	}
	for mi := range p.Modules {
		m := &p.Modules[mi]
		from := len(b.order)
		for ti := range m.Tasks {
			b.addTask(m.Name, &m.Tasks[ti], ph)
		}
		if m.Waves != nil && ph == applying {
			b.connectWaves(m, b.order[from:], planned)
		}
	}
	b.connectSteps(ph)
	if _, err := b.SortNodes(); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", p.Kind, err)
	}
	return b.program, nil
}

type builder struct {
	*program
	hosts []*Host
	last  map[string]int // last step of each lane so far
	// managers lists the steps of the manager so far.
	managers []int
}

func (b *builder) addNode(name string, s *step) int {
	n := b.AddNode(name)
	b.steps = append(b.steps, s)
	return n
}

// addTask lays out one task over its hosts.
func (b *builder) addTask(module string, t *Task, ph phase) {
	gate := -1
	if t.Barrier && ph == applying {
		gate = b.addNode("barrier before "+t.ID, nil)
		for _, n := range b.last {
			b.AddEdge(n, gate)
		}
		for _, n := range b.managers {
			b.AddEdge(n, gate)
		}
	}
	var nodes []int
	place := func(h *Host) {
		s := &step{module: module, task: t, host: h}
		n := b.addNode(t.ID+" on "+s.hostName(), s)
		if gate >= 0 {
			b.AddEdge(gate, n)
		}
		if h != nil { // the manager has no lane: its tasks name what they wait for
			if prev, ok := b.last[h.Name]; ok {
				b.AddEdge(prev, n)
			}
			b.last[h.Name] = n
		}
		nodes = append(nodes, n)
		b.order = append(b.order, n)
	}
	if t.Manager {
		place(nil)
		b.managers = append(b.managers, nodes...)
	} else {
		for _, h := range b.hosts {
			if t.On == nil || t.On(h) {
				place(h)
			}
		}
	}
	joint := b.addNode("end of "+t.ID, nil)
	for _, n := range nodes {
		b.AddEdge(n, joint)
	}
	b.joints[t.ID] = joint
}

// connectWaves makes the hosts of a module wait for the hosts of earlier waves.
func (b *builder) connectWaves(m *Module, steps []int, planned map[string]*declaration) {
	changing := map[string]bool{}
	for _, n := range steps {
		if planned[stepKey(b.steps[n])] != nil {
			changing[b.steps[n].hostName()] = true
		}
	}
	of := map[int][]int{}
	for _, n := range steps {
		wave := m.Waves(b.steps[n].host)
		if wave < 0 || m.Changing && !changing[b.steps[n].hostName()] {
			continue
		}
		of[wave] = append(of[wave], n)
	}
	through := -1
	for _, wave := range slices.Sorted(maps.Keys(of)) {
		next := b.addNode(fmt.Sprintf("wave %d of %s", wave, m.Name), nil)
		b.strict[next], b.pauses[next] = true, m.Pause != nil && m.Pause(wave)
		for _, n := range of[wave] {
			if through >= 0 {
				b.AddEdge(through, n)
			}
			b.AddEdge(n, next)
		}
		if through >= 0 { // a wave without planned steps must still wait for the earlier waves
			b.AddEdge(through, next)
		}
		through = next
	}
}

// connectSteps adds edges to steps from the tasks they need and from the providers of their
// values on other lanes. A value of the same lane is already in order.
func (b *builder) connectSteps(ph phase) {
	all := map[string]int{}
	for _, n := range b.order {
		t := b.steps[n].task
		if ph == applying {
			for _, need := range t.Needs {
				joint := b.joints[need]
				if t.NeedsAll {
					joint = b.allOf(need, all)
				}
				b.AddEdge(joint, n)
			}
		}
		for _, k := range t.Consumes {
			if !k.perHost {
				b.AddEdge(b.joints[b.providers[k.name]], n)
			}
		}
	}
}

// allOf returns the strict joint after a task. It is created on first use.
func (b *builder) allOf(task string, made map[string]int) int {
	if n, ok := made[task]; ok {
		return n
	}
	n := b.addNode("all of "+task, nil)
	for _, step := range b.Predecessors(b.joints[task]) {
		b.AddEdge(step, n)
	}
	b.strict[n], made[task] = true, n
	return n
}

// verifyPipeline checks a pipeline independently of the hosts, and returns which task provides
// which key.
func verifyPipeline(p Pipeline) (map[string]string, error) {
	var errs []error
	ids := map[string]bool{}
	providers := map[string]string{}
	for _, m := range p.Modules {
		if m.Waves != nil && slices.ContainsFunc(m.Tasks, func(t Task) bool { return t.Manager }) {
			errs = append(errs, fmt.Errorf("module %s runs in waves and cannot have tasks on the manager", m.Name))
		}
	}
	eachTask(p, func(t *Task) {
		if ids[t.ID] {
			errs = append(errs, fmt.Errorf("duplicate task id %q", t.ID))
		}
		ids[t.ID] = true
		if (t.Ops == nil) == (t.Run == nil) {
			errs = append(errs, fmt.Errorf("task %s must have either operations or an action", t.ID))
		}
		if t.Manager && t.Ops != nil {
			errs = append(errs, fmt.Errorf("task %s runs on the manager and cannot have operations", t.ID))
		}
		if t.NeedsAll && len(t.Needs) == 0 {
			errs = append(errs, fmt.Errorf("task %s sets NeedsAll but has no Needs", t.ID))
		}
		for _, k := range t.Provides {
			if other, ok := providers[k.name]; ok {
				errs = append(errs, fmt.Errorf("%q is provided by %s and %s", k.name, other, t.ID))
			}
			providers[k.name] = t.ID
		}
		for _, s := range []string{t.Rollout.MaxParallel, t.Rollout.MaxUnavailable} {
			if _, err := ParseBound(s, 1); err != nil {
				errs = append(errs, fmt.Errorf("task %s: rollout %w", t.ID, err))
			}
		}
	})
	eachTask(p, func(t *Task) {
		for _, n := range t.Needs {
			if !ids[n] {
				errs = append(errs, fmt.Errorf("task %s needs %q, which is not in the pipeline", t.ID, n))
			}
		}
		for _, k := range t.Consumes {
			if _, ok := providers[k.name]; !ok {
				errs = append(errs, fmt.Errorf("task %s consumes %q, but no task provides it", t.ID, k.name))
			}
		}
	})
	return providers, errors.Join(errs...)
}

func eachTask(p Pipeline, fn func(*Task)) {
	for mi := range p.Modules {
		for ti := range p.Modules[mi].Tasks {
			fn(&p.Modules[mi].Tasks[ti])
		}
	}
}
