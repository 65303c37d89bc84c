// Package recordstest is for tests of code that uses records. It keeps records in memory, and it
// makes writes of any backend fail. It links into no program.
package recordstest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/records"
)

// ErrKilled is the error of each method after a process was killed.
var ErrKilled = errors.New("the process was killed")

// idDamaged reports a saved value that cannot be read.
const idDamaged = "record-damaged"

// A Memory has the records that processes share. It is stricter than files: a context that has
// ended is an error, and other processes see events only when they are durable.
type Memory struct {
	t       testing.TB
	id      string // of the manager
	base    string // for files in private directories
	backups string // a directory
	temp    string // a directory

	mu       sync.Mutex
	changed  chan struct{}     // closed and replaced at each change
	values   map[string][]byte // encoded, by a key such as clusters/prod/spec
	journals map[string][]byte // lines, by the id of the operation
	locks    map[string]*lock  // by the name of the cluster
}

// NewMemory returns a memory without records. Its directories are removed when the test ends.
func NewMemory(t testing.TB) *Memory {
	return &Memory{
		t: t, id: randomHex(16), base: t.TempDir(), backups: t.TempDir(), temp: t.TempDir(),
		changed: make(chan struct{}), values: map[string][]byte{}, journals: map[string][]byte{}, locks: map[string]*lock{},
	}
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}

// Open returns the records as another process sees them.
func (m *Memory) Open() *Process { return &Process{m: m} }

// Tear adds bytes to the journal of an operation, as a crash can leave them.
func (m *Memory) Tear(operation, bytes string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.journals[operation] = append(m.journals[operation], bytes...)
}

// Damage makes a saved operation unreadable.
func (m *Memory) Damage(operation string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[operationKey(operation, "operation")] = []byte("{")
}

// The methods of a Memory below are called while its mutex is held.

// set saves a value. Without a value it removes the saved one.
func (m *Memory) set(key string, value []byte) {
	if len(value) > 0 {
		m.values[key] = slices.Clone(value)
	} else {
		delete(m.values, key)
	}
	m.announce()
}

// announce wakes all waiting methods.
func (m *Memory) announce() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// get returns a copy of a value, or ErrNotFound.
func (m *Memory) get(key string) ([]byte, error) {
	value, ok := m.values[key]
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, records.ErrNotFound)
	}
	return slices.Clone(value), nil
}

func (m *Memory) encode(key string, v any) error {
	value, err := json.Marshal(v)
	if err == nil {
		m.set(key, value)
	}
	return err
}

func (m *Memory) decode(key string, v any) error {
	value, err := m.get(key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(value, v); err != nil {
		return damaged(key, err)
	}
	return nil
}

// keys returns the middle parts of the keys that begin and end like this, sorted.
func (m *Memory) keys(begin, end string) []string {
	var out []string
	for key := range maps.Keys(m.values) {
		rest, begins := strings.CutPrefix(key, begin)
		if middle, ends := strings.CutSuffix(rest, end); begins && ends {
			out = append(out, middle)
		}
	}
	slices.Sort(out)
	return out
}

func damaged(what string, err error) error {
	return diag.Refuse(idDamaged, fmt.Sprintf("%s is damaged: %v", what, err), "restore it from a backup")
}

func clusterKey(cluster, value string) string { return "clusters/" + cluster + "/" + value }

func operationKey(id, value string) string { return "operations/" + id + "/" + value }

// A Process is the records as one process sees them.
type Process struct {
	m      *Memory
	killed bool // guarded by m.mu
}

var _ records.Backend = (*Process)(nil)

// Kill ends the process as SIGKILL does: its locks are free, its events that are not durable are
// lost, and each of its later calls fails.
func (p *Process) Kill() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.killed = true
	maps.DeleteFunc(p.m.locks, func(_ string, l *lock) bool { return l.p == p })
	p.m.announce()
}

// use calls f while no other method uses the memory.
func (p *Process) use(f func(m *Memory) error) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.killed {
		return ErrKilled
	}
	return f(p.m)
}

// useFor is use for a method with a context, and with names of clusters or operations.
func (p *Process) useFor(ctx context.Context, f func(m *Memory) error, names ...string) error {
	for _, name := range names {
		if err := records.CheckName(name); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.use(f)
}

// Clusters returns the specs, their cluster files and the latest status.
func (p *Process) Clusters() records.Clusters { return clusters{p} }

// ClusterFiles returns the generated passwords and keys of clusters.
func (p *Process) ClusterFiles() records.ClusterFiles { return clusterFiles{p} }

// Kubeconfigs returns the admin kubeconfigs.
func (p *Process) Kubeconfigs() records.Kubeconfigs { return kubeconfigs{p} }

// Locks returns the locks of clusters.
func (p *Process) Locks() records.Locks { return locks{p} }

// Operations returns the operations and their plans.
func (p *Process) Operations() records.Operations { return operations{p} }

// Journals returns the events of operations.
func (p *Process) Journals() records.Journals { return journals{p} }

// Backups returns the backup sets and the keys that sign them.
func (p *Process) Backups() records.Backups { return backups{p} }

// ManagerID returns the id of this manager.
func (p *Process) ManagerID(ctx context.Context) (string, error) {
	return p.m.id, p.useFor(ctx, func(*Memory) error { return nil })
}
