package engine

import "slices"

// Undo is the pipeline that takes back what steps of p have done: for each
// task that says how, newest first, on the hosts in changed ("task@host").
// It is a pipeline like any other: planned, shown, applied.
func Undo(p Pipeline, changed map[string]bool) Pipeline {
	m := Module{Name: "undo"}
	each(p, func(t *Task) {
		if t.Undo == nil {
			return
		}
		m.Tasks = append(m.Tasks, Task{
			ID: "undo." + t.ID, Title: "take back: " + t.Title,
			On:  func(h *Host) bool { return changed[t.ID+"@"+h.Name] },
			Ops: t.Undo, Timeout: t.Timeout,
		})
	})
	slices.Reverse(m.Tasks)
	return Pipeline{Kind: "undo " + p.Kind, Modules: []Module{m}}
}
