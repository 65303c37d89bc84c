package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KeepArchive gives the files in the archive of a previous data directory to this directory, which a restore fills.
// Backups do not contain them. These files never change, so both directories share them. It does nothing if the
// previous directory belongs to another server.
func (d *Dir) KeepArchive(previous string) error {
	if info, err := readInfo(previous); err == nil && info.ServerID != d.info.ServerID {
		return nil
	}
	from := filepath.Join(previous, ArchiveDir)
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); err == nil && e.Type().IsRegular() && !strings.HasPrefix(name, ".") { // a dot: incomplete
			err = os.Link(filepath.Join(from, name), d.Path(ArchiveDir, name))
		}
	}
	if err != nil {
		return fmt.Errorf("keeping the archive of operations: %w", err)
	}
	return nil
}
