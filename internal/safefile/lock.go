package safefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is the time between two attempts to take a lock.
const lockPoll = 500 * time.Millisecond

// Lock creates a file if it does not exist, and locks it for this process. While another process has the lock, waiting is
// called from time to time, if it is not nil. The lock ends when the file is closed, or with the process. The file remains.
func Lock(ctx context.Context, path string, waiting func()) (*os.File, error) {
	f, err := OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-tick.C:
			if waiting != nil {
				waiting()
			}
		}
	}
}
