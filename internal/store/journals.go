package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/sharedsync"
)

// journals is the store of the events of operations.
type journals struct{ *directory }

// followInterval is how often FollowEvents checks for new events.
const followInterval = 100 * time.Millisecond

// A journalFile is the journal of one operation: events as JSON lines.
type journalFile struct {
	f      *os.File
	seq    int64
	writer *sharedsync.Writer
	sync   func(*os.File) error // (*os.File).Sync
}

// Open opens the journal of an operation for appending. It first removes an incomplete
// last line, which a crash may have left. The caller holds the cluster's lock.
func (s journals) Open(_ context.Context, id string) (records.Journal, error) {
	if err := records.CheckName(id); err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	path := s.operationPath(id, "journal.jsonl")
	f, err := s.openOwn(path)
	if err != nil {
		return nil, fmt.Errorf("opening the journal of operation %s: %w", id, err)
	}
	j := &journalFile{f: f, sync: (*os.File).Sync}
	j.writer = sharedsync.New(func() func() error {
		f := j.f
		return func() error { return j.sync(f) }
	}, func(err error) error { return fmt.Errorf("writing the journal: %w", addWriteHint(j.f.Name(), err)) })
	end, err := scanEvents(f, path, func(e event.Event) error { j.seq = max(j.seq, e.Seq); return nil })
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err == nil {
		err = errors.Join(f.Sync(), s.syncDir(filepath.Dir(path)))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the journal of operation %s: %w", id, err), f.Close())
	}
	return j, nil
}

// LastSeq returns the highest event number in the journal, 0 if it is empty.
func (j *journalFile) LastSeq() (seq int64) {
	j.writer.CallLocked(func() { seq = j.seq })
	return seq
}

// Append adds an event, without waiting for the disk. An event without a number gets the next
// one. Other processes see it immediately, and it survives the end of this process. Sync makes
// it survive a power failure; without Sync, this takes at most sharedsync.Delay. After an error every
// further Append fails: a journal with a gap is worse than a short one.
func (j *journalFile) Append(e event.Event) error {
	return j.writer.Add(func() error {
		if e.Seq == 0 {
			e.Seq = j.seq + 1
		}
		line, err := json.Marshal(e)
		if err == nil {
			_, err = j.f.Write(append(line, '\n'))
		}
		if err == nil {
			j.seq = max(j.seq, e.Seq)
		}
		return err
	})
}

// Sync returns when all events that were appended before are on disk. Callers at the same time
// share one sync of the file.
func (j *journalFile) Sync() error { return j.writer.Sync() }

// Close syncs and closes the journal. It does not repeat an error that Append or Sync has
// returned.
func (j *journalFile) Close() error { return errors.Join(j.writer.Close(), j.f.Close()) }

// ReadEvents calls fn for each event of an operation, in order, and stops at the
// first error of fn. A torn last line is not an event. An operation that has
// not begun has none.
func (s journals) ReadEvents(ctx context.Context, id string, fn func(event.Event) error) error {
	f, err := s.openExisting(ctx, id)
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	if _, err = scanEvents(f, f.Name(), fn); err != nil {
		return fmt.Errorf("reading the journal of operation %s: %w", id, err)
	}
	return nil
}

// openExisting returns nil if there is no journal yet.
func (s journals) openExisting(ctx context.Context, id string) (*os.File, error) {
	_, err := operations(s).Load(ctx, id)
	if err != nil {
		return nil, err
	}
	f, err := s.openFile(s.operationPath(id, "journal.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal of operation %s: %w", id, err)
	}
	return f, nil
}

// FollowEvents is ReadEvents that continues with new events until the operation has finished (nil),
// its process no longer runs (ErrNoEnd), or ctx is done.
func (s journals) FollowEvents(ctx context.Context, id string, fn func(event.Event) error) error {
	o, err := operations(s).Load(ctx, id)
	if err != nil {
		return err
	}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	var (
		f        *os.File
		offset   int64
		finished bool
		orphaned int
	)
	defer func() { _ = f.Close() }()
	for {
		if f == nil {
			if f, err = s.openExisting(ctx, id); err != nil {
				return err
			}
		}
		// The holder is asked before the journal is read to its end, so
		// that nothing it wrote last is missed.
		h, err := locks(s).Holder(ctx, o.Spec.ClusterRef.Name)
		if err != nil {
			return err
		}
		n, err := scanFrom(f, offset, func(e event.Event) error {
			finished = e.Type == event.OperationFinished
			return fn(e)
		})
		if err != nil {
			return fmt.Errorf("following operation %s: %w", id, err)
		}
		if finished {
			return nil
		}
		if offset += n; n > 0 || (h != nil && (h.Operation == id || h.Operation == "")) {
			orphaned = 0
		} else if orphaned++; orphaned > 1 {
			return fmt.Errorf("following operation %s: %w", id, records.ErrNoEnd)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// scanFrom scans from offset and returns the number of bytes of complete events. A nil
// file has none.
func scanFrom(f *os.File, offset int64, fn func(event.Event) error) (int64, error) {
	if f == nil {
		return 0, nil
	}
	return scanEvents(io.NewSectionReader(f, offset, 1<<62-offset), f.Name(), fn)
}

// scanEvents calls fn for each event and returns the offset at which the last one ends. Invalid
// bytes after it are left by a crash. Invalid bytes before it mean that the file is
// damaged.
func scanEvents(r io.Reader, file string, fn func(event.Event) error) (int64, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	var end, pos int64
	var broken error
	for n := 1; ; n++ {
		line, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		pos += int64(len(line))
		var e event.Event
		if err := json.Unmarshal(bytes.TrimRight(line, "\n"), &e); err != nil {
			if broken == nil {
				broken = damagedFileError(file, fmt.Errorf("line %d: %w", n, err))
			}
			continue
		}
		if broken != nil {
			return end, broken
		}
		if err := fn(e); err != nil {
			return end, err
		}
		end = pos
	}
}
