//go:build linux

package executor

import (
	"bufio"
	"bytes"
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

// kernelModulesOp executes op.KernelModules.
type kernelModulesOp struct{ o op.KernelModules }

func (x *kernelModulesOp) Paths() []string {
	return []string{x.o.Target()}
}

func (x *kernelModulesOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindPath, x.o.Target()}}, true
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

func (x *kernelModulesOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	for _, m := range o.Modules {
		if m == "" || strings.ContainsAny(m, "/ \n\t#;") || m[0] == '-' {
			return verdict{}, invalid("%q is not a kernel module", m)
		}
	}
	v, err := s.checkFile(op.File{Path: o.File, Content: modulesFile(o)})
	if err != nil {
		return v, err
	}
	var changes []string
	if v.change != "" {
		changes = append(changes, filepath.Base(o.File)+": "+v.change)
	}
	for _, m := range o.Modules {
		if !s.hasModule(m) {
			changes = append(changes, "load "+m)
		}
	}
	v.change = strings.Join(changes, ", ")
	return v, nil
}

// hasModule reports whether a module is loaded or built in.
func (s *session) hasModule(name string) bool {
	// The kernel treats '-' and '_' as equal.
	under := strings.ReplaceAll(name, "-", "_")
	if exists(s.path("/sys/module/" + under)) {
		return true
	}
	for _, sign := range moduleSigns[under] {
		if exists(s.path(sign)) {
			return true
		}
	}
	if raw, err := bounded.ReadFile(s.path("/proc/modules"), bounded.Proc); err == nil && inModules(raw, under) {
		return true
	}
	if raw, err := bounded.ReadFile(s.path("/proc/filesystems"), bounded.Proc); err == nil && inFilesystems(raw, under) {
		return true
	}
	raw, err := atomicfile.ReadFile(s.path("/lib/modules/"+s.kernelRelease()+"/modules.builtin"), bounded.Config)
	return err == nil && inBuiltin(raw, under)
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// inModules looks a module up in /proc/modules.
func inModules(raw []byte, name string) bool {
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) > 0 && string(f[0]) == name {
			return true
		}
	}
	return false
}

// inFilesystems looks a file system up in /proc/filesystems.
func inFilesystems(raw []byte, name string) bool {
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) > 0 && string(f[len(f)-1]) == name {
			return true
		}
	}
	return false
}

// inBuiltin looks a module up in modules.builtin: lines such as
// "kernel/net/bridge/br_netfilter.ko".
func inBuiltin(raw []byte, name string) bool {
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		base, _, _ := strings.Cut(filepath.Base(lines.Text()), ".ko")
		if strings.ReplaceAll(base, "-", "_") == name {
			return true
		}
	}
	return false
}

func (s *session) kernelRelease() string {
	if raw, err := bounded.ReadFile(s.path("/proc/sys/kernel/osrelease"), bounded.Proc); err == nil {
		return strings.TrimSpace(string(raw))
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func (x *kernelModulesOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	v, err := s.checkFile(op.File{Path: o.File, Content: modulesFile(o)})
	if err != nil {
		return err
	}
	if v.change != "" {
		if err := s.write(o.File, modulesFile(o), atomicfile.Meta{Mode: 0o644}); err != nil {
			return err
		}
	}
	for _, m := range o.Modules {
		if s.hasModule(m) {
			continue
		}
		if _, err := s.output(ctx, "modprobe", "--", m); err != nil {
			return noModule(s.kernelRelease(), m, err)
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
