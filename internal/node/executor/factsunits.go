//go:build linux

package executor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
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
func (s *session) unitFacts(ctx context.Context, names []string) (out []op.UnitFacts) {
	for _, name := range names {
		f := op.UnitFacts{Name: name, Commands: s.commandDropIns(name)}
		if u, err := s.unit(ctx, name); err == nil && u.load != "not-found" {
			f.File, f.Running = u.fragment, u.running()
		}
		if f.File != "" || f.Running || len(f.Commands) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// commandDropIns returns the effective drop-ins that set the command of a service.
func (s *session) commandDropIns(name string) (out []string) {
	var seen []string
	for _, dir := range unitDirs {
		files, err := filepath.Glob(s.path(filepath.Join(dir, name+".d")) + "/*.conf")
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

// holds reports whether a directory has any content except lost+found.
func (s *session) holds(dir string) (bool, error) {
	path, err := s.followed(dir)
	if err != nil {
		return false, err
	}
	p := s.path(path)
	if info, err := os.Stat(p); err != nil || !info.IsDir() {
		return false, err
	}
	empty, err := ledger.Vacant(p)
	return !empty, err
}
