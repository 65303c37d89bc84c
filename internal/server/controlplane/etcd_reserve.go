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
	// startBytes is the free space that a start needs, in bytes: two segments of the log, and
	// small files.
	startBytes = 2*segmentBytes + 1<<20
	// recordBytes is more than the records at the beginning of each segment of the log have.
	recordBytes = 64 << 10
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
		err := reserveSpace(databaseFile(e.dir), databaseReserve, startBytes)
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
// least is the free space that must remain, in bytes.
func reserveSpace(path string, growth, least int64) error {
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
	missing := st.Size + growth - st.Blocks*blockBytes
	free, _, err := diskspace.ReadFree(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("reading the free space of the disk: %w", err)
	}
	if need := missing + least; free < need {
		return fmt.Errorf("reserving space for %s: the disk has less than %d MiB of free space", path, need>>20)
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, st.Size+growth); err != nil {
		return fmt.Errorf("reserving space for %s: %w", path, err)
	}
	return nil
}

// etcd reserves the space of the next segment of its log in one of two files. It begins with the
// first, and does not use what an earlier process left in the second.
const firstSegment, secondSegment = "0.tmp", "1.tmp"

// reuseSegment lets etcd use the space for the next segment that an earlier process reserved.
// Otherwise etcd would start on a full disk, but would end at the next segment, even if there is
// room then.
func reuseSegment(dir string) error {
	wal := filepath.Join(dir, "member", "wal")
	first, second := filepath.Join(wal, firstSegment), filepath.Join(wal, secondSegment)
	if _, err := os.Lstat(first); errors.Is(err, os.ErrNotExist) {
		err := os.Rename(second, first)
		if errors.Is(err, os.ErrNotExist) {
			return nil // etcd reserves the space itself
		}
		if err != nil {
			return fmt.Errorf("using the reserved space of the log: %w", err)
		}
	}
	if err := os.Remove(second); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing unused space of the log: %w", err)
	}
	return clearSegment(first)
}

// clearSegment overwrites the records at the beginning of a segment, which etcd may have written
// before its process was killed. The space remains reserved.
func clearSegment(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("clearing a segment of the log: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Write(make([]byte, min(info.Size(), recordBytes)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("clearing a segment of the log: %w", err)
	}
	return nil
}

// keepSegment reserves the space of the next segment until the next start. etcd has stopped.
// If the disk has too little space, or the file system cannot reserve it, keepSegment does nothing.
func keepSegment(dir string) error {
	path := filepath.Join(dir, "member", "wal", firstSegment)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("reserving space for the log: %w", err)
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, segmentBytes)
	if err = errors.Join(err, f.Close()); err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	if err = errors.Join(err, os.Remove(path)); err != nil {
		return fmt.Errorf("reserving space for the log: %w", err)
	}
	return nil
}
