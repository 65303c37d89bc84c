package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"slipway.dev/slipway/internal/records"
)

// mostHolds limits the number of saved processes that ended without releasing a cluster's
// hosts.
const mostHolds = 16

const holdsFile = "holds.json"

// ListUnreleased returns the ids of processes of this store that have not released a cluster's
// lock on all hosts. For a caller that has the cluster's Lock, all of them have ended:
// their locks can be taken over immediately. A process with a copy of the store is not
// among them, unless the copy was made after that process began.
func (s locks) ListUnreleased(_ context.Context, name string) (processes []string, err error) {
	err = records.CheckName(name)
	if err == nil {
		err = s.readJSON(s.clusterPath(name, holdsFile), &processes)
	}
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, fmt.Errorf("reading the lock holders of cluster %s: %w", name, err)
	}
	return processes, nil
}

// BeginHold generates a random id for this process as the holder of a cluster's lock on
// hosts, and saves it before any host gets it.
func (s locks) BeginHold(ctx context.Context, name string) (process string, err error) {
	all, err := s.ListUnreleased(ctx, name)
	if err != nil {
		return "", err
	}
	process = randomHex(idBytes)
	all = append(all, process)
	err = s.makeDir(s.clusterPath(name))
	if err == nil {
		err = s.writeJSON(s.clusterPath(name, holdsFile), all[max(0, len(all)-mostHolds):])
	}
	if err != nil {
		return "", fmt.Errorf("saving the lock holder of cluster %s: %w", name, err)
	}
	return process, nil
}

// EndHold removes processes that BeginHold has saved. Without names it removes all of
// them: no host has a lock of this store.
func (s locks) EndHold(ctx context.Context, name string, processes ...string) error {
	left, err := s.ListUnreleased(ctx, name)
	if err != nil {
		return err
	}
	left = slices.DeleteFunc(left, func(p string) bool { return len(processes) == 0 || slices.Contains(processes, p) })
	if len(left) > 0 {
		err = s.writeJSON(s.clusterPath(name, holdsFile), left)
	} else {
		err = s.putFile(name, holdsFile, nil)
	}
	if err != nil {
		return fmt.Errorf("removing the lock holders of cluster %s: %w", name, err)
	}
	return nil
}
