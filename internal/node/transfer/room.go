package transfer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/iec"
)

// fits refuses a copy that the disk has no room for, in bytes or in files, before
// anything of it is written. What is there already, of files and of parts, may be of
// this copy.
func (r *receiver) fits(size int64, entries int) error {
	dir, err := r.parent.Open(r.disk())
	if err != nil {
		return nil // that nothing can be written there will be seen
	}
	defer dir.Close()
	free, known := space(dir)
	files, counted := inodes(dir)
	bytesFit, filesFit := !known || size <= free, !counted || int64(entries) <= files
	if bytesFit && filesFit {
		return nil
	}
	there, those := r.there()
	if size -= there; !bytesFit && size > free {
		return noRoom(filepath.Clean(dir.Name()), size, free)
	}
	if n := int64(entries) - those; !filesFit && n > files {
		return fmt.Errorf("the disk of %s has too few inodes: the copy needs %d more files, but only %d can be created", filepath.Clean(dir.Name()), n, files)
	}
	return nil
}

// inodes is how many files and directories can be made on the disk that a file is on;
// many file systems have no such bound.
func inodes(on *os.File) (free int64, known bool) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(on.Fd()), &st); err != nil {
		return 0, false
	}
	return freeInodes(st.Files, st.Ffree)
}

// freeInodes judges what a file system says of its inodes: some have no bound, or
// count only what is there and answer with -1 for the rest.
func freeInodes(all, unused uint64) (free int64, known bool) {
	if all == 0 || unused > all || int64(unused) < 0 {
		return 0, false
	}
	return int64(unused), true
}

// disk is a directory on the disk that the copy goes to.
func (r *receiver) disk() string {
	if info, err := r.parent.Lstat(r.name); err == nil && info.IsDir() {
		return r.name
	}
	return "."
}

// there is how much may be there already, in bytes and in files. What cannot be looked
// at is not.
func (r *receiver) there() (sum, files int64) {
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
	parts, _ := fs.Glob(all, partPrefix+"*") // the pattern is one
	for _, name := range append(parts, r.name) {
		_ = fs.WalkDir(all, name, count) // count makes no errors
	}
	return sum, files
}

// space is how many bytes can be written to the disk that a file is on; not
// every file system knows.
func space(on *os.File) (free int64, known bool) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(on.Fd()), &st); err != nil || st.Blocks == 0 {
		return 0, false
	}
	return int64(st.Bavail * uint64(st.Bsize)), true
}

// Room refuses, as a copy does, what the disk of a directory has no room for.
func Room(dir string, size int64) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if free, known := space(d); known && size > free {
		return noRoom(dir, size, free)
	}
	return nil
}

// SameDisk says that two directories are on one disk: what goes to both wants room for both.
func SameDisk(a, b string) bool {
	var one, other unix.Stat_t
	return unix.Stat(a, &one) == nil && unix.Stat(b, &other) == nil && one.Dev == other.Dev
}

func noRoom(dir string, need, free int64) error {
	return fmt.Errorf("the disk of %s is too full: %s are needed, but only %s are free", dir, iec.Bytes(need), iec.Bytes(free))
}
