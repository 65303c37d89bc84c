package serverbackup

import (
	"fmt"
	"io"
	"syscall"

	"slipway.dev/slipway/internal/server/diskspace"
)

// checkEvery is the number of bytes between two checks of the disk.
const checkEvery = 4 << 20

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

// checkRoom returns ENOSPC if the disk of a directory has no room for some bytes besides the
// free space that a backup leaves. Else the server could refuse writes after a backup.
func checkRoom(dir string, bytes int64) error {
	free, total, err := diskspace.ReadFree(dir)
	if err != nil {
		return fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	if keep := diskspace.BackupReserve(total); free-bytes < keep {
		return fmt.Errorf("writing to %s, which has %d bytes free and keeps %d for the server: %w", dir, free, keep, syscall.ENOSPC)
	}
	return nil
}
