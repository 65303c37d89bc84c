// Package store keeps clusters, operations and their journals in files below
// one directory, $SLIPWAY_HOME:
//
//	manager-id                      who we are to the hosts
//	default                         the cluster that `slipway use` named
//	known_hosts                     hosts' keys, as seen first
//	clusters/NAME/cluster.json      the recorded spec
//	              source.yaml       the file as the user wrote it
//	              source.path       where that was
//	              kept.yaml         the one that a rollback puts back
//	              status.json       the latest status
//	              kubeconfig        the admin kubeconfig
//	              registry.…        password, its hashes, and authority of its own registry
//	              backup-signing.key  signs its backup sets
//	              lock              flock and, within, who holds it
//	backups/NAME/                   backup sets, which outlive the cluster
//	operations/ID/operation.json    what was asked, how it went
//	              plan.json         what was to be done
//	              journal.jsonl     what happened
//
// Directories have mode 0700 and files 0600. A file is replaced whole or not
// at all, and is on disk when the call returns. Operations outlive their
// cluster: they are history.
package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"slipway.dev/slipway/internal/owner"
)

// ErrNotFound is a cluster, operation or file that is not recorded.
var ErrNotFound = errors.New("not found")

// ErrInvalidName is a name that cannot be a cluster's or an operation's.
var ErrInvalidName = errors.New("invalid name: want lower-case letters, digits and dashes, at most 63")

var nameRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// A Store is one directory of records. Its methods may be called from several
// goroutines and processes at once; what is written to one cluster is written
// under that cluster's lock.
type Store struct {
	home  string
	owner *owner.Owner // to whom files and directories are given
	// rename is that of files in a directory; tests put a crash in its place.
	rename func(from, to string) error

	mu    sync.Mutex
	roots map[string]*os.Root
}

// An Option sets something about a store.
type Option func(*Store)

// OwnedBy gives all that the store makes to a user: under sudo, the records
// belong to the person who called.
func OwnedBy(uid, gid int) Option {
	return func(s *Store) { s.owner = &owner.Owner{UID: uid, GID: gid} }
}

// Open opens the store at home. A directory that is missing is made by the
// first method that writes there. Run as root without OwnedBy, it keeps the
// owner that home already has.
func Open(home string, opts ...Option) (*Store, error) {
	home, err := filepath.Abs(home)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	s := &Store{home: home, roots: map[string]*os.Root{}}
	s.rename = s.renameIn
	for _, o := range opts {
		o(s)
	}
	if s.owner == nil && os.Geteuid() == 0 {
		// A root shell leaves a user's store the user's.
		if s.owner, err = owner.Of(home); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("opening the store: %w", unwritable(home, err))
		}
	}
	_, err = s.root("", false)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := os.Lstat(home); there != nil {
			return s, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", unwritable(home, withPath(home, err)))
	}
	return s, nil
}

// Home is the store's directory, absolute.
func (s *Store) Home() string { return s.home }

// Owner is whose the records are, if they are not those of the user who runs the
// program.
func (s *Store) Owner() *owner.Owner { return s.owner }

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.home}, elem...)...)
}

// idBytes is how long the id of a manager is.
const idBytes = 16

// ManagerID answers who we are to the hosts: 32 hexadecimal digits, of a random
// number that is made once per store. A store that was copied, or is shared, is
// another manager on another machine and in another place: hosts let a manager
// take over from itself at once.
func (s *Store) ManagerID() (string, error) {
	file := s.path("manager-id")
	for range 2 {
		switch b, err := s.readFile(file); {
		case err == nil:
			id := strings.TrimSpace(string(b))
			if raw, err := hex.DecodeString(id); err != nil || len(raw) != idBytes {
				return "", fmt.Errorf("reading the manager id: %w", damaged(file, errors.New("it holds no id of a manager")))
			}
			here, err := os.Hostname()
			if err != nil {
				return "", fmt.Errorf("making the manager id: %w", err)
			}
			sum := sha256.Sum256([]byte(id + "\x00" + here + "\x00" + s.home))
			return hex.EncodeToString(sum[:idBytes]), nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("reading the manager id: %w", err)
		}
		// Two processes may come here at once: the first to link wins, and
		// both then read the same file.
		if err := s.create(file, []byte(randomHex(idBytes)+"\n")); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("making the manager id: %w", err)
		}
	}
	return "", fmt.Errorf("reading the manager id: %w", fs.ErrNotExist)
}

// Default answers the cluster that SetDefault named, or "".
func (s *Store) Default() (string, error) {
	file := s.path("default")
	b, err := s.readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	name := strings.TrimSpace(string(b))
	if err == nil && name != "" {
		err = checkName(name)
	}
	if err != nil {
		return "", fmt.Errorf("reading which cluster is the default: %w", damaged(file, err))
	}
	return name, nil
}

// SetDefault names the cluster that commands mean when they name none; ""
// takes the choice back.
func (s *Store) SetDefault(name string) error {
	if name == "" {
		if err := s.remove(s.path("default")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := checkName(name); err != nil {
		return err
	}
	return s.write(s.path("default"), []byte(name+"\n"))
}

// KnownHosts is the file that hosts' keys are kept in. It is made, empty, for
// those who append to it: so it belongs to the records' owner.
func (s *Store) KnownHosts() (string, error) {
	file := s.path("known_hosts")
	if _, err := os.Lstat(file); err == nil {
		return file, nil // whoever appends to it looks what it is
	}
	if err := s.create(file, nil); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making the list of known hosts: %w", err)
	}
	return file, nil
}

func checkName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%q: %w", name, ErrInvalidName)
	}
	return nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}
