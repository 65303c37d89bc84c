package status

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
)

// reserved is for the fields of an operation's status that do not come from its events: the plan,
// the executor, the attempt and the journal.
const reserved = 8 << 10

// room is the limit of the status that comes from events, in bytes.
const room = v1alpha1.MaxStatusSize - reserved

// KeepManagementFields copies the fields that the management plane sets, and operations do not.
func KeepManagementFields(to, from *v1alpha1.OperationStatus) {
	to.ObservedGeneration, to.ObservedRetry, to.QueuePosition = from.ObservedGeneration, from.ObservedRetry, from.QueuePosition
	to.Deadline, to.Journal, to.AutomaticRetry = from.Deadline, from.Journal, from.AutomaticRetry
	if to.Executor == nil { // an attempt that begins sets its own
		to.Executor = from.Executor
	}
}

// Limits of texts in bytes, as in the definition of the resource.
const (
	maxModule = 64
	maxTask   = 128
	maxTitle  = 256
	maxHost   = 63
	maxReason = 128
)

// Limits of lists in bytes, if not even the least detail fits. The rest is for the steps.
const (
	maxFailureList = 26 << 10
	maxHostList    = 6 << 10
)

// A detail selects how much of failures and steps a status has.
type detail struct {
	message int // limit of a failure's message, in bytes
	title   int // limit of a step's title, in bytes
	times   bool
}

// details lists what a status has, until it is small enough.
var details = []detail{
	{message: v1alpha1.MaxFailureMessage, title: maxTitle, times: true},
	{message: v1alpha1.MaxFailureMessage / 2, title: maxTitle, times: true},
	{message: v1alpha1.MaxFailureMessage / 2, times: true},
	{message: v1alpha1.MaxFailureMessage / 4},
}

// list sets the failures and the steps of a status.
func (r *Reducer) list(out *v1alpha1.OperationStatus, failures []failure, d detail) {
	out.Failures, out.Steps = nil, nil
	for _, f := range failures[:min(len(failures), v1alpha1.MaxFailures)] {
		f.Message = LimitMessage(f.Message, d.message)
		out.Failures = append(out.Failures, f.StepFailure)
	}
	for _, s := range r.steps {
		out.Steps = append(out.Steps, s.status(d))
	}
	r.fold(out, math.MaxInt)
}

// status returns the step. Its task tells its module, if times are left out.
func (s *step) status(d detail) v1alpha1.OperationStep {
	out := v1alpha1.OperationStep{Task: LimitMessage(s.task, maxTask), Hosts: s.counts}
	if d.title > 0 {
		out.Title = LimitMessage(s.title, d.title)
	}
	if d.times {
		out.Module, out.StartTime = LimitMessage(s.module, maxModule), apiTime(s.start)
		if s.running == 0 {
			out.EndTime = apiTime(s.end)
		}
	}
	return out
}

// cut makes a status that has the least detail small enough.
func (r *Reducer) cut(out *v1alpha1.OperationStatus) {
	out.Message = LimitMessage(out.Message, v1alpha1.MaxStatusMessage/2)
	out.Failures = firstOf(out.Failures, maxFailureList)
	out.Hosts = firstOf(out.Hosts, maxHostList)
	var steps []v1alpha1.OperationStep
	for _, s := range r.steps {
		steps = append(steps, s.status(details[len(details)-1]))
	}
	out.Steps, out.OtherSteps = nil, &v1alpha1.OtherSteps{Count: math.MaxInt, Hosts: v1alpha1.HostCounts{
		Done: math.MaxInt, Changed: math.MaxInt, Failed: math.MaxInt, Ignored: math.MaxInt, Skipped: math.MaxInt, Total: math.MaxInt,
	}}
	left := room - sizeOf(out) - len(`,"steps":[]`)
	out.Steps, out.OtherSteps = steps, nil
	r.fold(out, left)
}

// fold limits the steps, one for each step of the reducer, to v1alpha1.MaxSteps and to a size in
// bytes. It keeps the most important ones, and adds up the others.
func (r *Reducer) fold(out *v1alpha1.OperationStatus, size int) {
	order := make([]int, len(r.steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return r.steps[a].compareImportance(r.steps[b]) })
	kept := make([]bool, len(order))
	for i, at := range order {
		if size < math.MaxInt {
			size -= sizeOf(out.Steps[at]) + len(",")
		}
		if size < 0 || i == v1alpha1.MaxSteps {
			break
		}
		kept[at] = true
	}
	var steps []v1alpha1.OperationStep
	out.OtherSteps = nil
	for i, s := range out.Steps {
		if kept[i] {
			steps = append(steps, s)
			continue
		}
		out.OtherSteps = cmp.Or(out.OtherSteps, &v1alpha1.OtherSteps{})
		out.OtherSteps.Count++
		add(&out.OtherSteps.Hosts, s.Hosts)
	}
	out.Steps = steps
}

// compareImportance orders steps: first the failed ones, then the running ones, then the slowest
// ones.
func (s *step) compareImportance(o *step) int {
	return cmp.Or(
		compareBools(s.counts.Failed > 0, o.counts.Failed > 0),
		compareBools(s.counts.Ignored > 0, o.counts.Ignored > 0),
		compareBools(s.running > 0, o.running > 0),
		cmp.Compare(o.duration(), s.duration()),
	)
}

// duration returns the time from the first start to the last end so far.
func (s *step) duration() time.Duration { return s.end.Sub(s.start) }

// compareBools orders true before false.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// add adds the counts of b to a.
func add(a *v1alpha1.HostCounts, b v1alpha1.HostCounts) {
	a.Done += b.Done
	a.Changed += b.Changed
	a.Failed += b.Failed
	a.Ignored += b.Ignored
	a.Skipped += b.Skipped
	a.Total += b.Total
}

// firstOf returns the longest beginning of a list that has at most size bytes.
func firstOf[T any](list []T, size int) []T {
	for i := range list {
		if size -= sizeOf(list[i]) + len(","); size < 0 {
			return list[:i]
		}
	}
	return list
}

// sizeOf returns the size of a value as JSON.
func sizeOf(value any) int {
	text, err := json.Marshal(value)
	if err != nil {
		return math.MaxInt / 2 // no value of the API leads here
	}
	return len(text)
}
