package serverbackup

import (
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// reserve is the free space that a backup leaves on a disk, so that it does not stop
	// the server; on a small disk it is one part in reservePart.
	reserve     = 64 << 20
	reservePart = 20
	// checkEvery is the number of bytes between two checks of the disk.
	checkEvery = 4 << 20
)

// A roomWriter writes to a file, and returns ENOSPC before the disk of a directory is full.
type roomWriter struct {
	to  io.Writer
	dir string

	left int64 // bytes until the next check
}

func (w *roomWriter) Write(p []byte) (int, error) {
	if w.left -= int64(len(p)); w.left < 0 {
		if err := checkRoom(w.dir, int64(len(p))); err != nil {
			return 0, err
		}
		w.left = checkEvery
	}
	return w.to.Write(p)
}

// checkRoom returns ENOSPC if the disk of a directory has no room for some bytes besides
// the reserve.
func checkRoom(dir string, bytes int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	total, free := int64(fs.Blocks)*fs.Bsize, int64(fs.Bavail)*fs.Bsize
	if keep := min(reserve, total/reservePart); free-bytes < keep {
		return fmt.Errorf("writing to %s, which has %d bytes free and keeps %d for the server: %w", dir, free, keep, syscall.ENOSPC)
	}
	return nil
}
