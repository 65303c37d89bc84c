//go:build linux

package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/node/atomicfile"
)

// Dir is the ledger's directory below the state directory.
const Dir = "ledger"

// Marker is a file below the state directory that never exists without a ledger: if it
// exists alone, the ledger is lost.
const Marker = "changed"

// A Kind is the kind of an entry's subject.
type Kind string

// The kinds. Ledgers on hosts contain them, so they never change. Data of all kinds
// except KindPath belongs to the caller of SaveEntry.
const (
	KindPath     Kind = "path"
	KindGlob     Kind = "glob"
	KindBlock    Kind = "block"
	KindSysctl   Kind = "sysctl"
	KindUnit     Kind = "unit"
	KindHostname Kind = "hostname"
	KindSwap     Kind = "swap"
	KindUser     Kind = "user"
)

// An Owner is the owner of the changes on the host.
type Owner struct {
	Cluster   string `json:"cluster,omitempty"`
	Operation string `json:"operation,omitempty"`
	Step      string `json:"step,omitempty"`
}

// An Entry is the state of one thing before Slipway's first change.
type Entry struct {
	Seq  int             `json:"seq"` // order of first change, from 1
	Kind Kind            `json:"kind"`
	Key  string          `json:"key"` // a path, unit, sysctl…
	By   Owner           `json:"by"`
	Data json.RawMessage `json:"data"`

	// Wrote lists the states that Slipway gave a path, oldest first, the intended one
	// last: a crash may have come before that one.
	Wrote []string `json:"-"`
	// Exclusive reports whether a directory that Slipway created is removed with its
	// content.
	Exclusive bool `json:"-"`
}

// DecodeData decodes the data of the entry.
func (e *Entry) DecodeData(data any) error {
	if err := json.Unmarshal(e.Data, data); err != nil {
		return fmt.Errorf("reading ledger entry %d (%s %s): %w", e.Seq, e.Kind, e.Key, err)
	}
	return nil
}

// plainEntry is an entry whose key would change in JSON if it is not UTF-8.
type plainEntry Entry

type exactEntry struct {
	*plainEntry
	Key exact.Text `json:"key"`
}

// MarshalJSON keeps a key with arbitrary bytes, as in file names.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(exactEntry{(*plainEntry)(&e), exact.Text(e.Key)})
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (e *Entry) UnmarshalJSON(raw []byte) error {
	x := exactEntry{plainEntry: (*plainEntry)(e)}
	err := json.Unmarshal(raw, &x)
	e.Key = string(x.Key)
	return err
}

// line is one line of the log: exactly one of its fields is set.
type line struct {
	Entry *Entry `json:"entry,omitempty"`
	Wrote *wrote `json:"wrote,omitempty"`
	Ended *ended `json:"ended,omitempty"`
}

// ended names an entry whose subject no longer belongs to Slipway.
type ended struct {
	Kind Kind       `json:"kind"`
	Key  exact.Text `json:"key"`
}

type wrote struct {
	Path      exact.Text `json:"path"`
	State     exact.Text `json:"state,omitempty"`
	Exclusive bool       `json:"exclusive,omitempty"`
}

// A Ledger is an append-only log of entries, each synced before its change, with the
// content of files next to it. Only one process can use it at a time.
type Ledger struct {
	dir    string
	marker string
	marked bool   // the marker exists
	root   string // prefix of paths on disk: "/" except in tests
	disk   atomicfile.Disk
	by     Owner
	size   int64 // number of bytes in complete lines of the log
	seq    int   // of the newest entry, ended or not
	order  []*Entry
	index  map[string]*Entry
}

// Open reads the ledger below the state directory. It creates nothing: a host without a
// ledger has an empty one until something is saved. A ledger that is damaged, or missing
// on a changed host, is an error: a new ledger would treat Slipway's changes as the
// original state.
func Open(state, root string, disk atomicfile.Disk, by Owner) (*Ledger, error) {
	l := &Ledger{
		dir: filepath.Join(state, Dir), marker: filepath.Join(state, Marker),
		root: root, disk: disk, by: by, index: map[string]*Entry{},
	}
	l.marked = pathExists(l.marker)
	raw, err := atomicfile.ReadFile(l.logPath(), bounded.Record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	// A line without its end was interrupted by a crash before it was synced; no change
	// relied on it.
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	l.size = int64(len(whole))
	// Check again: a concurrent restore may just have removed both.
	if l.marked && l.size == 0 && pathExists(l.marker) {
		return nil, lostError("%s shows that this host was changed, but the ledger %s is %s", l.marker, l.logPath(), emptyOr(err))
	}
	n := 0
	for text := range bytes.Lines(whole) {
		n++
		if err := l.parseLine(text); err != nil {
			return nil, lostError("line %d of the ledger %s is damaged: %v", n, l.logPath(), err)
		}
	}
	return l, nil
}

func (l *Ledger) logPath() string { return filepath.Join(l.dir, "log") }

// IsEmpty reports whether nothing was saved.
func (l *Ledger) IsEmpty() bool { return len(l.order) == 0 }

// ClusterName returns the cluster for which the host was last changed.
func (l *Ledger) ClusterName() string {
	for _, e := range slices.Backward(l.order) {
		if e.By.Cluster != "" {
			return e.By.Cluster
		}
	}
	return ""
}

// NewestEntries returns all entries, the latest first.
func (l *Ledger) NewestEntries() []*Entry {
	out := slices.Clone(l.order)
	slices.Reverse(out)
	return out
}

// FindEntry returns the entry with that kind and key, or nil.
func (l *Ledger) FindEntry(kind Kind, key string) *Entry { return l.index[string(kind)+" "+key] }

// SaveEntry records the state of something before its first change; later calls for the same
// thing do nothing. When it returns, the entry is on disk.
func (l *Ledger) SaveEntry(kind Kind, key string, data any) error {
	if l.FindEntry(kind, key) != nil {
		return nil
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encoding a ledger entry for %s: %w", key, err)
	}
	return l.appendLine(line{Entry: &Entry{Seq: l.nextNumber(), Kind: kind, Key: key, By: l.by, Data: raw}})
}

func (l *Ledger) nextNumber() int { return l.seq + 1 }

// EndEntry records that the subject of an entry is in its original state again, or belongs to
// other software. A later change by Slipway begins with a new entry.
func (l *Ledger) EndEntry(e *Entry) error {
	return l.appendLine(line{Ended: &ended{Kind: e.Kind, Key: exact.Text(e.Key)}})
}

// RecordIntent records the future state of a path. The path must have been saved.
func (l *Ledger) RecordIntent(path, state string) error {
	e := l.FindEntry(KindPath, path)
	if e == nil {
		return fmt.Errorf("changing %s: it has no entry in the ledger", path)
	}
	if n := len(e.Wrote); n > 0 && e.Wrote[n-1] == state {
		return nil
	}
	return l.appendLine(line{Wrote: &wrote{Path: exact.Text(path), State: exact.Text(state)}})
}

// appendLine syncs one line to disk, then applies it in memory.
func (l *Ledger) appendLine(ln line) error {
	raw, err := json.Marshal(ln)
	if err != nil {
		return fmt.Errorf("encoding a ledger line: %w", err)
	}
	if err := l.disk.MkdirAll(l.dir, atomicfile.Meta{Mode: 0o700}); err != nil {
		return fmt.Errorf("creating the ledger: %w", err)
	}
	if err := l.writeLine(append(raw, '\n')); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	l.applyLine(ln)
	if err := l.writeMarker(); err != nil {
		return fmt.Errorf("marking the host as changed: %w", err)
	}
	l.disk.RunAfter("ledger " + strconv.Itoa(len(l.order)))
	return nil
}

// writeMarker syncs the marker to disk. It is created after the first line and before the change
// of that line, so it never exists without a reason.
func (l *Ledger) writeMarker() error {
	if l.marked {
		return nil
	}
	if err := l.disk.ReplaceFile(l.marker, strings.NewReader(l.by.Cluster+"\n"), atomicfile.Meta{Mode: 0o600}); err != nil {
		return err
	}
	l.marked = true
	return nil
}

func (l *Ledger) writeLine(raw []byte) error {
	f, err := os.OpenFile(l.logPath(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// The line overwrites an incomplete line from a crash; the rest of that must be
	// removed as well.
	if err := f.Truncate(l.size); err != nil {
		return err
	}
	if _, err := f.WriteAt(raw, l.size); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if l.size == 0 {
		if err := fsync.SyncDir(l.dir); err != nil {
			return err
		}
	}
	l.size += int64(len(raw))
	return nil
}

func (l *Ledger) applyLine(ln line) {
	if e := ln.Entry; e != nil {
		l.order = append(l.order, e)
		l.index[string(e.Kind)+" "+e.Key] = e
		l.seq = e.Seq
	}
	if n := ln.Ended; n != nil {
		e := l.FindEntry(n.Kind, string(n.Key))
		l.order = slices.DeleteFunc(l.order, func(o *Entry) bool { return o == e })
		delete(l.index, string(n.Kind)+" "+string(n.Key))
	}
	if w := ln.Wrote; w != nil {
		e := l.FindEntry(KindPath, string(w.Path))
		if w.State != "" {
			e.Wrote = append(e.Wrote, string(w.State))
		}
		e.Exclusive = e.Exclusive || w.Exclusive
	}
}

// RemoveLedger removes the ledger after everything was restored.
func (l *Ledger) RemoveLedger() error {
	// The marker first: no crash may leave it without the ledger.
	if err := l.disk.RemovePath(l.marker); err != nil {
		return fmt.Errorf("removing the ledger: %w", err)
	}
	gone := l.dir + ".restored"
	// One rename removes the ledger; the rest of the directory has no meaning.
	if err := os.Rename(l.dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the ledger: %w", err)
	}
	l.disk.RunAfter("ledger ended")
	if err := l.disk.RemoveAll(gone); err != nil {
		return fmt.Errorf("removing the ledger: %w", err)
	}
	l.marked, l.order, l.index, l.size, l.seq = false, nil, map[string]*Entry{}, 0, 0
	return nil
}
