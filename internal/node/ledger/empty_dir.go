//go:build linux

package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
)

// lostFound is the directory that every new file system has.
const lostFound = "lost+found"

// otherVolume is the reason why the content of a directory is kept.
const otherVolume = "on a different file system than before the install; its content remains"

// IsVacant reports whether there is a directory without content, which can be a separate
// file system.
func IsVacant(path string) (bool, error) {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		if isGone(err) {
			err = nil
		}
		return false, err
	}
	content, err := contentOf(path)
	return err == nil && len(content) == 0, err
}

// contentOf returns the paths in a directory.
func contentOf(dir string) ([]string, error) {
	entries, err := atomicfile.ReadDir(dir)
	var out []string
	for _, e := range entries {
		if e.Name() != lostFound {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, err
}

// emptyOn returns the volume of an empty directory, or "".
func emptyOn(dir string) (string, error) {
	empty, err := IsVacant(dir)
	if err != nil || !empty {
		return "", err
	}
	return volumeID(dir)
}

// volumeID identifies the file system of a directory, so that another one, mounted there
// later or unmounted since, is recognized. It uses the mount point, and the inode number
// and birth time of the mounted directory, which are stored in the file system itself.
// Device numbers can change at the next boot, and with them the ID of an XFS file system;
// that ID is used if no birth time is known. For a file system without either it returns
// "".
func volumeID(dir string) (string, error) {
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

// IsFilled reports whether a directory that was empty and exclusive before Slipway has new
// content; or the reason why Slipway must not remove it.
func (l *Ledger) IsFilled(path string) (full bool, left string, err error) {
	w, err := l.savedState(path)
	if err != nil {
		return false, "", err
	}
	content, left, err := l.newContent(path, w)
	return len(content) > 0, left, err
}

// ClearDir removes the content that IsFilled reports.
func (l *Ledger) ClearDir(path string) (Outcome, error) {
	w, err := l.savedState(path)
	if err != nil {
		return Outcome{Path: path}, err
	}
	return l.clearContent(Outcome{Path: path}, w)
}

func (l *Ledger) savedState(path string) (w was, err error) {
	if e := l.FindEntry(KindPath, path); e != nil {
		err = e.DecodeData(&w)
	}
	return w, err
}

// newContent returns the new content of a directory that was empty.
func (l *Ledger) newContent(path string, w was) (content []string, left string, err error) {
	p := l.onDisk(path)
	if w.EmptyOn == "" {
		return nil, "", nil
	}
	if info, err := os.Lstat(p); err != nil || !info.IsDir() {
		if isGone(err) {
			err = nil
		}
		return nil, "", err
	}
	now, err := volumeID(p)
	if err != nil {
		return nil, "", err
	}
	if now != w.EmptyOn {
		return nil, otherVolume, nil
	}
	content, err = contentOf(p)
	return content, "", err
}

// clearContent removes the new content of a directory that was empty, except mounts.
func (l *Ledger) clearContent(out Outcome, w was) (Outcome, error) {
	content, left, err := l.newContent(out.Path, w)
	if out.Left = left; err != nil {
		return out, err
	}
	var mounted []string
	for _, p := range content {
		var below []string
		// The target of a link is always kept.
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
