//go:build linux

package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// LimitsOp executes op.Limits.
type LimitsOp struct{ Op op.Limits }

func (x *LimitsOp) Paths() []string { return []string{x.Op.File} }

func (x *LimitsOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: x.Op.File}}, true
}

const (
	// pamDir is the directory of pam_limits, which reads the limits below it.
	pamDir    = "/etc/security"
	openFiles = "nofile"
	// maxOpenFiles is the kernel's upper bound for the number of open files of a process.
	maxOpenFiles = "fs.nr_open"
)

// MayRaiseLimits looks for CAP_SYS_RESOURCE in /proc/self/status.
func MayRaiseLimits(status string) bool {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && set&(1<<unix.CAP_SYS_RESOURCE) != 0
		}
	}
	return false
}

// content returns the file. The wildcard does not include root.
func (x *LimitsOp) content() []byte {
	var b bytes.Buffer
	for _, l := range x.Op.Limits {
		for _, user := range []string{"*", "root"} {
			fmt.Fprintf(&b, "%s soft %s %s\n%s hard %s %s\n", user, l.Item, l.Soft, user, l.Item, l.Hard)
		}
	}
	return b.Bytes()
}

func (x *LimitsOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	for _, l := range x.Op.Limits {
		for _, word := range []string{l.Item, l.Soft, l.Hard} {
			if word == "" || strings.ContainsAny(word, " \t\r\n#") {
				return host.CheckResult{}, host.Invalid("%q is not a word of a limit", word)
			}
		}
	}
	if _, err := os.Stat(h.DiskPath(pamDir)); err != nil {
		return host.CheckResult{}, &op.Error{
			Reason:  "NoPAM",
			Message: pamDir + " does not exist: pam_limits is not installed on this host",
		}
	}
	if err := x.checkOpenFiles(h, x.Op.OpenFilesMax); err != nil {
		return host.CheckResult{}, err
	}
	if err := x.checkCapability(h); err != nil {
		return host.CheckResult{}, err
	}
	return hostfs.CheckFile(h, op.File{Path: x.Op.File, Content: x.content()})
}

// checkOpenFiles rejects a number of open files above most; 0 is fs.nr_open of the host.
func (x *LimitsOp) checkOpenFiles(h *host.Host, most uint64) error {
	if most == 0 {
		text, err := readSysctl(h, maxOpenFiles)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if most, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("reading kernel parameter %s: %w", maxOpenFiles, err)
		}
	}
	for _, l := range x.Op.Limits {
		if l.Item != openFiles {
			continue
		}
		if n, err := strconv.ParseUint(l.Hard, 10, 64); err != nil || n > most {
			return &op.Error{
				Reason: "LimitTooHigh",
				Message: fmt.Sprintf("the limit %s=%s is above %s, which is %d on this host: every login would fail",
					openFiles, l.Hard, maxOpenFiles, most),
			}
		}
	}
	return nil
}

// kernelLimits has the name of each limit in /proc/self/limits, and the unit of its number
// in limits.conf(5).
var kernelLimits = map[string]struct {
	name string
	unit uint64
}{
	"core": {"Max core file size", 1024}, "memlock": {"Max locked memory", 1024},
	openFiles: {"Max open files", 1}, "nproc": {"Max processes", 1},
}

// checkCapability rejects a hard limit that a login on this host cannot raise: in many
// containers. This session has the limits of a login.
func (x *LimitsOp) checkCapability(h *host.Host) error {
	if MayRaiseLimits(h.ReadText("/proc/self/status")) {
		return nil
	}
	now := h.ReadText("/proc/self/limits")
	for _, l := range x.Op.Limits {
		k, ok := kernelLimits[l.Item]
		most, limited := HardLimit(now, k.name)
		if !ok || !limited {
			continue
		}
		if n, err := strconv.ParseUint(l.Hard, 10, 64); err != nil || n > most/k.unit {
			return &op.Error{
				Reason: "LimitTooHigh",
				Message: fmt.Sprintf("the limit %s=%s is above %d, and this host cannot raise limits (CAP_SYS_RESOURCE): every login would fail",
					l.Item, l.Hard, most/k.unit),
			}
		}
	}
	return nil
}

// HardLimit returns the hard limit with a name in the text of /proc/self/limits; false if
// there is none.
func HardLimit(text, name string) (uint64, bool) {
	_, rest, _ := strings.Cut(text, name)
	values := strings.Fields(rest)
	if len(values) < 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[1], 10, 64)
	return n, err == nil
}

func (x *LimitsOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	if err := x.checkOpenFiles(h, 0); err != nil {
		return err
	}
	return hostfs.WriteFile(h, x.Op.File, x.content(), atomicfile.Meta{Mode: 0o644})
}
