package e2e

import "time"

// Files of this package without the tag e2e hold what needs no machine, and
// are tested without one.

// A happening is the part of an event that tests look at.
type happening struct {
	Time                                          time.Time
	Type, Operation, Task, Host, Outcome, Message string
	Done, Total                                   int64
}

// step names the step that the event belongs to, in journal and events alike.
func (h happening) step() string { return h.Task + "@" + h.Host }

// boundary names the step that ended here; "" is no boundary.
func (h happening) boundary() string {
	if h.Type != "step.finished" || h.Outcome == "skipped" || h.Outcome == "cancelled" {
		return ""
	}
	return h.step()
}

// begins says that a step of the task begins here.
func (h happening) begins(task string) bool { return h.Type == "step.started" && h.Task == task }

// midway says that a blob is on its way to a host.
func (h happening) midway() bool {
	return h.Type == "step.progress" && h.Done > 0 && h.Done < h.Total
}
