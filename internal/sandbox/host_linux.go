package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hostDir has the record of the host resources of sandboxes. Like these resources, it
// exists until the host reboots.
const hostDir = "/run/slipway-sandbox"

// A hostState has the host resources of sandboxes.
type hostState struct {
	// Boot is the boot ID of the host: after a reboot no resource is held.
	Boot string `json:"boot"`
	// Claims maps the ranges in use to the directories of their sandboxes.
	Claims map[string]string `json:"claims"`
	// Settings are raised kernel settings, by their path below /proc/sys.
	Settings map[string]*setting `json:"settings"`
}

// A setting is a kernel setting of the host that sandboxes have raised.
type setting struct {
	Was     string   `json:"was"`
	Raised  string   `json:"raised"`
	Holders []string `json:"holders"` // ranges
}

// withHost runs f while no other program changes the host resources of sandboxes, and
// saves the changes of f, whether f fails or not.
func withHost(ctx context.Context, f func(*hostState) error) (err error) {
	lock, err := lockHost(ctx)
	if err != nil {
		return fmt.Errorf("locking %s: %w", hostDir, err)
	}
	defer lock.Close()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	path := filepath.Join(hostDir, "host.json")
	var s hostState
	if err := readJSON(path, &s); err != nil {
		return err
	}
	if b := strings.TrimSpace(string(boot)); s.Boot != b || s.Claims == nil {
		s = hostState{Boot: b, Claims: map[string]string{}, Settings: map[string]*setting{}}
	}
	err = f(&s)
	if len(s.Claims) == 0 && len(s.Settings) == 0 {
		return errors.Join(err, os.RemoveAll(hostDir))
	}
	return errors.Join(err, writeJSON(path, s))
}

// lockHost waits for the lock; closing the file releases it. The lock file is removed
// when no resource is held, so the locked file must be checked again.
func lockHost(ctx context.Context) (*os.File, error) {
	path := filepath.Join(hostDir, "lock")
	var held *os.File
	err := pollUntil(ctx, 5*time.Millisecond, func() (bool, error) {
		if err := os.MkdirAll(hostDir, 0o755); err != nil {
			return false, err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && samePath(f, path) {
			held = f
			return true, nil
		}
		return false, f.Close()
	})
	return held, err
}

func samePath(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// raiseSetting ensures that a numeric kernel setting is at least want, for a holder.
func (s *hostState) raiseSetting(path string, want int, holder string) error {
	if have := s.Settings[path]; have != nil {
		if !slices.Contains(have.Holders, holder) {
			have.Holders = append(have.Holders, holder)
		}
		return nil
	}
	file := filepath.Join("/proc/sys", path)
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	was := strings.TrimSpace(string(b))
	if n, err := strconv.Atoi(was); err != nil || n >= want {
		return err
	}
	// Recorded first: if the program ends here, the old value is restored later.
	s.Settings[path] = &setting{Was: was, Raised: strconv.Itoa(want), Holders: []string{holder}}
	if err := writeJSON(filepath.Join(hostDir, "host.json"), s); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(want)), 0)
}

// releaseSettings restores settings without a holder. A setting that was changed by other
// software since is kept.
func (s *hostState) releaseSettings(holder string) error {
	var errs []error
	for path, have := range s.Settings {
		have.Holders = slices.DeleteFunc(have.Holders, func(h string) bool { return h == holder })
		if len(have.Holders) > 0 {
			continue
		}
		delete(s.Settings, path)
		file := filepath.Join("/proc/sys", path)
		b, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(b)) == have.Raised {
			err = os.WriteFile(file, []byte(have.Was), 0)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// claimRange claims a range for a sandbox.
func (s *hostState) claimRange(id, dir string) error {
	if other := s.Claims[id]; other != "" && other != dir {
		return refuseRange(other)
	}
	s.Claims[id] = dir
	return nil
}

// otherClaim returns the existing directory of another sandbox that has claimed a range, "" without one. The same
// directory by another path, or before a move, is not another one: its machines can still be stopped and deleted.
func (s *hostState) otherClaim(id, dir string) string {
	other := s.Claims[id]
	theirs, err := os.Stat(other)
	if err != nil {
		return ""
	}
	if ours, err := os.Stat(dir); err == nil && os.SameFile(ours, theirs) {
		return ""
	}
	return other
}

func refuseRange(other string) error {
	return refuseWith(IDRangeTaken, "this sandbox uses the same range as the sandbox in "+other, "delete one of the two sandboxes")
}

// readOtherClaim returns the directory of another sandbox that uses the range of this one: its machines, links and
// cgroups are not ours, although the names are the same.
func (s *Sandbox) readOtherClaim(ctx context.Context) (other string, err error) {
	err = withHost(ctx, func(host *hostState) error {
		other = host.otherClaim(s.network().rangeID(), s.dir)
		return nil
	})
	return other, err
}

// requireClaim refuses a sandbox whose range another one uses.
func (s *Sandbox) requireClaim(ctx context.Context) error {
	other, err := s.readOtherClaim(ctx)
	if err == nil && other != "" {
		err = refuseRange(other)
	}
	return err
}
