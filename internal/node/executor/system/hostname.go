//go:build linux

package system

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
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// HostnameOp executes op.Hostname.
type HostnameOp struct{ Op op.Hostname }

// TimezoneOp executes op.Timezone.
type TimezoneOp struct{ Op op.Timezone }

func (*TimezoneOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: localtime}, {Kind: ledger.KindPath, Key: timezone}}, true
}

const (
	staticHostname = "/etc/hostname"
	// LiveHostname is the file with the hostname that the kernel uses.
	LiveHostname = "/proc/sys/kernel/hostname"
)

func (x *HostnameOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if o.Name == "" || len(o.Name) > 64 || strings.ContainsAny(o.Name, " \t\r\n\x00/") {
		return host.CheckResult{}, host.Invalid("%q is not a host name", o.Name)
	}
	static, err := h.ReadFile(staticHostname)
	if err != nil {
		return host.CheckResult{}, err
	}
	live, err := ReadLiveHostname(h)
	if err != nil {
		return host.CheckResult{}, err
	}
	old := strings.TrimSpace(string(static))
	switch {
	case old != o.Name:
		return host.CheckResult{Change: fmt.Sprintf("%q → %q", old, o.Name)}, nil
	case live != o.Name:
		return host.CheckResult{Change: fmt.Sprintf("current name %q → %q", live, o.Name)}, nil
	}
	return host.CheckResult{}, nil
}

// ReadLiveHostname returns the current host name.
func ReadLiveHostname(h *host.Host) (string, error) {
	raw, err := bounded.ReadFile(h.DiskPath(LiveHostname), bounded.Config)
	if err != nil {
		return "", fmt.Errorf("reading the host name: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

func (x *HostnameOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	live, err := ReadLiveHostname(h)
	if err != nil {
		return err
	}
	if err := h.Ledger.SaveEntry(ledger.KindHostname, "hostname", live); err != nil {
		return err
	}
	static, err := h.ReadFile(staticHostname)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(static)) != o.Name {
		if err := hostfs.EditFile(h, staticHostname, []byte(o.Name+"\n")); err != nil {
			return err
		}
	}
	return setLiveHostname(h, o.Name)
}

func setLiveHostname(h *host.Host, name string) error {
	err := os.WriteFile(h.DiskPath(LiveHostname), []byte(name), 0o644)
	if h.Root == "/" && err != nil {
		err = unix.Sethostname([]byte(name)) // if /proc/sys is read-only
	}
	if err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	return nil
}

// RestoreHostname sets the host name from before the first change.
func RestoreHostname(h *host.Host, e *ledger.Entry) (string, error) {
	var was string
	if err := e.DecodeData(&was); err != nil {
		return "", err
	}
	now, err := ReadLiveHostname(h)
	if err != nil || now == was {
		return "", err
	}
	return now + " → " + was, setLiveHostname(h, was)
}

const (
	localtime = "/etc/localtime"
	timezone  = "/etc/timezone" // Debian's file; updated if it exists
	zoneinfo  = "/usr/share/zoneinfo"
)

func (x *TimezoneOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if !filepath.IsLocal(o.Name) {
		return host.CheckResult{}, host.Invalid("%q is not a time zone", o.Name)
	}
	if info, err := os.Stat(h.DiskPath(zoneinfo + "/" + o.Name)); err != nil || info.IsDir() {
		return host.CheckResult{}, &op.Error{
			Reason:  "NoSuchTimezone",
			Message: fmt.Sprintf("this host does not have the time zone %q (%s has no such file)", o.Name, zoneinfo),
		}
	}
	now := readTimezone(h)
	name, err := h.ReadFile(timezone)
	if err != nil {
		return host.CheckResult{}, err
	}
	if now != o.Name {
		return host.CheckResult{Change: fmt.Sprintf("%q → %q", now, o.Name)}, nil
	}
	if name != nil && strings.TrimSpace(string(name)) != o.Name {
		return host.CheckResult{Change: timezone + " to " + o.Name}, nil
	}
	return host.CheckResult{}, nil
}

// readTimezone returns the zone of /etc/localtime; without one, UTC.
func readTimezone(h *host.Host) string {
	to, err := os.Readlink(h.DiskPath(localtime))
	if errors.Is(err, os.ErrNotExist) {
		return "UTC"
	}
	_, name, _ := strings.Cut(to, "zoneinfo/")
	return name
}

func (x *TimezoneOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	if readTimezone(h) != o.Name {
		if err := hostfs.WriteLink(h, localtime, "../usr/share/zoneinfo/"+o.Name); err != nil {
			return err
		}
	}
	name, err := atomicfile.ReadFile(h.DiskPath(timezone), bounded.Config)
	if err != nil || strings.TrimSpace(string(name)) == o.Name {
		return nil // a host without this file
	}
	return hostfs.EditFile(h, timezone, []byte(o.Name+"\n"))
}
