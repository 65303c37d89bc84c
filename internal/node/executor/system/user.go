//go:build linux

package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// UserOp executes op.User.
type UserOp struct{ Op op.User }

func (x *UserOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if o.Name == "" || strings.ContainsAny(o.Name, ":\n/") || strings.ContainsAny(o.Home, ":\n") {
		return host.CheckResult{}, host.Invalid("%q is not a valid user name", o.Name)
	}
	for _, file := range []string{hostfs.Passwd, hostfs.Group} {
		raw, err := h.ReadFile(file)
		if err != nil {
			return host.CheckResult{}, err
		}
		if hostfs.PasswdField(raw, o.Name) == nil {
			return host.CheckResult{Change: "create a system user"}, nil
		}
	}
	return host.CheckResult{}, nil
}

func (x *UserOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	if err := h.Ledger.SavePath(accountsLock); err != nil {
		return err
	}
	if err := h.Ledger.RecordIntent(accountsLock, ledger.FileState(host.Digest(nil))); err != nil {
		return err
	}
	unlock, err := lockAccounts(ctx, h)
	if err != nil {
		return err
	}
	defer unlock()
	var was []hostfs.SharedFile
	for _, file := range []string{hostfs.Passwd, hostfs.Shadow, hostfs.Gshadow, hostfs.Group} {
		f, err := hostfs.ReadSharedFile(h, file)
		if err != nil {
			return err
		}
		was = append(was, f)
	}
	if err := h.Ledger.SaveEntry(ledger.KindUser, o.Name, was); err != nil {
		return err
	}
	users, err := h.ReadFile(hostfs.Passwd)
	if err != nil {
		return err
	}
	groups, err := h.ReadFile(hostfs.Group)
	if err != nil {
		return err
	}
	gid := hostfs.PasswdField(groups, o.Name)
	id, err := freeID(users, groups)
	if err != nil {
		return err
	}
	group0, home := strconv.Itoa(id), o.Home
	if len(gid) >= 3 {
		group0 = gid[2]
	}
	if home == "" {
		home = "/nonexistent"
	}
	// The group first: a user must never exist without its group.
	lines := []struct{ file, line string }{
		{hostfs.Group, fmt.Sprintf("%s:x:%s:", o.Name, group0)},
		{hostfs.Gshadow, o.Name + ":!::"},
		{hostfs.Shadow, o.Name + ":!:" + strconv.FormatInt(time.Now().Unix()/86400, 10) + "::::::"},
		{hostfs.Passwd, fmt.Sprintf("%s:x:%d:%s::%s:%s", o.Name, id, group0, home, nologinShell(h))},
	}
	for _, l := range lines {
		if err := addAccount(h, l.file, o.Name, l.line); err != nil {
			return err
		}
	}
	return nil
}

// addAccount adds a line unless the file has one for name. Optional files (gshadow) are
// not created.
func addAccount(h *host.Host, file, name, line string) error {
	raw, err := atomicfile.ReadFile(h.DiskPath(file), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) && file != hostfs.Passwd && file != hostfs.Group {
		return nil
	}
	if err != nil {
		return err
	}
	if hostfs.PasswdField(raw, name) != nil {
		return nil
	}
	if len(raw) > 0 && raw[len(raw)-1] != '\n' {
		raw = append(raw, '\n')
	}
	return hostfs.RewriteSharedFile(h, file, append(raw, line+"\n"...))
}

func nologinShell(h *host.Host) string {
	for _, p := range []string{"/usr/sbin/nologin", "/sbin/nologin"} {
		if _, err := os.Stat(h.DiskPath(p)); err == nil {
			return p
		}
	}
	return "/bin/false"
}

// freeID returns the highest ID below 1000 that no user and no group has, as useradd
// chooses for system users.
func freeID(users, groups []byte) (int, error) {
	var taken []int
	for line := range strings.Lines(string(users) + "\n" + string(groups)) {
		if f := strings.Split(line, ":"); len(f) >= 3 {
			if n, err := strconv.Atoi(f[2]); err == nil {
				taken = append(taken, n)
			}
		}
	}
	for id := 999; id >= 100; id-- {
		if !slices.Contains(taken, id) {
			return id, nil
		}
	}
	return 0, &op.Error{Reason: "Failed", Message: "no ID is free for a system user (100 to 999 are in use)"}
}

// accountsLock is the file of lckpwdf(3), which useradd and similar programs use. It
// exists on any host that ever added a user.
const accountsLock = "/etc/.pwd.lock"

func lockAccounts(ctx context.Context, h *host.Host) (func(), error) {
	f, err := os.OpenFile(h.DiskPath(accountsLock), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the accounts: %w", err)
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lk); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for the lock on the user database: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return func() { f.Close() }, nil
}

// RestoreUser removes the lines that Slipway added, whatever else has changed.
func RestoreUser(ctx context.Context, h *host.Host, e *ledger.Entry) error {
	var was []hostfs.SharedFile
	if err := e.DecodeData(&was); err != nil {
		return err
	}
	unlock, err := lockAccounts(ctx, h)
	if err != nil {
		return err
	}
	defer unlock()
	for _, f := range was {
		raw, err := h.ReadFile(f.Path)
		if err != nil {
			return err
		}
		if err := hostfs.RestoreSharedFile(h, f, raw, withoutAccount(raw, e.Key)); err != nil {
			return err
		}
	}
	return nil
}

func withoutAccount(raw []byte, name string) []byte {
	var kept []byte
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, name+":") {
			kept = append(kept, line...)
		}
	}
	return kept
}
