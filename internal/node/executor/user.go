//go:build linux

package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// userOp executes op.User.
type userOp struct{ o op.User }

// The account files. They are edited here and not with useradd, which not every host has
// and which leaves copies of them.
const (
	passwd  = "/etc/passwd"
	group   = "/etc/group"
	shadow  = "/etc/shadow"
	gshadow = "/etc/gshadow"
)

// unknownName reports a user or group that does not exist.
type unknownName string

func (u unknownName) Error() string { return string(u) }

func statOf(info fs.FileInfo) *syscall.Stat_t {
	st, _ := info.Sys().(*syscall.Stat_t)
	return st
}

// userID returns the ID of a user; "" is root.
func (s *session) userID(name string) (int, error) { return s.account(passwd, "user", name) }

// groupID returns the ID of a group; "" is the group of root.
func (s *session) groupID(name string) (int, error) { return s.account(group, "group", name) }

func (s *session) account(file, what, name string) (int, error) {
	if name == "" || name == "root" {
		return 0, nil
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	raw, err := s.read(file)
	if err != nil {
		return 0, err
	}
	if f := field(raw, name); len(f) >= 3 {
		return strconv.Atoi(f[2])
	}
	return 0, unknownName(fmt.Sprintf("%s %s does not exist", what, name))
}

// field returns the fields of an account's line, or nil.
func field(raw []byte, name string) []string {
	for line := range strings.Lines(string(raw)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); f[0] == name {
			return f
		}
	}
	return nil
}

func (x *userOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	if o.Name == "" || strings.ContainsAny(o.Name, ":\n/") || strings.ContainsAny(o.Home, ":\n") {
		return verdict{}, invalid("%q is not a valid user name", o.Name)
	}
	for _, file := range []string{passwd, group} {
		raw, err := s.read(file)
		if err != nil {
			return verdict{}, err
		}
		if field(raw, o.Name) == nil {
			return verdict{change: "create a system user"}, nil
		}
	}
	return verdict{}, nil
}

func (x *userOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	if err := s.ledger.SavePath(accountsLock); err != nil {
		return err
	}
	if err := s.ledger.Intend(accountsLock, ledger.FileState(digest(nil))); err != nil {
		return err
	}
	unlock, err := s.lockAccounts(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var was []foreign
	for _, file := range []string{passwd, shadow, gshadow, group} {
		f, err := s.foreign(file)
		if err != nil {
			return err
		}
		was = append(was, f)
	}
	if err := s.ledger.Save(ledger.KindUser, o.Name, was); err != nil {
		return err
	}
	users, err := s.read(passwd)
	if err != nil {
		return err
	}
	groups, err := s.read(group)
	if err != nil {
		return err
	}
	gid := field(groups, o.Name)
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
		{group, fmt.Sprintf("%s:x:%s:", o.Name, group0)},
		{gshadow, o.Name + ":!::"},
		{shadow, o.Name + ":!:" + strconv.FormatInt(time.Now().Unix()/86400, 10) + "::::::"},
		{passwd, fmt.Sprintf("%s:x:%d:%s::%s:%s", o.Name, id, group0, home, s.nologin())},
	}
	for _, l := range lines {
		if err := s.addAccount(l.file, o.Name, l.line); err != nil {
			return err
		}
	}
	return nil
}

// addAccount adds a line unless the file has one for name. Optional files (gshadow) are
// not created.
func (s *session) addAccount(file, name, line string) error {
	raw, err := atomicfile.ReadFile(s.path(file), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) && file != passwd && file != group {
		return nil
	}
	if err != nil {
		return err
	}
	if field(raw, name) != nil {
		return nil
	}
	if len(raw) > 0 && raw[len(raw)-1] != '\n' {
		raw = append(raw, '\n')
	}
	return s.rewrite(file, append(raw, line+"\n"...))
}

func (s *session) nologin() string {
	for _, p := range []string{"/usr/sbin/nologin", "/sbin/nologin"} {
		if _, err := os.Stat(s.path(p)); err == nil {
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

func (s *session) lockAccounts(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(s.path(accountsLock), os.O_WRONLY|os.O_CREATE, 0o600)
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

// restoreUser removes the lines that Slipway added, whatever else has changed.
func (s *session) restoreUser(ctx context.Context, e *ledger.Entry) error {
	var was []foreign
	if err := e.Decode(&was); err != nil {
		return err
	}
	unlock, err := s.lockAccounts(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, f := range was {
		raw, err := s.read(f.Path)
		if err != nil {
			return err
		}
		if err := s.restoreForeign(f, raw, withoutAccount(raw, e.Key)); err != nil {
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
