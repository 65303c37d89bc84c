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

// stepName names the step that the event belongs to, in journal and events alike.
func (h happening) stepName() string { return h.Task + "@" + h.Host }

// boundaryName returns the name of the step that ended with this event; "" if none did.
func (h happening) boundaryName() string {
	if h.Type != "step.finished" || h.Outcome == "skipped" || h.Outcome == "cancelled" {
		return ""
	}
	return h.stepName()
}

// beginsTask reports whether a step of the task begins with this event.
func (h happening) beginsTask(task string) bool { return h.Type == "step.started" && h.Task == task }

// isTransferring reports whether a blob is being sent to a host.
func (h happening) isTransferring() bool {
	return h.Type == "step.progress" && h.Done > 0 && h.Done < h.Total
}
