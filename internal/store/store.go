// Package store keeps clusters, operations and their journals in files below
// one directory, $SLIPWAY_HOME:
//
//	manager-id                      identifies this manager to hosts
//	default                         the cluster that 'slipway use' selected
//	known_hosts                     host keys
//	clusters/NAME/cluster.json      the saved spec
//	              source.yaml       the file as the user wrote it
//	              source.path       the path of that file
//	              kept.yaml         the file that a rollback restores
//	              status.json       the latest status
//	              nodes.json        all nodes, if the status lists only some
//	              kubeconfig        the admin kubeconfig
//	              registry.…        password, password hashes and CA of its registry
//	              backup-signing.key  signs its backup sets
//	              lock              flock, with the holder as content
//	backups/NAME/                   backup sets, which outlive the cluster
//	operations/ID/operation.json    the request and its outcome
//	              plan.json         the plan
//	              journal.jsonl     the events
//	              cancel.json       the last request to cancel it
//
// Directories have mode 0700 and files 0600. Files are replaced atomically and are synced
// when the call returns. Operations outlive their cluster, as history.
package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/records"
)

// A Store is one state directory. It has a method for each subject, which returns a smaller
// store: st.Clusters().Load(…). All methods may be called from several goroutines and
// processes at the same time. Changes of a cluster are made under that cluster's lock.
type Store struct{ *directory }

// Clusters returns the store of specs, their cluster files and the latest status.
func (s *Store) Clusters() records.Clusters { return clusters{s.directory} }

// ClusterFiles returns the store of generated passwords and keys of clusters.
func (s *Store) ClusterFiles() records.ClusterFiles { return clusterFiles{s.directory} }

// Kubeconfigs returns the store of admin kubeconfigs.
func (s *Store) Kubeconfigs() records.Kubeconfigs { return kubeconfigs{s.directory} }

// Locks returns the locks of clusters.
func (s *Store) Locks() records.Locks { return locks{s.directory} }

// Operations returns the store of operations and their plans.
func (s *Store) Operations() records.Operations { return operations{s.directory} }

// Journals returns the store of the events of operations.
func (s *Store) Journals() records.Journals { return journals{s.directory} }

// Backups returns the store of backup sets and the keys that sign them.
func (s *Store) Backups() records.Backups { return backups{s.directory} }

// An Option configures a store.
type Option func(*Store)

// OwnedBy sets the owner of everything that the store creates: under sudo, the user who
// called.
func OwnedBy(uid, gid int) Option {
	return func(s *Store) { s.owner = &fileowner.Owner{UID: uid, GID: gid} }
}

// Open opens the store at home. The first method that writes creates a missing directory.
// As root without OwnedBy, the store keeps the owner of home.
func Open(home string, opts ...Option) (*Store, error) {
	home, err := filepath.Abs(home)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	s := &Store{&directory{home: home, roots: map[string]*os.Root{}}}
	s.rename = s.renameIn
	for _, o := range opts {
		o(s)
	}
	if s.owner == nil && os.Geteuid() == 0 {
		// In a root shell, a user's store still belongs to the user.
		if s.owner, err = fileowner.OwnerOf(home); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("opening the store: %w", addWriteHint(home, err))
		}
	}
	_, err = s.openRoot("", false)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := os.Lstat(home); there != nil {
			return s, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", addWriteHint(home, withPath(home, err)))
	}
	return s, nil
}

// Home returns the absolute path of the store.
func (s *Store) Home() string { return s.home }

// Owner returns the owner of the store if it is not the user who runs the program,
// otherwise nil.
func (s *Store) Owner() *fileowner.Owner { return s.owner }

// idBytes is the length of a manager id.
const idBytes = 16

// ManagerID returns the id of this manager for hosts: 32 hexadecimal digits, from a random
// number that is generated once per store, the host name and the path of the store. A copied or
// shared store is another manager on another machine or at another path: hosts let a
// manager take over its own lock immediately.
func (s *Store) ManagerID(context.Context) (string, error) {
	file := s.joinHome("manager-id")
	for range 2 {
		switch b, err := s.readFile(file); {
		case err == nil:
			id := strings.TrimSpace(string(b))
			if raw, err := hex.DecodeString(id); err != nil || len(raw) != idBytes {
				return "", fmt.Errorf("reading the manager id: %w", damagedFileError(file, errors.New("it does not contain a manager id")))
			}
			here, err := os.Hostname()
			if err != nil {
				return "", fmt.Errorf("creating the manager id: %w", err)
			}
			sum := sha256.Sum256([]byte(id + "\x00" + here + "\x00" + s.home))
			return hex.EncodeToString(sum[:idBytes]), nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("reading the manager id: %w", err)
		}
		// Two processes may get here at the same time: the first one creates the
		// file, and then both read it.
		if err := s.createFile(file, []byte(randomHex(idBytes)+"\n")); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("creating the manager id: %w", err)
		}
	}
	return "", fmt.Errorf("reading the manager id: %w", fs.ErrNotExist)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}
