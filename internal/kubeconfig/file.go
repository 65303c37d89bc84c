package kubeconfig

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/fsync"
)

// DefaultPath returns the file that kubectl would change: the first of KUBECONFIG that exists,
// otherwise the last of KUBECONFIG, otherwise .kube/config in home.
func DefaultPath(home string) string {
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

// A configPlace is the location of a kubeconfig: a name in an open directory. So root reads,
// locks and writes the same file, even if the path changes.
type configPlace struct {
	path string // as requested
	dir  *os.Root
	name string
}

// openPlace opens the directory of a kubeconfig, and creates it if it does not exist. A
// link is kept, and its target is used. As root, links of a user may only lead to
// directories of that user. The caller closes the place.
func openPlace(path string, to *fileowner.Owner) (*configPlace, error) {
	dir, name, err := to.MakeParent(path, 0o700)
	var foreign *fileowner.ForeignError
	switch {
	case errors.As(err, &foreign):
		return nil, newRefusal(idForeign, path, foreign.Error(), "set KUBECONFIG to the file that the link leads to, or remove the link")
	case err != nil:
		return nil, fmt.Errorf("opening the kubeconfig's directory: %w", err)
	}
	return &configPlace{path, dir, name}, nil
}

func (p *configPlace) close() error { return p.dir.Close() }

// readContent returns the content; nil if there is no file.
func (p *configPlace) readContent() ([]byte, error) {
	info, err := p.dir.Lstat(p.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = notRegularError(p.path)
	}
	if err != nil {
		return nil, err
	}
	opened, err := p.dir.OpenFile(p.name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return bounded.ReadAll(opened, bounded.Config)
}

// replaceFile writes the file atomically with mode 0600. An existing file keeps its owner; a
// new one gets the given owner.
func (p *configPlace) replaceFile(data []byte, to *fileowner.Owner) error {
	if err := p.writeFile(data, to); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

func (p *configPlace) writeFile(data []byte, to *fileowner.Owner) error {
	if info, err := p.dir.Lstat(p.name); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			to = &fileowner.Owner{UID: int(st.Uid), GID: int(st.Gid)}
		}
	}
	temp := ".kubeconfig-" + rand.Text()
	opened, err := p.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = opened.Write(data)
	if err == nil && to != nil {
		err = opened.Chown(to.UID, to.GID)
	}
	if err = errors.Join(err, opened.Sync(), opened.Close()); err == nil {
		err = p.dir.Rename(temp, p.name)
	}
	if err != nil {
		_ = p.dir.Remove(temp) // the first error is the cause
		return err
	}
	return fsync.SyncDirIn(p.dir, ".")
}

// lockWait is how long another program may lock a kubeconfig; edits take milliseconds.
const lockWait = 10 * time.Second

// lockFile excludes other edits of the file: edits by Slipway with a lock on the directory,
// which ends with the process, and edits by kubectl with kubectl's lock file.
func (p *configPlace) lockFile(ctx context.Context) (unlock func() error, err error) {
	dir, err := p.dir.Open(".")
	if err != nil {
		return nil, fmt.Errorf("locking the kubeconfig: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	err = pollUntil(ctx, func() (bool, error) {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return false, nil
		}
		return true, err
	})
	kubectlLock := p.name + ".lock"
	if err == nil {
		err = pollUntil(ctx, func() (bool, error) { return takeKubectlLock(p.dir, kubectlLock) })
	}
	if err != nil {
		_ = dir.Close() // the first error is the cause
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, newRefusal(idLocked, p.path, "another program has locked the file for "+lockWait.String(),
				"if no such program is running, remove "+filepath.Join(p.dir.Name(), kubectlLock))
		}
		return nil, fmt.Errorf("locking the kubeconfig: %w", err)
	}
	return func() error { return errors.Join(p.dir.Remove(kubectlLock), dir.Close()) }, nil
}

// takeKubectlLock creates the lock file, which client-go creates with mode 0. A file with
// Slipway's mode, while this process has the directory lock, was left by a process that
// died.
func takeKubectlLock(dir *os.Root, name string) (bool, error) {
	f, err := dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		return true, f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if info, err := dir.Lstat(name); err == nil && info.Mode().Perm() != 0 {
		return false, dir.Remove(name)
	}
	return false, nil
}

// pollUntil calls try until it is done, fails, or ctx ends.
func pollUntil(ctx context.Context, try func() (bool, error)) error {
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
