//go:build linux

package system

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
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

// KernelModulesOp executes op.KernelModules.
type KernelModulesOp struct{ Op op.KernelModules }

func (x *KernelModulesOp) Paths() []string {
	return []string{x.Op.Target()}
}

func (x *KernelModulesOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: x.Op.Target()}}, true
}

// moduleSigns are paths that exist if the kernel has the feature of a module, however it
// was built.
var moduleSigns = map[string][]string{
	"br_netfilter": {"/proc/sys/net/bridge/bridge-nf-call-iptables"},
	"nf_conntrack": {"/proc/sys/net/netfilter/nf_conntrack_max"},
	"ip_vs":        {"/proc/net/ip_vs"},
}

func modulesFile(o op.KernelModules) []byte {
	return []byte(strings.Join(o.Modules, "\n") + "\n")
}

func (x *KernelModulesOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	for _, m := range o.Modules {
		if m == "" || strings.ContainsAny(m, "/ \n\t#;") || m[0] == '-' {
			return host.CheckResult{}, host.Invalid("%q is not a kernel module", m)
		}
	}
	v, err := hostfs.CheckFile(h, op.File{Path: o.File, Content: modulesFile(o)})
	if err != nil {
		return v, err
	}
	var changes []string
	if v.Change != "" {
		changes = append(changes, filepath.Base(o.File)+": "+v.Change)
	}
	for _, m := range o.Modules {
		if !HasModule(h, m) {
			changes = append(changes, "load "+m)
		}
	}
	v.Change = strings.Join(changes, ", ")
	return v, nil
}

// HasModule reports whether a module is loaded or built in.
func HasModule(h *host.Host, name string) bool {
	// The kernel treats '-' and '_' as equal.
	under := strings.ReplaceAll(name, "-", "_")
	if host.Exists(h.DiskPath("/sys/module/" + under)) {
		return true
	}
	for _, sign := range moduleSigns[under] {
		if host.Exists(h.DiskPath(sign)) {
			return true
		}
	}
	if raw, err := bounded.ReadFile(h.DiskPath("/proc/modules"), bounded.Proc); err == nil && InModules(raw, under) {
		return true
	}
	if raw, err := bounded.ReadFile(h.DiskPath("/proc/filesystems"), bounded.Proc); err == nil && InFilesystems(raw, under) {
		return true
	}
	raw, err := atomicfile.ReadFile(h.DiskPath("/lib/modules/"+KernelRelease(h)+"/modules.builtin"), bounded.Config)
	return err == nil && InBuiltin(raw, under)
}

// InModules looks a module up in /proc/modules.
func InModules(raw []byte, name string) bool {
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) > 0 && string(f[0]) == name {
			return true
		}
	}
	return false
}

// InFilesystems looks a file system up in /proc/filesystems.
func InFilesystems(raw []byte, name string) bool {
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) > 0 && string(f[len(f)-1]) == name {
			return true
		}
	}
	return false
}

// InBuiltin looks a module up in modules.builtin: lines such as
// "kernel/net/bridge/br_netfilter.ko".
func InBuiltin(raw []byte, name string) bool {
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		base, _, _ := strings.Cut(filepath.Base(lines.Text()), ".ko")
		if strings.ReplaceAll(base, "-", "_") == name {
			return true
		}
	}
	return false
}

// KernelRelease returns the release of the running kernel.
func KernelRelease(h *host.Host) string {
	if raw, err := bounded.ReadFile(h.DiskPath("/proc/sys/kernel/osrelease"), bounded.Proc); err == nil {
		return strings.TrimSpace(string(raw))
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func (x *KernelModulesOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	v, err := hostfs.CheckFile(h, op.File{Path: o.File, Content: modulesFile(o)})
	if err != nil {
		return err
	}
	if v.Change != "" {
		if err := hostfs.WriteFile(h, o.File, modulesFile(o), atomicfile.Meta{Mode: 0o644}); err != nil {
			return err
		}
	}
	for _, m := range o.Modules {
		if HasModule(h, m) {
			continue
		}
		if _, err := h.Output(ctx, "modprobe", "--", m); err != nil {
			return noModule(KernelRelease(h), m, err)
		}
	}
	return nil
}

func noModule(release, name string, err error) error {
	var e *op.Error
	detail := err.Error()
	if errors.As(err, &e) && e.Reason != "CommandFailed" {
		return err
	}
	if e != nil && e.Detail != "" {
		detail = e.Detail
	}
	return &op.Error{
		Reason:  "NoSuchModule",
		Message: fmt.Sprintf("kernel module %s cannot be loaded into kernel %s, and is not built in", name, release),
		Detail:  detail,
	}
}
