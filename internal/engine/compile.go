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

// program is a pipeline laid out over hosts: a graph of steps, with a joint
// behind each task (and before each barrier) that waits for all its hosts.
type program struct {
	graph.Graph
	steps  []*step // by node; nil for a joint
	joints map[string]int
	// strict are joints that one failed host is enough to block, whatever is
	// ignored.
	strict map[int]bool
	// pauses are joints at which the run stops, if it has changed something
	// before them.
	pauses map[int]bool
	// order are the step nodes in the pipeline's order.
	order []int
	// providers are the tasks that provide keys, by the key's name.
	providers map[string]string
}

// phase says what a program is for: a check waits for values alone, an apply
// for all that the tasks ask for.
type phase bool

const (
	checking phase = false
	applying phase = true
)

func compile(p Pipeline, hosts []*Host, ph phase, planned map[string]*declaration) (*program, error) {
	providers, err := verify(p)
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", p.Kind, err)
	}
	b := &builder{program: &program{joints: map[string]int{}, strict: map[int]bool{}, pauses: map[int]bool{}, providers: providers}, hosts: hosts, last: map[string]int{}}
	for mi := range p.Modules {
		m := &p.Modules[mi]
		from := len(b.order)
		for ti := range m.Tasks {
			b.add(m.Name, &m.Tasks[ti], ph)
		}
		if m.Waves != nil && ph == applying {
			b.waves(m, b.order[from:], planned)
		}
	}
	b.connect(ph)
	if _, err := b.Order(); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", p.Kind, err)
	}
	return b.program, nil
}

type builder struct {
	*program
	hosts []*Host
	last  map[string]int // last step of each lane so far
	// managers are the manager's steps so far.
	managers []int
}

func (b *builder) node(name string, s *step) int {
	n := b.Add(name)
	b.steps = append(b.steps, s)
	return n
}

// add lays out one task over its hosts.
func (b *builder) add(module string, t *Task, ph phase) {
	gate := -1
	if t.Barrier && ph == applying {
		gate = b.node("barrier before "+t.ID, nil)
		for _, n := range b.last {
			b.Edge(n, gate)
		}
		for _, n := range b.managers {
			b.Edge(n, gate)
		}
	}
	var nodes []int
	place := func(h *Host) {
		s := &step{module: module, task: t, host: h}
		n := b.node(t.ID+" on "+s.hostName(), s)
		if gate >= 0 {
			b.Edge(gate, n)
		}
		if h != nil { // the manager has no lane: its tasks say what they wait for
			if prev, ok := b.last[h.Name]; ok {
				b.Edge(prev, n)
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
	joint := b.node("end of "+t.ID, nil)
	for _, n := range nodes {
		b.Edge(n, joint)
	}
	b.joints[t.ID] = joint
}

// waves has the hosts of a module wait for those of the waves before theirs.
func (b *builder) waves(m *Module, steps []int, planned map[string]*declaration) {
	changing := map[string]bool{}
	for _, n := range steps {
		if planned[key(b.steps[n])] != nil {
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
		next := b.node(fmt.Sprintf("wave %d of %s", wave, m.Name), nil)
		b.strict[next], b.pauses[next] = true, m.Pause != nil && m.Pause(wave)
		for _, n := range of[wave] {
			if through >= 0 {
				b.Edge(through, n)
			}
			b.Edge(n, next)
		}
		if through >= 0 { // nothing of a wave is planned: those before it count all the same
			b.Edge(through, next)
		}
		through = next
	}
}

// connect has steps wait for the tasks they need and for values from other
// lanes; a value of the own lane comes in order anyway.
func (b *builder) connect(ph phase) {
	all := map[string]int{}
	for _, n := range b.order {
		t := b.steps[n].task
		if ph == applying {
			for _, need := range t.Needs {
				joint := b.joints[need]
				if t.NeedsAll {
					joint = b.allOf(need, all)
				}
				b.Edge(joint, n)
			}
		}
		for _, k := range t.Consumes {
			if !k.perHost {
				b.Edge(b.joints[b.providers[k.name]], n)
			}
		}
	}
}

// allOf is the strict joint behind a task, made when it is first asked for.
func (b *builder) allOf(task string, made map[string]int) int {
	if n, ok := made[task]; ok {
		return n
	}
	n := b.node("all of "+task, nil)
	for _, step := range b.Prev(b.joints[task]) {
		b.Edge(step, n)
	}
	b.strict[n], made[task] = true, n
	return n
}

// verify finds what is wrong with a pipeline whatever the hosts, and answers
// which task provides which key.
func verify(p Pipeline) (map[string]string, error) {
	var errs []error
	ids := map[string]bool{}
	providers := map[string]string{}
	for _, m := range p.Modules {
		if m.Waves != nil && slices.ContainsFunc(m.Tasks, func(t Task) bool { return t.Manager }) {
			errs = append(errs, fmt.Errorf("module %s goes in waves, in which the manager has no place", m.Name))
		}
	}
	each(p, func(t *Task) {
		if ids[t.ID] {
			errs = append(errs, fmt.Errorf("task id %q stands twice", t.ID))
		}
		ids[t.ID] = true
		if (t.Ops == nil) == (t.Run == nil) {
			errs = append(errs, fmt.Errorf("task %s must have either operations or an action", t.ID))
		}
		if t.Manager && t.Ops != nil {
			errs = append(errs, fmt.Errorf("task %s runs on the manager, which has no operations", t.ID))
		}
		if t.NeedsAll && len(t.Needs) == 0 {
			errs = append(errs, fmt.Errorf("task %s needs all of nothing", t.ID))
		}
		for _, k := range t.Provides {
			if other, ok := providers[k.name]; ok {
				errs = append(errs, fmt.Errorf("%q is provided by %s and %s", k.name, other, t.ID))
			}
			providers[k.name] = t.ID
		}
		for _, s := range []string{t.Rollout.MaxParallel, t.Rollout.MaxUnavailable} {
			if _, err := Bound(s, 1); err != nil {
				errs = append(errs, fmt.Errorf("task %s: rollout %w", t.ID, err))
			}
		}
	})
	each(p, func(t *Task) {
		for _, n := range t.Needs {
			if !ids[n] {
				errs = append(errs, fmt.Errorf("task %s needs %q, which is not in the pipeline", t.ID, n))
			}
		}
		for _, k := range t.Consumes {
			if _, ok := providers[k.name]; !ok {
				errs = append(errs, fmt.Errorf("task %s consumes %q, which nothing provides", t.ID, k.name))
			}
		}
	})
	return providers, errors.Join(errs...)
}

func each(p Pipeline, fn func(*Task)) {
	for mi := range p.Modules {
		for ti := range p.Modules[mi].Tasks {
			fn(&p.Modules[mi].Tasks[ti])
		}
	}
}
