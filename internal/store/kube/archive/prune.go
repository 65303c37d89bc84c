package archive

import (
	"context"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/backup/copies"
)

// Limits are limits for operations. Zero means no limit.
type Limits struct {
	Operations int
	Age        time.Duration
	Bytes      int64
}

// leftoverTime is the age from which no process uses an incomplete file, or a file whose operation has
// a better one.
const leftoverTime = 24 * time.Hour

// Clusters returns the names of the clusters that have files, sorted.
func (a *Archive) Clusters(ctx context.Context) (names []string, err error) {
	files, err := a.listFiles(ctx, "")
	for _, f := range files {
		if n, ok := a.parseName(f.Name); ok {
			names = append(names, n.cluster)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Prune removes the oldest operations of clusters that together exceed a limit. It also removes files
// that a crash or another writer has left.
func (a *Archive) Prune(ctx context.Context, clusters []string, l Limits, now time.Time) error {
	var all []Line // the best of each operation
	indexes := map[string]*index{}
	for _, cluster := range clusters {
		i, err := a.removeLeftovers(ctx, cluster, now)
		if err != nil {
			return err
		}
		indexes[cluster] = i
		all = append(all, i.operations()...)
	}
	slices.SortFunc(all, compareAge)
	kept, size := 0, int64(0)
	for ; kept < len(all); kept++ {
		line := all[kept]
		size += line.Bytes
		if l.Operations > 0 && kept >= l.Operations || l.Bytes > 0 && size > l.Bytes || l.Age > 0 && now.Sub(endOf(line)) > l.Age {
			break
		}
	}
	for _, line := range slices.Backward(all[kept:]) {
		i := indexes[line.Operation.Spec.ClusterRef.Name]
		for _, file := range i.filesOf(line.Operation.UID) {
			if err := a.removeFile(ctx, i, file.File); err != nil {
				return err
			}
		}
	}
	for _, i := range indexes {
		if !i.changed {
			continue
		}
		if err := a.writeIndex(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftovers removes the old files of a cluster that nothing needs, and returns its index.
func (a *Archive) removeLeftovers(ctx context.Context, cluster string, now time.Time) (*index, error) {
	files, err := a.listFiles(ctx, cluster)
	if err != nil {
		return nil, err
	}
	i, err := a.readIndex(ctx, cluster, files)
	if err != nil {
		return nil, err
	}
	chosen := map[string]string{} // the best file by UID
	for _, f := range files {
		if f.Modified.IsZero() || now.Sub(f.Modified) <= leftoverTime {
			continue
		}
		superseded := strings.HasPrefix(f.Name, "."+a.prefixOf(cluster))
		if n, ok := a.parseName(f.Name); ok && n.operation != "" {
			if superseded, err = a.isSuperseded(ctx, i, n, f, chosen); err != nil {
				return nil, err
			}
		}
		if superseded {
			if err := a.removeFile(ctx, i, f.Name); err != nil {
				return nil, err
			}
		}
	}
	return i, nil
}

// isSuperseded reports whether the operation of a file has another file that was verified.
func (a *Archive) isSuperseded(ctx context.Context, i *index, n name, f copies.File, chosen map[string]string) (bool, error) {
	lines := i.filesOf(n.uid)
	if len(lines) == 0 || len(lines) == 1 && lines[0].File == f.Name {
		return false, nil
	}
	best, known := chosen[string(n.uid)]
	if !known {
		var err error
		if best, err = a.chooseFile(ctx, lines); err != nil && !isDamaged(err) {
			return false, err
		}
		chosen[string(n.uid)] = best
	}
	return best != "" && best != f.Name, nil
}

// removeFile removes a file and its line.
func (a *Archive) removeFile(ctx context.Context, i *index, file string) error {
	if err := a.files.Remove(ctx, file); err != nil {
		return unavailableError(ctx, err)
	}
	i.lines = slices.DeleteFunc(i.lines, func(l Line) bool { return l.File == file })
	i.damaged = slices.DeleteFunc(i.damaged, func(p problem) bool { return p.file == file })
	i.changed = true
	return nil
}

// endOf returns the time from which the age of an operation counts.
func endOf(l Line) time.Time {
	if end := l.Operation.Status.EndTime; end != nil {
		return end.Time
	}
	return l.Operation.CreationTimestamp.Time
}
