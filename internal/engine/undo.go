package engine

import "slices"

// UndoPipeline returns the pipeline that reverts steps of p: for each task that has an Undo,
// newest first, on the hosts in changed ("task@host"). The pipeline is planned, shown and
// applied like any other.
func UndoPipeline(p Pipeline, changed map[string]bool) Pipeline {
	m := Module{Name: "undo"}
	eachTask(p, func(t *Task) {
		if t.Undo == nil {
			return
		}
		m.Tasks = append(m.Tasks, Task{
			ID: "undo." + t.ID, Title: "roll back: " + t.Title,
			On:  func(h *Host) bool { return changed[t.ID+"@"+h.Name] },
			Ops: t.Undo, Timeout: t.Timeout,
		})
	})
	slices.Reverse(m.Tasks)
	return Pipeline{Kind: "undo " + p.Kind, Modules: []Module{m}}
}
