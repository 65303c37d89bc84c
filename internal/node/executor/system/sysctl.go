//go:build linux

package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// SysctlOp executes op.Sysctl.
type SysctlOp struct{ Op op.Sysctl }

func (x *SysctlOp) Paths() []string {
	return []string{x.Op.Target()}
}

func (x *SysctlOp) LedgerEntries() ([]host.Subject, bool) {
	out := []host.Subject{{Kind: ledger.KindPath, Key: x.Op.File}}
	for key := range x.Op.Values {
		out = append(out, host.Subject{Kind: ledger.KindSysctl, Key: key})
	}
	return out, true
}

// SysctlPath returns the file of a key below /proc/sys. As in sysctl(8), the first '.' or
// '/' in a key is its separator; if it is '.', both characters are swapped:
// net.ipv4.conf.eth0/1.rp_filter and net/ipv4/conf/eth0.1/rp_filter are equal.
func SysctlPath(key string) (string, error) {
	path := key
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		path = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, key)
	}
	if path == "" || strings.ContainsAny(path, "\x00\n= ") || !filepath.IsLocal(path) {
		return "", host.Invalid("%q is not a kernel parameter", key)
	}
	return filepath.Join("/proc/sys", path), nil
}

// normalSysctl returns a value in a form in which the kernel's variants are equal: "4096
// 87380" and "4096\t87380\n".
func normalSysctl(value string) string { return strings.Join(strings.Fields(value), " ") }

// sysctlFile returns the content of the file that sets values at boot.
func sysctlFile(o op.Sysctl) []byte {
	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(o.Values)) {
		fmt.Fprintf(&b, "%s = %s\n", key, normalSysctl(o.Values[key]))
	}
	return b.Bytes()
}

func (x *SysctlOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	v, err := hostfs.CheckFile(h, op.File{Path: o.File, Content: sysctlFile(o)})
	if err != nil {
		return v, err
	}
	var changes []string
	if v.Change != "" {
		changes = append(changes, filepath.Base(o.File)+": "+v.Change)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Values)) {
		now, err := readSysctl(h, key)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// A module from an earlier operation may provide it.
			changes = append(changes, key+" does not exist yet")
		case err != nil:
			return v, err
		case now != normalSysctl(o.Values[key]):
			changes = append(changes, fmt.Sprintf("%s %s → %s", key, now, normalSysctl(o.Values[key])))
		}
	}
	v.Change = strings.Join(changes, ", ")
	return v, nil
}

func readSysctl(h *host.Host, key string) (string, error) {
	p, err := SysctlPath(key)
	if err != nil {
		return "", err
	}
	raw, err := bounded.ReadFile(h.DiskPath(p), bounded.Config)
	if errors.Is(err, fs.ErrPermission) {
		return "", nil // write-only: such as net.ipv4.route.flush
	}
	if err != nil {
		return "", fmt.Errorf("reading kernel parameter %s: %w", key, err)
	}
	return normalSysctl(string(raw)), nil
}

func (x *SysctlOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	v, err := hostfs.CheckFile(h, op.File{Path: o.File, Content: sysctlFile(o)})
	if err != nil {
		return err
	}
	if v.Change != "" {
		if err := hostfs.WriteFile(h, o.File, sysctlFile(o), atomicfile.Meta{Mode: 0o644}); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.Values)) {
		now, err := readSysctl(h, key)
		if errors.Is(err, fs.ErrNotExist) {
			return &op.Error{Reason: "NoSuchParameter", Message: fmt.Sprintf("this kernel has no parameter %s", key)}
		}
		if err != nil {
			return err
		}
		if now == normalSysctl(o.Values[key]) {
			continue
		}
		if err := h.Ledger.SaveEntry(ledger.KindSysctl, key, now); err != nil {
			return err
		}
		if err := setSysctl(h, key, normalSysctl(o.Values[key])); err != nil {
			return err
		}
	}
	return nil
}

func setSysctl(h *host.Host, key, value string) error {
	p, err := SysctlPath(key)
	if err != nil {
		return err
	}
	// Never created: below a test's root, as below /proc, a parameter exists or not.
	f, err := os.OpenFile(h.DiskPath(p), os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteString(value + "\n")
		err = errors.Join(err, f.Close())
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return &op.Error{Reason: "NotPermitted", Message: fmt.Sprintf("kernel parameter %s cannot be written on this host: %v", key, err)}
	case errors.Is(err, unix.EINVAL):
		return host.Invalid("the kernel rejects %q for parameter %s", value, key)
	default:
		return fmt.Errorf("writing kernel parameter %s: %w", key, err)
	}
	// The kernel rounds or limits some parameters.
	now, err := readSysctl(h, key)
	if err == nil && now != "" && now != value {
		return host.Invalid("kernel parameter %s was set to %s, but is %s", key, value, now)
	}
	return err
}

// WouldRestoreSysctl describes the restore of a live value; a parameter that disappeared
// with its module is not an error.
func WouldRestoreSysctl(h *host.Host, e *ledger.Entry) (string, error) {
	var was string
	if err := e.DecodeData(&was); err != nil {
		return "", err
	}
	now, err := readSysctl(h, e.Key)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (now == was || was == "") {
		return "", nil
	}
	return fmt.Sprintf("%s %s → %s", e.Key, now, was), err
}

// RestoreSysctl sets a kernel parameter from before the first change.
func RestoreSysctl(h *host.Host, e *ledger.Entry) (string, error) {
	would, err := WouldRestoreSysctl(h, e)
	if err != nil || would == "" {
		return "", err
	}
	var was string
	if err := e.DecodeData(&was); err != nil {
		return "", err
	}
	return would, setSysctl(h, e.Key, was)
}
