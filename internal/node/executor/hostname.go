//go:build linux

package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// hostnameOp executes op.Hostname.
type hostnameOp struct{ o op.Hostname }

// timezoneOp executes op.Timezone.
type timezoneOp struct{ o op.Timezone }

func (*timezoneOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindPath, localtime}, {ledger.KindPath, timezone}}, true
}

const (
	staticHostname = "/etc/hostname"
	liveHostname   = "/proc/sys/kernel/hostname"
)

func (x *hostnameOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	if o.Name == "" || len(o.Name) > 64 || strings.ContainsAny(o.Name, " \t\r\n\x00/") {
		return verdict{}, invalid("%q is not a host name", o.Name)
	}
	static, err := s.read(staticHostname)
	if err != nil {
		return verdict{}, err
	}
	live, err := s.liveHostname()
	if err != nil {
		return verdict{}, err
	}
	old := strings.TrimSpace(string(static))
	switch {
	case old != o.Name:
		return verdict{change: fmt.Sprintf("%q → %q", old, o.Name)}, nil
	case live != o.Name:
		return verdict{change: fmt.Sprintf("current name %q → %q", live, o.Name)}, nil
	}
	return verdict{}, nil
}

func (s *session) liveHostname() (string, error) {
	raw, err := bounded.ReadFile(s.path(liveHostname), bounded.Config)
	if err != nil {
		return "", fmt.Errorf("reading the host name: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

func (x *hostnameOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	o := x.o
	live, err := s.liveHostname()
	if err != nil {
		return err
	}
	if err := s.ledger.Save(ledger.KindHostname, "hostname", live); err != nil {
		return err
	}
	static, err := s.read(staticHostname)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(static)) != o.Name {
		if err := s.edit(staticHostname, []byte(o.Name+"\n")); err != nil {
			return err
		}
	}
	return s.setHostname(o.Name)
}

func (s *session) setHostname(name string) error {
	err := os.WriteFile(s.path(liveHostname), []byte(name), 0o644)
	if s.Root == "/" && err != nil {
		err = unix.Sethostname([]byte(name)) // if /proc/sys is read-only
	}
	if err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	return nil
}

func (s *session) restoreHostname(e *ledger.Entry) (string, error) {
	var was string
	if err := e.Decode(&was); err != nil {
		return "", err
	}
	now, err := s.liveHostname()
	if err != nil || now == was {
		return "", err
	}
	return now + " → " + was, s.setHostname(was)
}

const (
	localtime = "/etc/localtime"
	timezone  = "/etc/timezone" // Debian's file; updated if it exists
	zoneinfo  = "/usr/share/zoneinfo"
)

func (x *timezoneOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	if !filepath.IsLocal(o.Name) {
		return verdict{}, invalid("%q is not a time zone", o.Name)
	}
	if info, err := os.Stat(s.path(zoneinfo + "/" + o.Name)); err != nil || info.IsDir() {
		return verdict{}, &op.Error{Reason: "NoSuchTimezone",
			Message: fmt.Sprintf("this host does not have the time zone %q (%s has no such file)", o.Name, zoneinfo)}
	}
	now := s.timezone()
	name, err := s.read(timezone)
	if err != nil {
		return verdict{}, err
	}
	if now != o.Name {
		return verdict{change: fmt.Sprintf("%q → %q", now, o.Name)}, nil
	}
	if name != nil && strings.TrimSpace(string(name)) != o.Name {
		return verdict{change: timezone + " to " + o.Name}, nil
	}
	return verdict{}, nil
}

// timezone returns the zone of /etc/localtime; without one, UTC.
func (s *session) timezone() string {
	to, err := os.Readlink(s.path(localtime))
	if errors.Is(err, os.ErrNotExist) {
		return "UTC"
	}
	_, name, _ := strings.Cut(to, "zoneinfo/")
	return name
}

func (x *timezoneOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	o := x.o
	if s.timezone() != o.Name {
		if err := s.link(localtime, "../usr/share/zoneinfo/"+o.Name); err != nil {
			return err
		}
	}
	name, err := atomicfile.ReadFile(s.path(timezone), bounded.Config)
	if err != nil || strings.TrimSpace(string(name)) == o.Name {
		return nil // a host without this file
	}
	return s.edit(timezone, []byte(o.Name+"\n"))
}
