package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// tmpPrefix begins the names of files that are being written. What a crash
// leaves of them is removed under the cluster's next lock.
const tmpPrefix = ".tmp-"

// owner is to whom files and directories are given.
type owner struct {
	set      bool
	uid, gid int
}

// ownerOf answers who owns the nearest directory that exists, if it is not
// root: a root shell leaves a user's store the user's.
func ownerOf(path string) owner {
	info, err := os.Stat(path)
	if err != nil {
		return owner{}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 {
		return owner{}
	}
	return owner{set: true, uid: int(st.Uid), gid: int(st.Gid)}
}

// mkdir makes a directory with those above it that are missing, gives what it
// made to the owner, and puts it on disk.
func (s *Store) mkdir(dir string) error {
	switch info, err := os.Stat(dir); {
	case err == nil && !info.IsDir():
		return unwritable(dir, syscall.ENOTDIR)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return unwritable(dir, err)
	}
	if err := s.mkdir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil // another process was faster
		}
		return unwritable(dir, err)
	}
	if s.owner.set {
		if err := os.Lchown(dir, s.owner.uid, s.owner.gid); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(dir))
}

// temp writes content to a new file beside path, on disk, and answers its
// name.
func (s *Store) temp(path string, content []byte) (string, error) {
	name := filepath.Join(filepath.Dir(path), tmpPrefix+filepath.Base(path)+"-"+randomHex(6))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", unwritable(path, err)
	}
	_, err = f.Write(content)
	if err == nil && s.owner.set {
		err = f.Chown(s.owner.uid, s.owner.gid)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", unwritable(path, errors.Join(err, os.Remove(name)))
	}
	return name, nil
}

// write replaces the file at path, whole or not at all; it is on disk when
// write returns.
func (s *Store) write(path string, content []byte) error {
	name, err := s.temp(path, content)
	if err != nil {
		return err
	}
	if err := s.rename(name, path); err != nil {
		return unwritable(path, err)
	}
	return syncDir(filepath.Dir(path))
}

// create is write for a file that must not exist yet: fs.ErrExist if it does.
func (s *Store) create(path string, content []byte) error {
	name, err := s.temp(path, content)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Link(name, path), os.Remove(name)); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func (s *Store) writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	return s.write(path, append(b, '\n'))
}

// readJSON decodes the file at path; a missing one is ErrNotFound.
func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return damaged(path, err)
	}
	return nil
}

// sweep removes what a crash left half written in dir.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tmpPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// syncDir puts a directory's entries on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
