//go:build linux

package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/durable"
)

// lostFound is what a file system of its own has in it from the start.
const lostFound = "lost+found"

// otherVolume is why a directory's content stays.
const otherVolume = "on a different file system than before the install; its content remains"

// Vacant says that there is a directory with nothing in it, which may be a
// file system of its own.
func Vacant(path string) (bool, error) {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		if gone(err) {
			err = nil
		}
		return false, err
	}
	content, err := contentOf(path)
	return err == nil && len(content) == 0, err
}

// contentOf are the paths in a directory.
func contentOf(dir string) ([]string, error) {
	entries, err := durable.ReadDir(dir)
	var out []string
	for _, e := range entries {
		if e.Name() != lostFound {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, err
}

// emptyOn is the volume of a directory with nothing in it, or "".
func emptyOn(dir string) (string, error) {
	empty, err := Vacant(dir)
	if err != nil || !empty {
		return "", err
	}
	return volume(dir)
}

// volume names the file system that a directory is on, so that another one,
// mounted there or missing since, is told from it: by its mount point, and by
// the number and the time of birth of the directory that is mounted. These are
// written in the file system itself. Device numbers may be others after the
// next boot, and with them the id that XFS gives itself; that id serves where
// no birth is known. A file system that has neither is "".
func volume(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	raw, err := bounded.ReadFile("/proc/thread-self/mountinfo", bounded.Proc)
	if err != nil {
		return "", fmt.Errorf("listing mounts: %w", err)
	}
	top := "/"
	for _, m := range MountPoints(raw) {
		if len(m) > len(top) && (m == real || strings.HasPrefix(real, m+"/")) {
			top = m
		}
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, top, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", fmt.Errorf("inspecting %s: %w", top, err)
	}
	if st.Mask&unix.STATX_BTIME != 0 && st.Btime.Sec != 0 {
		return fmt.Sprintf("%d born %d.%09d at %s", st.Ino, st.Btime.Sec, st.Btime.Nsec, top), nil
	}
	var sfs unix.Statfs_t
	if err := unix.Statfs(top, &sfs); err != nil {
		return "", fmt.Errorf("inspecting %s: %w", top, err)
	}
	if sfs.Fsid == (unix.Fsid{}) {
		return "", nil
	}
	return fmt.Sprintf("%d of %08x%08x at %s", st.Ino, uint32(sfs.Fsid.Val[0]), uint32(sfs.Fsid.Val[1]), top), nil
}

// Filled says whether something has come into a directory that was there
// before Slipway, empty and for it alone; or why that is not for us to remove.
func (l *Ledger) Filled(path string) (full bool, left string, err error) {
	w, err := l.was(path)
	if err != nil {
		return false, "", err
	}
	content, left, err := l.content(path, w)
	return len(content) > 0, left, err
}

// Clear removes what Filled tells of.
func (l *Ledger) Clear(path string) (Outcome, error) {
	w, err := l.was(path)
	if err != nil {
		return Outcome{Path: path}, err
	}
	return l.clear(Outcome{Path: path}, w)
}

func (l *Ledger) was(path string) (w was, err error) {
	if e := l.Get(KindPath, path); e != nil {
		err = e.Decode(&w)
	}
	return w, err
}

// content is what has come into a directory that was empty.
func (l *Ledger) content(path string, w was) (content []string, left string, err error) {
	p := l.onDisk(path)
	if w.EmptyOn == "" {
		return nil, "", nil
	}
	if info, err := os.Lstat(p); err != nil || !info.IsDir() {
		if gone(err) {
			err = nil
		}
		return nil, "", err
	}
	now, err := volume(p)
	if err != nil {
		return nil, "", err
	}
	if now != w.EmptyOn {
		return nil, otherVolume, nil
	}
	content, err = contentOf(p)
	return content, "", err
}

// clear removes what has come into a directory that was empty, but never what
// is mounted there.
func (l *Ledger) clear(out Outcome, w was) (Outcome, error) {
	content, left, err := l.content(out.Path, w)
	if out.Left = left; err != nil {
		return out, err
	}
	var mounted []string
	for _, p := range content {
		var below []string
		// What a link leads to stays in any case.
		if info, err := os.Lstat(p); err == nil && info.IsDir() {
			if below, err = MountedBelow(p); err != nil {
				return out, err
			}
		}
		if mounted = append(mounted, below...); len(below) > 0 {
			continue
		}
		if err := l.disk.RemoveAll(p); err != nil {
			return out, err
		}
		out.Did = "emptied"
	}
	if len(mounted) > 0 {
		out.Left = "still mounted: " + strings.Join(mounted, ", ")
	}
	return out, nil
}
