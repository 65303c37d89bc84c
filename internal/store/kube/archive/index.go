package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
)

// An index has a line for each file of a cluster that can be read.
type index struct {
	cluster string
	lines   []Line
	damaged diag.List
	changed bool // it differs from the saved index
}

func (i *index) indexOf(operation string) int {
	return slices.IndexFunc(i.lines, func(l Line) bool { return l.Operation.Name == operation })
}

// findLine returns the line of an operation, nil if there is none.
func (i *index) findLine(operation string) *Line {
	if at := i.indexOf(operation); at >= 0 {
		return &i.lines[at]
	}
	return nil
}

func (i *index) removeLine(operation string) {
	i.lines = slices.DeleteFunc(i.lines, func(l Line) bool { return l.Operation.Name == operation })
	i.changed = true
}

// setLine adds a line, or replaces the line of the same operation.
func (i *index) setLine(l Line) {
	i.removeLine(l.Operation.Name)
	i.lines = append(i.lines, l)
}

// readIndex returns the index of a cluster with these files. It drops lines without a file, and makes
// the missing lines from the files.
func (a *Archive) readIndex(ctx context.Context, cluster string, files []copies.File) (*index, error) {
	i := &index{cluster: cluster}
	name := a.namespace + "_" + cluster + indexSuffix
	if slices.ContainsFunc(files, func(f copies.File) bool { return f.Name == name }) {
		var text bytes.Buffer
		err := a.files.Fetch(ctx, name, newLimited(&text, bounded.Config))
		var over *bounded.LimitError
		if err != nil && !errors.As(err, &over) {
			return nil, unavailableError(ctx, err)
		}
		if i.lines, err = decodeIndex(text.Bytes()); err != nil {
			i.lines, i.changed = nil, true // it is made again
		}
	}
	saved := i.lines
	i.lines = nil
	for _, f := range files {
		of, operation, ok := a.parseName(f.Name)
		if !ok || of != cluster || operation == "" {
			continue
		}
		at := slices.IndexFunc(saved, func(l Line) bool { return l.Operation.Name == operation })
		if at >= 0 && saved[at].Bytes == f.Bytes && saved[at].Operation.Spec.ClusterRef.Name == cluster {
			i.lines = append(i.lines, saved[at])
			continue
		}
		h, err := a.readHeader(ctx, f.Name)
		var list diag.List
		switch {
		case errors.As(err, &list) && list[0].ID == idDamaged:
			i.damaged = append(i.damaged, list...)
			continue
		case err != nil:
			return nil, err
		}
		i.setLine(Line{Operation: shortenOperation(h.Operation), Events: h.Events, Bytes: f.Bytes})
	}
	i.changed = i.changed || len(i.lines) != len(saved)
	return i, nil
}

// writeIndex saves an index.
func (a *Archive) writeIndex(ctx context.Context, i *index) error {
	err := a.files.Put(ctx, a.namespace+"_"+i.cluster+indexSuffix, func(to io.Writer) error { return encodeIndex(to, i.lines) })
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
