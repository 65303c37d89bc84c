package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/diskspace"
)

const (
	// databaseReserve is the room on disk that belongs to the database beyond its size, in
	// bytes. With it, etcd continues on a disk without a free byte: writes of clients are
	// refused, and the server's own writes need a few KiB a minute.
	databaseReserve = 8 << 20
	// growthBytes is by how much the database file grows at a time.
	growthBytes = 16 << 20
	// newDatabase is the room that a new database needs: two segments of the log, the file,
	// and its reserve.
	newDatabase = 2*segmentBytes + growthBytes + databaseReserve
	// reservePeriod is the time between two looks at the reserve.
	reservePeriod = time.Second
	// blockBytes is the unit of Stat_t.Blocks.
	blockBytes = 512
)

// checkRoom refuses a disk that has too little room for a new database. An existing database has
// its reserve.
func checkRoom(dir string) error {
	if _, err := os.Stat(databaseFile(dir)); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	free, all, err := diskspace.ReadFree(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("reading the free space of the disk: %w", err)
	}
	if need := newDatabase + diskspace.Reserve(all); free < need {
		return diag.Refuse(idDiskFull,
			fmt.Sprintf("the disk of %s has %d MiB of free space; a new database needs %d MiB", dir, free>>20, need>>20),
			"make room on that disk, then start the server again")
	}
	return nil
}

// keepReserve keeps the reserve of the database until ctx ends. A disk that is full already, and
// a file system without reserved space, are reported once.
func (e *etcd) keepReserve(ctx context.Context) {
	tick := time.NewTicker(reservePeriod)
	defer tick.Stop()
	reported := ""
	for {
		err := reserveSpace(databaseFile(e.dir), databaseReserve)
		if err != nil && err.Error() != reported {
			reported = err.Error()
			e.log.Warn("the database has no reserved space: if the disk is full, the server can end", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reserveSpace reserves space on disk for the growth of a file by some bytes. Its size remains.
// The file can be in use. If half of the space is still reserved, reserveSpace does nothing.
func reserveSpace(path string, growth int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a new file replaces it at this moment
	}
	if err != nil {
		return fmt.Errorf("reserving space: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("reserving space for %s: %w", path, err)
	}
	if st.Blocks*blockBytes >= st.Size+growth/2 {
		return nil
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, st.Size+growth); err != nil {
		return fmt.Errorf("reserving space for %s: %w", path, err)
	}
	return nil
}
