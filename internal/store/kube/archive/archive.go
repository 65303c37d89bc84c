// Package archive keeps finished operations outside of an API, as files in a directory or in S3
// storage. Each namespace has these files:
//
//	NAMESPACE_CLUSTER_OPERATION.operation.zst  an operation with its plan and all its events
//	NAMESPACE_CLUSTER_index.zst                the operations of a cluster, for lists: one a line
//
// The file of an operation never changes. The index is made from these files: if a crash or another
// writer has left an index that does not fit to them, the next write or list repairs it.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

// Files are the files of an archive. Directory implements it, and copies.Target for S3 storage.
type Files interface {
	// List returns the files whose names have a prefix, and incomplete files of them. The name
	// of an incomplete file is a dot, followed by the name of the file.
	List(ctx context.Context, prefix string) ([]copies.File, error)
	// Fetch writes a file's content.
	Fetch(ctx context.Context, name string, to io.Writer) error
	// Put writes a file atomically and durably. It replaces an existing one.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Remove removes a file. A missing file is not an error.
	Remove(ctx context.Context, name string) error
}

// An Archive has the finished operations of one namespace. All methods may be called from several
// goroutines and processes at the same time. An error for files that cannot be reached or written
// is a diagnostic.
type Archive struct {
	files     Files
	namespace string
}

// New returns the archive of a namespace.
func New(files Files, namespace string) (*Archive, error) {
	if err := records.CheckName(namespace); err != nil {
		return nil, fmt.Errorf("opening the archive: namespace %w", err)
	}
	return &Archive{files, namespace}, nil
}

const (
	fileSuffix  = ".operation.zst"
	indexSuffix = "_index.zst"
)

func (a *Archive) prefixOf(cluster string) string { return a.namespace + "_" + cluster + "_" }

// fileName returns the name of the file of an operation. Names come from an API and from users, so
// they are checked here.
func (a *Archive) fileName(cluster, operation string) (string, error) {
	if err := errors.Join(records.CheckName(cluster), records.CheckName(operation)); err != nil {
		return "", fmt.Errorf("naming a file of the archive: %w", err)
	}
	return a.prefixOf(cluster) + operation + fileSuffix, nil
}

// parseName returns the cluster and the operation of a file. The operation is "" for an index. No
// name of a cluster or an operation has an underscore or a dot.
func (a *Archive) parseName(file string) (cluster, operation string, ok bool) {
	rest, ok := strings.CutPrefix(file, a.namespace+"_")
	if !ok {
		return "", "", false
	}
	if cluster, ok = strings.CutSuffix(rest, indexSuffix); ok {
		return cluster, "", records.CheckName(cluster) == nil
	}
	if rest, ok = strings.CutSuffix(rest, fileSuffix); !ok {
		return "", "", false
	}
	cluster, operation, _ = strings.Cut(rest, "_")
	return cluster, operation, records.CheckName(cluster) == nil && records.CheckName(operation) == nil
}

// listFiles returns the files of a cluster, or of all clusters if it is "".
func (a *Archive) listFiles(ctx context.Context, cluster string) ([]copies.File, error) {
	prefix := a.namespace + "_"
	if cluster != "" {
		if err := records.CheckName(cluster); err != nil {
			return nil, fmt.Errorf("listing the archive: %w", err)
		}
		prefix = a.prefixOf(cluster)
	}
	files, err := a.files.List(ctx, prefix)
	if err != nil {
		return nil, unavailableError(ctx, err)
	}
	return files, nil
}

// A Line is an operation in the index. It has what a list shows, without hosts, steps and failures.
type Line struct {
	Operation v1alpha1.Operation `json:"operation"`
	Events    int64              `json:"events"`
	Bytes     int64              `json:"bytes"` // the size of the file
}

// List returns the operations of a cluster, or of all clusters if it is "", and the problems of
// files that cannot be read.
func (a *Archive) List(ctx context.Context, cluster string) (lines []Line, damaged diag.List, err error) {
	files, err := a.listFiles(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	of := map[string][]copies.File{}
	for _, f := range files {
		if name, _, ok := a.parseName(f.Name); ok {
			of[name] = append(of[name], f)
		}
	}
	for name, files := range of {
		i, err := a.readIndex(ctx, name, files)
		if err != nil {
			return nil, nil, err
		}
		if i.changed {
			_ = a.writeIndex(ctx, i) // the next list repairs it
		}
		lines, damaged = append(lines, i.lines...), append(damaged, i.damaged...)
	}
	return lines, damaged, nil
}

// Find returns the ids of the archived operations that begin with prefix.
func (a *Archive) Find(ctx context.Context, prefix string) (ids []string, err error) {
	files, err := a.listFiles(ctx, "")
	for _, f := range files {
		if _, id, ok := a.parseName(f.Name); ok && id != "" && strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// fileOf returns the name of the file of an operation, or records.ErrNotFound.
func (a *Archive) fileOf(ctx context.Context, id string) (string, error) {
	files, err := a.listFiles(ctx, "")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if _, is, ok := a.parseName(f.Name); ok && is == id && id != "" {
			return f.Name, nil
		}
	}
	return "", fmt.Errorf("operation %s in the archive: %w", id, records.ErrNotFound)
}

// Load returns an operation and its plan, which is nil if there was none, or records.ErrNotFound.
func (a *Archive) Load(ctx context.Context, id string) (*v1alpha1.Operation, *plan.Plan, error) {
	name, err := a.fileOf(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	h, err := a.readHeader(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return &h.Operation, h.Plan, nil
}

// ReadEvents calls fn for each event of an operation, in order, and stops at the first error of fn.
// It returns records.ErrNotFound if the operation is not in the archive.
func (a *Archive) ReadEvents(ctx context.Context, id string, fn func(event.Event) error) error {
	name, err := a.fileOf(ctx, id)
	if err != nil {
		return err
	}
	return a.readFile(ctx, name, func(r *reader) error { return r.readEvents(fn) })
}

// Put saves an operation, then its line in the index. If the archive has the same operation with as many
// events or more, Put keeps that file: a caller whose journal is shortened already must not replace it.
func (a *Archive) Put(ctx context.Context, r Record) error {
	o := r.Operation
	name, err := a.fileName(o.Spec.ClusterRef.Name, o.Name)
	if err != nil {
		return err
	}
	head, err := r.encodeHeader()
	if err != nil {
		return fmt.Errorf("archiving operation %s: %w", o.Name, err)
	}
	files, err := a.listFiles(ctx, o.Spec.ClusterRef.Name)
	if err != nil {
		return err
	}
	i, err := a.readIndex(ctx, o.Spec.ClusterRef.Name, files)
	if err != nil {
		return err
	}
	if is := i.findLine(o.Name); is == nil || is.Operation.UID != o.UID || is.Events < head.events {
		var written counter
		err := a.files.Put(ctx, name, func(to io.Writer) error {
			written = counter{to: to}
			return r.write(&written, head)
		})
		if err != nil {
			return unavailableError(ctx, err)
		}
		i.setLine(Line{Operation: shortenOperation(*o), Events: head.events, Bytes: written.bytes})
	}
	if !i.changed {
		return nil
	}
	return a.writeIndex(ctx, i)
}

// Limits are the limits for the operations of a cluster. Zero means no limit.
type Limits struct {
	Operations int
	Age        time.Duration
	Bytes      int64
}

// leftoverTime is the age from which an incomplete file has no writer.
const leftoverTime = 24 * time.Hour

// Prune removes the oldest operations of a cluster that exceed a limit, and incomplete files that a
// crash has left.
func (a *Archive) Prune(ctx context.Context, cluster string, l Limits, now time.Time) error {
	files, err := a.listFiles(ctx, cluster)
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name, "."+a.prefixOf(cluster)) && !f.Modified.IsZero() && now.Sub(f.Modified) > leftoverTime {
			if err := a.files.Remove(ctx, f.Name); err != nil {
				return unavailableError(ctx, err)
			}
		}
	}
	i, err := a.readIndex(ctx, cluster, files)
	if err != nil {
		return err
	}
	slices.SortFunc(i.lines, func(a, b Line) int {
		return cmp.Or(endOf(b).Compare(endOf(a)), cmp.Compare(b.Operation.Name, a.Operation.Name))
	})
	kept, size := 0, int64(0)
	for ; kept < len(i.lines); kept++ {
		line := i.lines[kept]
		size += line.Bytes
		if l.Operations > 0 && kept >= l.Operations || l.Bytes > 0 && size > l.Bytes || l.Age > 0 && now.Sub(endOf(line)) > l.Age {
			break
		}
	}
	for len(i.lines) > kept {
		last := i.lines[len(i.lines)-1].Operation.Name
		name, err := a.fileName(cluster, last)
		if err != nil {
			return err
		}
		if err := a.files.Remove(ctx, name); err != nil {
			return unavailableError(ctx, err)
		}
		i.removeLine(last)
	}
	if !i.changed {
		return nil
	}
	return a.writeIndex(ctx, i)
}

// endOf returns the time from which the age of an operation counts.
func endOf(l Line) time.Time {
	if end := l.Operation.Status.EndTime; end != nil {
		return end.Time
	}
	return l.Operation.CreationTimestamp.Time
}

// A counter counts the bytes that it passes on.
type counter struct {
	to    io.Writer
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes += int64(n)
	return n, err
}
