package recordstest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"slipway.dev/slipway/internal/records"
)

type locks struct{ *Process }

// A lock is a cluster's lock that a process holds or held.
type lock struct {
	p      *Process
	name   string
	holder records.Holder // guarded by p.m.mu
	lost   chan struct{}
}

// Lose takes a cluster's lock from the process that has it, as if its time was over.
func (m *Memory) Lose(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.locks[cluster]; l != nil {
		delete(m.locks, cluster)
		close(l.lost)
		m.announce()
	}
}

func (p locks) Acquire(ctx context.Context, name string, who records.Holder) (records.Lock, error) {
	l := &lock{p: p.Process, name: name, holder: who.WithDefaults(), lost: make(chan struct{})}
	err := p.useFor(ctx, func(m *Memory) error {
		if other := m.locks[name]; other != nil {
			return &records.HeldError{Cluster: name, Holder: other.holder}
		}
		m.locks[name] = l
		m.announce()
		return nil
	}, name)
	if err != nil {
		return nil, fmt.Errorf("locking cluster %q: %w", name, err)
	}
	return l, nil
}

func (p locks) Holder(ctx context.Context, name string) (holder *records.Holder, err error) {
	err = p.useFor(ctx, func(m *Memory) error { holder = m.holder(name); return nil }, name)
	return holder, err
}

// holder returns a copy of the holder of a cluster's lock, nil if it is free.
func (m *Memory) holder(cluster string) *records.Holder {
	l := m.locks[cluster]
	if l == nil {
		return nil
	}
	holder := l.holder
	return &holder
}

// useHeld calls f while no other method uses the memory, if the lock is still held.
func (l *lock) useHeld(f func(m *Memory)) error {
	return l.p.use(func(m *Memory) error {
		if m.locks[l.name] != l {
			return fmt.Errorf("the lock of cluster %s is not held: %w", l.name, records.ErrLost)
		}
		f(m)
		m.announce()
		return nil
	})
}

func (l *lock) SetHolder(ctx context.Context, who records.Holder) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return l.useHeld(func(*Memory) { l.holder = who.WithDefaults() })
}

func (l *lock) Holder() records.Holder {
	l.p.m.mu.Lock()
	defer l.p.m.mu.Unlock()
	return l.holder
}

// Check returns records.ErrLost after Lose.
func (l *lock) Check(context.Context) error { return l.useHeld(func(*Memory) {}) }

// ID implements records.Lock.
func (l *lock) ID() string { return "" }

// NotifyLost returns a channel that Lose closes.
func (l *lock) NotifyLost() <-chan struct{} { return l.lost }

// Release does nothing if the lock is lost.
func (l *lock) Release() error {
	err := l.useHeld(func(m *Memory) { delete(m.locks, l.name) })
	if errors.Is(err, records.ErrLost) {
		return nil
	}
	return err
}

const holds = "holds"

func (p locks) BeginHold(ctx context.Context, name string) (process string, err error) {
	err = p.useFor(ctx, func(m *Memory) error {
		all, err := m.unreleased(name)
		if err != nil {
			return err
		}
		process = randomHex(16)
		return m.encode(clusterKey(name, holds), append(all, process))
	}, name)
	return process, err
}

func (p locks) EndHold(ctx context.Context, name string, processes ...string) error {
	return p.useFor(ctx, func(m *Memory) error {
		all, err := m.unreleased(name)
		if err != nil {
			return err
		}
		return m.encode(clusterKey(name, holds), slices.DeleteFunc(all, func(process string) bool {
			return len(processes) == 0 || slices.Contains(processes, process)
		}))
	}, name)
}

func (p locks) ListUnreleased(ctx context.Context, name string) (processes []string, err error) {
	err = p.useFor(ctx, func(m *Memory) error { processes, err = m.unreleased(name); return err }, name)
	return processes, err
}

func (m *Memory) unreleased(cluster string) (processes []string, err error) {
	err = ignoreMissing(m.decode(clusterKey(cluster, holds), &processes))
	return processes, err
}
