package engine

import (
	"fmt"
	"sync"

	"slipway.dev/slipway/internal/event"
)

// A Key names a value that one task provides and others consume. A plan uses the unknown
// value until the provider has run.
type Key[T any] struct {
	name    string
	perHost bool
	unknown T
}

// NewKey returns a key for one value in the whole operation. The name never changes.
func NewKey[T any](name string, unknown T) Key[T] {
	return Key[T]{name: name, unknown: unknown}
}

// NewHostKey returns a key for one value per host.
func NewHostKey[T any](name string, unknown T) Key[T] {
	return Key[T]{name: name, perHost: true, unknown: unknown}
}

// A KeyRef is a key without its type, for Provides and Consumes.
type KeyRef struct {
	name    string
	perHost bool
}

// Ref returns the key for Provides and Consumes.
func (k Key[T]) Ref() KeyRef { return KeyRef{name: k.name, perHost: k.perHost} }

// values holds the values that tasks have provided.
type values struct {
	mu sync.Mutex
	m  map[string]any
}

func (v *values) setValue(key string, val any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.m == nil {
		v.m = map[string]any{}
	}
	v.m[key] = val
}

func (v *values) valueOf(key string) (any, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	val, ok := v.m[key]
	return val, ok
}

// A Scope is the view that a task has of one host, or of the manager.
type Scope struct {
	run  *Run
	step *step
	// pending is the first key that was read and has no value yet.
	pending string
	err     error
	emit    func(event.Event)
}

// Host returns the host the task runs on; nil on the manager.
func (s *Scope) Host() *Host { return s.step.host }

// Hosts returns all hosts of the operation.
func (s *Scope) Hosts() []*Host { return s.run.Hosts }

// OperationID returns the id of the run; "" while planning.
func (s *Scope) OperationID() string { return s.run.Operation }

// IsPending reports whether the task has read a value that is not known yet.
func (s *Scope) IsPending() bool { return s.pending != "" }

// EmitEvent sends an event about the progress of the step, or a note. The event need not name
// the step.
func (s *Scope) EmitEvent(e event.Event) {
	if s.emit != nil {
		s.emit(e)
	}
}

// ShowProgress shows a line of progress.
func (s *Scope) ShowProgress(format string, args ...any) {
	s.EmitEvent(event.Event{Type: event.StepProgress, Message: fmt.Sprintf(format, args...)})
}

// ShowNote shows a message that the user must see; it remains on the screen.
func (s *Scope) ShowNote(format string, args ...any) {
	s.EmitEvent(event.Event{Type: event.Note, Message: fmt.Sprintf(format, args...)})
}

// GetValue returns a value. For a value that is not known yet, it returns the unknown value of
// the key, and the step counts as pending. A key that the task does not declare in
// Consumes fails the step.
func GetValue[T any](s *Scope, k Key[T]) T {
	if !containsKey(s.step.task.Consumes, k.name) {
		s.failWith(fmt.Errorf("task %s reads %q without declaring it", s.step.task.ID, k.name))
		return k.unknown
	}
	val, ok := s.run.values.valueOf(s.taskKey(k.Ref()))
	if !ok {
		if s.pending == "" {
			s.pending = k.name
		}
		return k.unknown
	}
	return val.(T)
}

// IsKnown reports whether a key has a value. It does not make the step pending.
func IsKnown[T any](s *Scope, k Key[T]) bool {
	if !containsKey(s.step.task.Consumes, k.name) {
		s.failWith(fmt.Errorf("task %s reads %q without declaring it", s.step.task.ID, k.name))
	}
	_, ok := s.run.values.valueOf(s.taskKey(k.Ref()))
	return ok
}

// ProvideValue sets a value. The key must be in the task's Provides.
func ProvideValue[T any](s *Scope, k Key[T], v T) {
	if !containsKey(s.step.task.Provides, k.name) {
		s.failWith(fmt.Errorf("task %s provides %q without declaring it", s.step.task.ID, k.name))
		return
	}
	s.run.values.setValue(s.taskKey(k.Ref()), v)
}

func (s *Scope) taskKey(k KeyRef) string {
	if k.perHost && s.step.host != nil {
		return k.name + "@" + s.step.host.Name
	}
	return k.name
}

func (s *Scope) failWith(err error) {
	if s.err == nil {
		s.err = err
	}
}

func containsKey(refs []KeyRef, name string) bool {
	for _, r := range refs {
		if r.name == name {
			return true
		}
	}
	return false
}
