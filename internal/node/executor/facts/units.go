//go:build linux

package facts

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// unitDirs lists the directories of units and drop-ins in systemd's order: a file in an
// earlier one hides files with its name in the others.
var unitDirs = []string{
	"/etc/systemd/system.control", "/run/systemd/system.control", "/etc/systemd/system", "/run/systemd/system",
	"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
}

// unitFacts returns systemd's data of some units. Drop-ins are read as files, because
// systemd reports none for a unit that is not installed yet.
func unitFacts(ctx context.Context, h *host.Host, names []string) (out []op.UnitFacts) {
	for _, name := range names {
		f := op.UnitFacts{Name: name, Commands: commandDropIns(h, name)}
		if u, err := systemctl.ShowUnit(ctx, h, name); err == nil && u.Load != "not-found" {
			f.File, f.Running = u.Fragment, u.IsRunning()
		}
		if f.File != "" || f.Running || len(f.Commands) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// commandDropIns returns the effective drop-ins that set the command of a service.
func commandDropIns(h *host.Host, name string) (out []string) {
	var seen []string
	for _, dir := range unitDirs {
		files, err := filepath.Glob(h.DiskPath(filepath.Join(dir, name+".d")) + "/*.conf")
		if err != nil {
			continue
		}
		for _, file := range files {
			base := filepath.Base(file)
			if slices.Contains(seen, base) {
				continue
			}
			seen = append(seen, base)
			raw, err := atomicfile.ReadFile(file, bounded.Config)
			if err == nil && setsCommand(string(raw)) {
				out = append(out, filepath.Join(dir, name+".d", base))
			}
		}
	}
	return out
}

// setsCommand reports whether a drop-in has a line for ExecStart.
func setsCommand(text string) bool {
	for line := range strings.Lines(text) {
		if key, _, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.TrimSpace(key) == "ExecStart" {
			return true
		}
	}
	return false
}

// hasContent reports whether a directory has any content except lost+found.
func hasContent(h *host.Host, dir string) (bool, error) {
	path, err := hostfs.ResolveDir(h, dir)
	if err != nil {
		return false, err
	}
	p := h.DiskPath(path)
	if info, err := os.Stat(p); err != nil || !info.IsDir() {
		return false, err
	}
	empty, err := ledger.IsVacant(p)
	return !empty, err
}
