// Package archive keeps finished operations outside of an API, as files in a directory or in S3
// storage. Each namespace has these files:
//
//	NAMESPACE_CLUSTER_OPERATION_UID_WRITE.zst  an operation with its plan and all its events
//	NAMESPACE_CLUSTER_index.zst                the operations of a cluster, for lists: one a line
//
// The UID distinguishes operations of the same name. Each write has a new name, so that no writer
// replaces or removes the file of another one. If several files have the same operation, readers use one
// that is complete, and Prune removes the others later.
//
// The file of an operation never changes. The index is made from these files: if a crash or another
// writer has left an index that does not fit to them, the next write or list repairs it.
package archive

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

// Files are the files of an archive. Directory implements it, and copies.Objects for S3 storage. Each
// method returns when its context ends.
type Files interface {
	// List returns the files whose names have a prefix, and incomplete files of them. The name
	// of an incomplete file is a dot, followed by the name of the file.
	List(ctx context.Context, prefix string) ([]copies.File, error)
	// Fetch writes a file's content.
	Fetch(ctx context.Context, name string, to io.Writer) error
	// Put writes a file atomically and durably. It replaces an existing one. It never removes a
	// file that exists: another process may have verified it.
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

// Ping returns an error if the archive cannot be listed.
func (a *Archive) Ping(ctx context.Context) error {
	_, err := a.listFiles(ctx, "")
	return err
}

// List returns the operations of a cluster, or of all clusters if it is "", and the problems of
// operations that cannot be read.
func (a *Archive) List(ctx context.Context, cluster string) (lines []Line, damaged diag.List, err error) {
	files, err := a.listFiles(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	of := map[string][]copies.File{}
	for _, f := range files {
		if n, ok := a.parseName(f.Name); ok {
			of[n.cluster] = append(of[n.cluster], f)
		}
	}
	for cluster, files := range of {
		i, err := a.readIndex(ctx, cluster, files)
		if err != nil {
			return nil, nil, err
		}
		if i.changed {
			_ = a.writeIndex(ctx, i) // the next list repairs it
		}
		lines, damaged = append(lines, i.operations()...), append(damaged, i.problems()...)
	}
	return lines, damaged, nil
}

// Find returns the ids of the archived operations that begin with prefix.
func (a *Archive) Find(ctx context.Context, prefix string) (ids []string, err error) {
	files, err := a.listFiles(ctx, "")
	for _, f := range files {
		n, ok := a.parseName(f.Name)
		switch {
		case !ok || n.operation == "":
		case strings.HasPrefix(n.operation, prefix):
			ids = append(ids, n.operation)
		case string(n.uid) == prefix:
			ids = append(ids, prefix)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// Load returns an operation and its plan, which is nil if there was none, or records.ErrNotFound. A uid
// that is not "" excludes other operations of that name. Otherwise the newest one counts, and an older
// one is found by its UID as the id.
func (a *Archive) Load(ctx context.Context, id string, uid types.UID) (*v1alpha1.Operation, *plan.Plan, error) {
	file, err := a.findFile(ctx, id, uid)
	if err != nil {
		return nil, nil, err
	}
	h, err := a.readHeader(ctx, file)
	if err != nil {
		return nil, nil, err
	}
	return &h.Operation, h.Plan, nil
}

// ReadEvents calls fn for each event of an operation, in order, and stops at the first error of fn.
// It returns records.ErrNotFound if the operation is not in the archive. See Load.
func (a *Archive) ReadEvents(ctx context.Context, id string, uid types.UID, fn func(event.Event) error) error {
	file, err := a.findFile(ctx, id, uid)
	if err != nil {
		return err
	}
	return a.readFile(ctx, file, func(r *reader) error { return r.readEvents(fn) })
}

// findFile returns the best file of an operation, or records.ErrNotFound. See Load.
func (a *Archive) findFile(ctx context.Context, id string, uid types.UID) (string, error) {
	files, err := a.listFiles(ctx, "")
	if err != nil {
		return "", err
	}
	var found []copies.File
	for _, f := range files {
		if n, ok := a.parseName(f.Name); ok && n.refersTo(id, uid) {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("operation %s in the archive: %w", id, records.ErrNotFound)
	}
	if len(found) == 1 {
		return found[0].Name, nil
	}
	lines, damaged, err := a.readLines(ctx, found)
	if err != nil {
		return "", err
	}
	if len(lines) == 0 {
		return "", damaged[0].List
	}
	newest := slices.MinFunc(lines, compareAge).Operation.UID
	return a.chooseFile(ctx, slices.DeleteFunc(lines, func(l Line) bool { return l.Operation.UID != newest }))
}

// chooseFile returns the best of the files of one operation that is not damaged.
func (a *Archive) chooseFile(ctx context.Context, lines []Line) (file string, err error) {
	slices.SortFunc(lines, compareFiles)
	var first error
	for _, l := range lines {
		err := a.verifyFile(ctx, l.File)
		if err == nil || !isDamaged(err) {
			return l.File, err
		}
		first = cmp.Or(first, err)
	}
	return "", first
}

// verifyFile reads a file to its end.
func (a *Archive) verifyFile(ctx context.Context, file string) error {
	return a.readFile(ctx, file, func(r *reader) error { return r.readEvents(func(event.Event) error { return nil }) })
}

// Verify reads the file of an operation to its end. It returns records.ErrNotFound if there is none.
func (a *Archive) Verify(ctx context.Context, o *v1alpha1.Operation) error {
	file, err := a.findFile(ctx, o.Name, o.UID)
	if err != nil {
		return err
	}
	return a.verifyFile(ctx, file)
}

// Put saves an operation, then its line in the index. When it returns nil, a file with at least as many
// events was read to its end. This can be the file of an earlier call or of another process: a caller
// whose journal is shortened already has fewer events.
func (a *Archive) Put(ctx context.Context, r Record) error {
	o := r.Operation
	n, err := newName(o)
	if err != nil {
		return err
	}
	head, err := r.encodeHeader()
	if err != nil {
		return fmt.Errorf("archiving operation %s: %w", o.Name, err)
	}
	files, err := a.listFiles(ctx, n.cluster)
	if err != nil {
		return err
	}
	i, err := a.readIndex(ctx, n.cluster, files)
	if err != nil {
		return err
	}
	complete := slices.DeleteFunc(i.filesOf(o.UID), func(l Line) bool { return l.Events < head.events })
	_, err = a.chooseFile(ctx, complete)
	if len(complete) == 0 || isDamaged(err) {
		var line Line
		if line, err = a.putFile(ctx, a.fileOf(n), r, head); err == nil {
			i.lines, i.changed = append(i.lines, line), true
		}
	}
	if err != nil || !i.changed {
		return err
	}
	return a.writeIndex(ctx, i)
}

// putFile writes a file, and reads it to its end. It never removes the file: another process may have
// verified it.
func (a *Archive) putFile(ctx context.Context, file string, r Record, h head) (Line, error) {
	line := Line{Operation: shortenOperation(*r.Operation), Events: h.events, File: file}
	err := a.files.Put(ctx, file, func(to io.Writer) error {
		written := counter{to: to}
		err := r.write(&written, h)
		if err == nil {
			line.Bytes = written.bytes
		}
		return err
	})
	if err != nil {
		return Line{}, unavailableError(ctx, err)
	}
	return line, a.verifyFile(ctx, file)
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
