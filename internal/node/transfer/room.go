package transfer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bytesize"
)

// checkFits rejects a copy that does not fit on the disk, in bytes or in files, before
// anything is written. Existing files and parts may belong to this copy.
func (r *receiver) checkFits(size int64, entries int) error {
	dir, err := r.parent.Open(r.dirOnDisk())
	if err != nil {
		return nil // a later step reports that nothing can be written there
	}
	defer dir.Close()
	free, known := freeSpace(dir)
	files, counted := freeInodes(dir)
	bytesFit, filesFit := !known || size <= free, !counted || int64(entries) <= files
	if bytesFit && filesFit {
		return nil
	}
	there, those := r.existingSize()
	if size -= there; !bytesFit && size > free {
		return noRoom(filepath.Clean(dir.Name()), size, free)
	}
	if n := int64(entries) - those; !filesFit && n > files {
		return fmt.Errorf("the disk of %s has too few inodes: the copy needs %d more files, but only %d can be created",
			filepath.Clean(dir.Name()), n, files)
	}
	return nil
}

// freeInodes returns how many files and directories can be created on the disk of a file;
// many file systems have no such limit.
func freeInodes(on *os.File) (free int64, known bool) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(on.Fd()), &st); err != nil {
		return 0, false
	}
	return countFreeInodes(st.Files, st.Ffree)
}

// countFreeInodes interprets the inode counts of a file system: some have no limit, or count
// only existing inodes and return -1 for the rest.
func countFreeInodes(all, unused uint64) (free int64, known bool) {
	if all == 0 || unused > all || int64(unused) < 0 {
		return 0, false
	}
	return int64(unused), true
}

// dirOnDisk returns a directory on the disk of the copy.
func (r *receiver) dirOnDisk() string {
	if info, err := r.parent.Lstat(r.name); err == nil && info.IsDir() {
		return r.name
	}
	return "."
}

// existingSize returns how much may already exist, in bytes and in files. Files that cannot be
// read do not count.
func (r *receiver) existingSize() (sum, files int64) {
	count := func(_ string, e fs.DirEntry, err error) error {
		if err == nil {
			files++
		}
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	}
	all := r.parent.FS()
	parts, _ := fs.Glob(all, partPrefix+"*") // the pattern is valid
	for _, name := range append(parts, r.name) {
		_ = fs.WalkDir(all, name, count) // count returns no errors
	}
	return sum, files
}

// freeSpace returns how many bytes can be written to the disk of a file; not every file
// system reports it.
func freeSpace(on *os.File) (free int64, known bool) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(on.Fd()), &st); err != nil || st.Blocks == 0 {
		return 0, false
	}
	return int64(st.Bavail * uint64(st.Bsize)), true
}

// CheckRoom returns an error, as for a copy, if the disk of a directory is too full.
func CheckRoom(dir string, size int64) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if free, known := freeSpace(d); known && size > free {
		return noRoom(dir, size, free)
	}
	return nil
}

// SameDisk reports whether two directories are on one disk, so that content for both
// needs space on it.
func SameDisk(a, b string) bool {
	var one, other unix.Stat_t
	return unix.Stat(a, &one) == nil && unix.Stat(b, &other) == nil && one.Dev == other.Dev
}

func noRoom(dir string, need, free int64) error {
	return fmt.Errorf("the disk of %s is too full: %s are needed, but only %s are free", dir, bytesize.Format(need), bytesize.Format(free))
}
