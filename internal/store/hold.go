package store

import (
	"errors"
	"fmt"
	"slices"
)

// mostHolds is how many processes are remembered that ended without releasing a
// cluster's hosts.
const mostHolds = 16

const holdsFile = "holds.json"

// Holds are the ids of processes of this store that have not released a cluster's lock
// on all hosts. For a caller who has the cluster's Lock, all of them have ended: their
// locks can be taken over at once. A process with a copy of the store is none of them,
// unless the copy was made after it began.
func (s *Store) Holds(name string) (processes []string, err error) {
	err = checkName(name)
	if err == nil {
		err = s.readJSON(s.clusterPath(name, holdsFile), &processes)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("reading who has locked cluster %s: %w", name, err)
	}
	return processes, nil
}

// BeginHold makes a random id for this process as the holder of a cluster's lock on
// hosts, and remembers it before any host has it.
func (s *Store) BeginHold(name string) (process string, err error) {
	all, err := s.Holds(name)
	if err != nil {
		return "", err
	}
	process = randomHex(idBytes)
	all = append(all, process)
	err = s.mkdir(s.clusterPath(name))
	if err == nil {
		err = s.writeJSON(s.clusterPath(name, holdsFile), all[max(0, len(all)-mostHolds):])
	}
	if err != nil {
		return "", fmt.Errorf("remembering who locks cluster %s: %w", name, err)
	}
	return process, nil
}

// EndHold forgets processes that BeginHold has remembered; without any named, all
// of them: no host has a lock of ours.
func (s *Store) EndHold(name string, processes ...string) error {
	left, err := s.Holds(name)
	if err != nil {
		return err
	}
	left = slices.DeleteFunc(left, func(p string) bool { return len(processes) == 0 || slices.Contains(processes, p) })
	if len(left) > 0 {
		err = s.writeJSON(s.clusterPath(name, holdsFile), left)
	} else {
		err = s.put(name, holdsFile, nil)
	}
	if err != nil {
		return fmt.Errorf("forgetting who has locked cluster %s: %w", name, err)
	}
	return nil
}
