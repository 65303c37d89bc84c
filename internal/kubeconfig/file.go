package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/owner"
)

// Path is the file that kubectl would change: the first of KUBECONFIG that
// exists, else the last of it, else .kube/config in home.
func Path(home string) string {
	path := ""
	for _, name := range filepath.SplitList(os.Getenv("KUBECONFIG")) {
		if name == "" {
			continue
		}
		path = name
		if _, err := os.Stat(name); err == nil {
			break
		}
	}
	if path == "" {
		path = filepath.Join(home, ".kube", "config")
	}
	return path
}

// replaceFile writes path as a whole or not at all, mode 0600. A link stays a
// link; an existing file keeps its owner, a new one is given to the one named.
func replaceFile(path string, data []byte, to *owner.Owner) (err error) {
	target, err := place(path, to)
	if err != nil {
		return err
	}
	var old unix.Stat_t
	if unix.Stat(target, &old) == nil {
		to = &owner.Owner{UID: int(old.Uid), GID: int(old.Gid)}
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".kubeconfig-*") // mode 0600
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error says more
			err = fmt.Errorf("writing the kubeconfig: %w", err)
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, give(f, to)); err != nil {
		return errors.Join(err, f.Close())
	}
	return fsync.Commit(f, target)
}

// give makes an open file the owner's.
func give(f *os.File, to *owner.Owner) error {
	if to == nil {
		return nil
	}
	return f.Chown(to.UID, to.GID)
}

// place is where a kubeconfig is written. On behalf of a user, root follows
// links only to directories of that user.
func place(path string, to *owner.Owner) (string, error) {
	target, ofRoot, err := followLinks(path)
	if err != nil || to == nil || ofRoot {
		return target, err
	}
	there := filepath.Dir(target)
	if missing := owner.Missing(there); len(missing) > 0 {
		there = filepath.Dir(missing[len(missing)-1]) // what is missing would be made
	}
	dir, err := owner.Of(there)
	switch {
	case err != nil:
		return "", err
	case dir == nil || dir.UID != to.UID:
		return "", refusal(idForeign, path, "it is a symbolic link to "+target+", in a directory of another user", "name that file with KUBECONFIG, or remove the link")
	}
	return target, nil
}

// followLinks returns where a chain of links ends, whether or not a file is
// there, and whether all the links are root's.
func followLinks(path string) (target string, ofRoot bool, err error) {
	ofRoot = true
	for range 40 { // as the kernel does
		next, err := os.Readlink(path)
		if err != nil {
			return path, ofRoot, nil
		}
		var link unix.Stat_t
		ofRoot = ofRoot && unix.Lstat(path, &link) == nil && link.Uid == 0
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(path), next)
		}
		path = next
	}
	return "", false, fmt.Errorf("following the links of %s: too many", path)
}

// lockWait is how long another program may hold a kubeconfig; edits take
// milliseconds.
const lockWait = 10 * time.Second

// lock keeps other edits of the file at path away: ours by a lock on its
// directory, which ends with the process, and kubectl's by the file that
// kubectl makes itself. The directory is made if it is not there.
func lock(ctx context.Context, path string, to *owner.Owner) (unlock func() error, err error) {
	target, err := place(path, to)
	if err != nil {
		return nil, err
	}
	dirName := filepath.Dir(target)
	if err := to.MakeDir(dirName, 0o700); err != nil {
		return nil, fmt.Errorf("making the kubeconfig's directory: %w", err)
	}
	dir, err := os.Open(dirName)
	if err != nil {
		return nil, fmt.Errorf("locking the kubeconfig: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	err = poll(ctx, func() (bool, error) {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return false, nil
		}
		return true, err
	})
	kubectlLock := target + ".lock"
	if err == nil {
		err = poll(ctx, func() (bool, error) { return takeKubectlLock(kubectlLock) })
	}
	if err != nil {
		_ = dir.Close() // the first error says more
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, refusal(idLocked, path, "another program has been changing it for "+lockWait.String(), "if none is, remove "+kubectlLock)
		}
		return nil, fmt.Errorf("locking the kubeconfig: %w", err)
	}
	return func() error { return errors.Join(os.Remove(kubectlLock), dir.Close()) }, nil
}

// takeKubectlLock makes the file that client-go makes with mode 0. One with our
// mode, found while we hold the directory, was left by a process that died.
func takeKubectlLock(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		return true, f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if info, err := os.Lstat(name); err == nil && info.Mode().Perm() != 0 {
		return false, os.Remove(name)
	}
	return false, nil
}

// poll tries until it is done, fails, or ctx ends.
func poll(ctx context.Context, try func() (bool, error)) error {
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}
