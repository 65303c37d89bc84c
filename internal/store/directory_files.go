package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/records"
)

// tmpPrefix begins the names of temporary files. After a crash, the cluster's next lock
// removes them.
const tmpPrefix = ".tmp-"

// writeTemp writes content to a new file next to path, syncs it, and returns its path.
func (s *directory) writeTemp(path string, content []byte) (string, error) {
	path = filepath.Join(filepath.Dir(path), tmpPrefix+filepath.Base(path)+"-"+randomHex(6))
	err := s.withRoot(path, true, func(root *os.Root, name string) error {
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		if err == nil && s.owner != nil {
			err = f.Chown(s.owner.UID, s.owner.GID)
		}
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return errors.Join(err, root.Remove(name))
		}
		return nil
	})
	return path, err
}

// writeFile replaces the file at path atomically. It is synced when writeFile returns.
func (s *directory) writeFile(path string, content []byte) error {
	name, err := s.writeTemp(path, content)
	if err == nil {
		err = s.rename(name, path)
	}
	if err != nil {
		return addWriteHint(path, err)
	}
	return s.syncDir(filepath.Dir(path))
}

// createFile is writeFile for a file that must not exist yet; otherwise it returns fs.ErrExist.
func (s *directory) createFile(path string, content []byte) error {
	temp, err := s.writeTemp(path, content)
	if err == nil {
		err = s.withExisting(temp, func(root *os.Root, name string) error {
			return errors.Join(root.Link(name, filepath.Join(filepath.Dir(name), filepath.Base(path))), root.Remove(name))
		})
	}
	if err != nil {
		return addWriteHint(path, err)
	}
	return s.syncDir(filepath.Dir(path))
}

func (s *directory) writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	return s.writeFile(path, append(b, '\n'))
}

// readJSON decodes the file at path. A missing file is ErrNotFound.
func (s *directory) readJSON(path string, v any) error {
	b, err := s.readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return records.ErrNotFound
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return damagedFileError(path, err)
	}
	return nil
}

// removeTempFiles removes temporary files that a crash left in dir.
func (s *directory) removeTempFiles(dir string) error {
	entries, err := s.readDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tmpPrefix) {
			err = errors.Join(err, s.removeFile(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
