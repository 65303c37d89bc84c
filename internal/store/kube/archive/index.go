package archive

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
)

// A Line is an operation in the index. It has what a list shows, without hosts, steps and failures.
type Line struct {
	Operation v1alpha1.Operation `json:"operation"`
	Events    int64              `json:"events"`
	Bytes     int64              `json:"bytes"` // the size of the file
	File      string             `json:"file"`
}

// compareAge sorts the newest operation first.
func compareAge(a, b Line) int {
	return cmp.Or(endOf(b).Compare(endOf(a)), cmp.Compare(b.Operation.Name, a.Operation.Name), cmp.Compare(b.Operation.UID, a.Operation.UID))
}

// compareFiles sorts the best file of one operation first. All processes have the same order.
func compareFiles(a, b Line) int {
	return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.File, b.File))
}

// A problem is a file whose header is damaged.
type problem struct {
	file string
	uid  types.UID
	diag.List
}

// An index has a line for each file of a cluster that can be read.
type index struct {
	cluster string
	lines   []Line
	damaged []problem
	changed bool // it differs from the saved index
}

// filesOf returns the lines of an operation.
func (i *index) filesOf(uid types.UID) (out []Line) {
	for _, l := range i.lines {
		if l.Operation.UID == uid {
			out = append(out, l)
		}
	}
	return out
}

// operations returns the best line of each operation.
func (i *index) operations() []Line {
	lines := slices.Clone(i.lines)
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Operation.UID, b.Operation.UID), compareFiles(a, b))
	})
	return slices.CompactFunc(lines, func(a, b Line) bool { return a.Operation.UID == b.Operation.UID })
}

// problems returns the problems of operations that have no other file.
func (i *index) problems() (out diag.List) {
	for _, p := range i.damaged {
		if len(i.filesOf(p.uid)) == 0 {
			out = append(out, p.List...)
		}
	}
	return out
}

// readIndex returns the index of a cluster with these files. It drops lines without a file, and makes
// the missing lines from the files.
func (a *Archive) readIndex(ctx context.Context, cluster string, files []copies.File) (*index, error) {
	i := &index{cluster: cluster}
	saved, exists, err := a.loadLines(ctx, cluster, files)
	if err != nil {
		return nil, err
	}
	var unknown []copies.File
	for _, f := range files {
		n, ok := a.parseName(f.Name)
		if !ok || n.cluster != cluster || n.operation == "" {
			continue
		}
		at := slices.IndexFunc(saved, func(l Line) bool { return l.File == f.Name && l.Bytes == f.Bytes && n.isOf(&l.Operation) })
		if at < 0 {
			unknown = append(unknown, f)
			continue
		}
		i.lines = append(i.lines, saved[at])
	}
	i.changed = len(i.lines) != len(saved) || exists && len(saved) == 0
	lines, damaged, err := a.readLines(ctx, unknown)
	i.lines, i.damaged, i.changed = append(i.lines, lines...), damaged, i.changed || len(lines) > 0
	return i, err
}

// loadLines returns the lines of the saved index, and whether there is one. A damaged index has no lines:
// it is made again.
func (a *Archive) loadLines(ctx context.Context, cluster string, files []copies.File) (lines []Line, exists bool, err error) {
	file := a.indexOf(cluster)
	if !slices.ContainsFunc(files, func(f copies.File) bool { return f.Name == file }) {
		return nil, false, nil
	}
	var text bytes.Buffer
	err = a.files.Fetch(ctx, file, newLimited(&text, bounded.Config))
	var over *bounded.LimitError
	if err != nil && !errors.As(err, &over) {
		return nil, false, unavailableError(ctx, err)
	}
	if lines, err = decodeIndex(text.Bytes()); err != nil {
		return nil, true, nil //nolint:nilerr // see above
	}
	return lines, true, nil
}

// readLines makes lines from the headers of files.
func (a *Archive) readLines(ctx context.Context, files []copies.File) (lines []Line, damaged []problem, err error) {
	for _, f := range files {
		h, err := a.readHeader(ctx, f.Name)
		var list diag.List
		switch {
		case isDamaged(err) && errors.As(err, &list):
			n, _ := a.parseName(f.Name)
			damaged = append(damaged, problem{f.Name, n.uid, list})
		case err != nil:
			return nil, nil, err
		default:
			lines = append(lines, Line{Operation: shortenOperation(h.Operation), Events: h.Events, Bytes: f.Bytes, File: f.Name})
		}
	}
	return lines, damaged, nil
}

// writeIndex saves an index, or removes an empty one.
func (a *Archive) writeIndex(ctx context.Context, i *index) error {
	var err error
	if file := a.indexOf(i.cluster); len(i.lines) == 0 {
		err = a.files.Remove(ctx, file)
	} else {
		err = a.files.Put(ctx, file, func(to io.Writer) error { return encodeIndex(to, i.lines) })
	}
	if err != nil {
		return unavailableError(ctx, err)
	}
	i.changed = false
	return nil
}

func encodeIndex(to io.Writer, lines []Line) error {
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(z)
	for _, l := range lines {
		err = errors.Join(err, encoder.Encode(l))
	}
	return errors.Join(err, z.Close())
}

func decodeIndex(text []byte) (lines []Line, err error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(bounded.Config))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if text, err = z.DecodeAll(text, nil); err != nil {
		return nil, err
	}
	for row := range bytes.Lines(text) {
		var l Line
		if err := json.Unmarshal(row, &l); err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// shortenOperation returns an operation with the parts that a list shows.
func shortenOperation(o v1alpha1.Operation) v1alpha1.Operation {
	s := o.Status
	o.ManagedFields, o.ResourceVersion = nil, ""
	o.Status = v1alpha1.OperationStatus{
		State: s.State, Reason: s.Reason, Message: s.Message, ErrorCode: s.ErrorCode, Plan: s.Plan,
		Attempt: s.Attempt, StartTime: s.StartTime, EndTime: s.EndTime,
	}
	return o
}
