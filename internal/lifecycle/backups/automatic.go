package backups

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/safefile"
)

// automaticDir is the directory of automatic sets, below the default directory of a cluster. Other sets are never removed.
const automaticDir = "automatic"

// AutomaticOptions returns the options for an automatic set of a cluster.
func AutomaticOptions(c *v1alpha1.Cluster) SnapshotOptions {
	out := SnapshotOptions{KeepAutomatic: defaultKeep}
	if b := c.Spec.Etcd.Backup; b != nil {
		out.KeepAutomatic, out.Recipients = cmp.Or(b.Keep, defaultKeep), b.Recipients
	}
	return out
}

// Result returns the set for the status of an operation. A nil *SnapshotInfo has none.
func (i *SnapshotInfo) Result() *v1alpha1.BackupResult {
	if i == nil {
		return nil
	}
	out := &v1alpha1.BackupResult{Name: filepath.Base(i.File), Taken: metav1.NewTime(i.Taken), Host: i.Member, Revision: i.Revision}
	if i.Snapshot != nil {
		out.Revision = i.Snapshot.Revision
	}
	return out
}

// defaultKeep is the number of automatic sets to keep if the spec has none.
const defaultKeep = 8

// makeDir creates the directory for a new set, and returns its path.
func (b *Backups) makeDir(cluster string, o SnapshotOptions) (string, error) {
	dir, err := b.c.Records.Backups().MakeDir(cluster)
	if err != nil || o.KeepAutomatic == 0 {
		return dir, err
	}
	dir = filepath.Join(dir, automaticDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// A storedSet is a file in a directory of sets.
type storedSet struct {
	path  string
	taken time.Time
}

// listFiles returns the files of the sets of a cluster, without an order.
func (b *Backups) listFiles(cluster string) (out []storedSet, err error) {
	dir, err := b.c.Records.Backups().Dir(cluster)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{dir, filepath.Join(dir, automaticDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if of, taken, _, ok := backup.ParseFileName(e.Name()); ok && of == cluster {
				out = append(out, storedSet{filepath.Join(dir, e.Name()), taken})
			}
		}
	}
	return out, nil
}

// findFile returns the path of a set in the default directory by its name, "" if there is none.
func (b *Backups) findFile(cluster, name string) (string, error) {
	files, err := b.listFiles(cluster)
	for _, f := range files {
		if filepath.Base(f.path) == name {
			return f.path, nil
		}
	}
	return "", err
}

// removeOldAutomaticSets removes the oldest automatic sets in the directory of a new set, which is kept.
func (b *Backups) removeOldAutomaticSets(cluster, made string, keep int) error {
	files, err := b.listFiles(cluster)
	files = slices.DeleteFunc(files, func(f storedSet) bool {
		return filepath.Dir(f.path) != filepath.Dir(made) || filepath.Base(filepath.Dir(f.path)) != automaticDir || f.path == made
	})
	slices.SortFunc(files, func(a, b storedSet) int { return cmp.Or(b.taken.Compare(a.taken), cmp.Compare(b.path, a.path)) })
	for i := max(keep-1, 0); i < len(files); i++ {
		err = errors.Join(err, safefile.RemoveAll(files[i].path))
	}
	return err
}
