package lifecycle

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
)

// Snapshots returns the sets in the default directory, newest first, including sets of
// clusters that were removed from the saved state. It returns ErrNotFound for a cluster
// that is not saved and has no sets.
func (s *service) Snapshots(ctx context.Context, name string) ([]SnapshotInfo, error) {
	sets, err := s.setsOf(name)
	if err == nil && name != "" && len(sets) == 0 {
		_, err = s.Cluster(ctx, name)
	}
	return sets, err
}

func (s *service) setsOf(name string) ([]SnapshotInfo, error) {
	clusters := []string{name}
	if name == "" {
		var err error
		if clusters, err = s.Store.BackedUp(); err != nil {
			return nil, err
		}
	}
	out := []SnapshotInfo{}
	for _, c := range clusters {
		dir, err := s.Store.Backups(c)
		if err != nil {
			return nil, err
		}
		keys, err := s.trusted(c, SetTrust{})
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if of, _, _, ok := backup.Placed(e.Name()); ok && of == c {
				out = append(out, listed(filepath.Join(dir, e.Name()), keys))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b SnapshotInfo) int { return b.Taken.Compare(a.Taken) })
	return out, nil
}

// listed describes a set from its header, or an encrypted set from its name.
func listed(file string, keys []backup.PublicKey) SnapshotInfo {
	cluster, taken, encrypted, _ := backup.Placed(filepath.Base(file))
	i := SnapshotInfo{Cluster: cluster, File: file, Taken: taken, Encrypted: encrypted}
	info, err := os.Stat(file)
	if err == nil {
		i.Bytes = info.Size()
	}
	var set *backup.Set
	if err == nil && !encrypted {
		set, err = backup.Head(file, nil)
	}
	if err != nil {
		i.Problem = &diag.Diagnostic{ID: string(backup.Damaged), Severity: diag.Error, Message: err.Error()}
	}
	if set != nil {
		i.say(set)
		i.Verified = verified(set, keys)
	}
	return i
}

// infoOf describes a set that was just made.
func infoOf(file string, set *backup.Set, encrypted bool) (*SnapshotInfo, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	i := &SnapshotInfo{Cluster: set.Cluster, File: file, Bytes: info.Size(), Encrypted: encrypted, Verified: set.Signature != nil}
	i.say(set)
	return i, nil
}

// say adds the data of a set's header.
func (i *SnapshotInfo) say(set *backup.Set) {
	i.Taken, i.Kubernetes, i.Etcd, i.Member, i.KeysOnly = set.Taken, set.Kubernetes, set.Etcd, set.Member, set.KeysOnly()
	if !i.KeysOnly {
		i.Snapshot = &set.Snapshot
	}
	for _, f := range set.Files {
		if at, ok := strings.CutPrefix(f.Name, backup.FileDir); ok {
			i.Files = append(i.Files, at)
		}
	}
}
