//go:build linux

package run

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
)

// An argument is one of a static pod's command, as its manifest has it.
type argument struct {
	text string
	// loose says that the kubelet may make another text of it: then it is
	// known by its name alone.
	loose bool
}

func (a argument) fits(have string) bool {
	if !a.loose {
		return a.text == have
	}
	name, _, ok := strings.Cut(a.text, "=")
	return !ok || strings.HasPrefix(have, name+"=")
}

// runsAs says that a program runs with the command that a static pod's manifest
// gives it. Right after a change the one before it still does: the kubelet looks
// at its manifests, and ends a pod, in its own time.
func (s *session) runsAs(manifest string) error {
	raw, err := bounded.ReadFile(s.path(manifest), bounded.Config)
	if err != nil {
		return err
	}
	want := commandOf(string(raw))
	if len(want) == 0 {
		return fmt.Errorf("%s has no command", manifest)
	}
	is := func(have []string) bool { return isCommand(want, have) }
	if runs, err := s.anyProgram(is); runs || err != nil {
		return err
	}
	return fmt.Errorf("no %s runs with the current settings of %s: the kubelet has not started it", path.Base(want[0].text), manifest)
}

// steady returns why no program has run for a time with the command that a static
// pod's manifest gives it, or nil.
func (s *session) steady(manifest string, least time.Duration) error {
	raw, err := bounded.ReadFile(s.path(manifest), bounded.Config)
	if err != nil {
		return err
	}
	want := commandOf(string(raw))
	running, err := s.programs(func(have []string) bool { return len(want) > 0 && isCommand(want, have) })
	if err != nil {
		return err
	}
	for _, p := range running {
		if at, err := p.startedAt(); err == nil && time.Since(at) >= least {
			return nil
		}
	}
	return fmt.Errorf("the program of %s has been running for less than %s", manifest, least)
}

// ended says that no program runs which was started with an argument.
func (s *session) ended(argument string) error {
	runs, err := s.anyProgram(func(have []string) bool { return slices.Contains(have, argument) })
	if runs {
		err = fmt.Errorf("a program with the old %s is still running", argument)
	}
	return err
}

// anyProgram reports whether a program runs whose command is a certain one. Those of
// pods that are not static do not count: their users choose their command lines.
func (s *session) anyProgram(is func(command []string) bool) (bool, error) {
	processes, err := filepath.Glob(s.path("/proc/[0-9]*/cmdline"))
	if err != nil {
		return false, err
	}
	for _, file := range processes {
		raw, err := bounded.ReadFile(file, bounded.Proc) // one that ends meanwhile does not run
		if err == nil && is(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")) && !ofOrdinaryPod(filepath.Dir(file)) {
			return true, nil
		}
	}
	return false, nil
}

var (
	// podGroup is the cgroup of a pod, as kubelets name it with either driver.
	podGroup = regexp.MustCompile(`^(?:kubepods-(?:[a-z]+-)?)?pod([0-9a-zA-Z_-]+?)(?:\.slice)?$`)
	// staticUID is the uid of a static pod: a digest of its manifest. The API gives
	// others UUIDs, and cgroups have these with '-' or '_'.
	staticUID = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// ofOrdinaryPod reports whether a process, by its directory in /proc, is of a pod that
// the API knows and no static one.
func ofOrdinaryPod(dir string) bool {
	_, ordinary := podsOf(dir)
	return ordinary
}

// podsOf reports whether a process is of a static pod, and whether it is of a pod that the
// API knows. The kernel says which cgroup it is in; only its pod's own cgroups could be
// below that.
func podsOf(dir string) (static, ordinary bool) {
	raw, err := bounded.ReadFile(filepath.Join(dir, "cgroup"), bounded.Proc)
	if err != nil {
		return false, false // it has ended
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) < 3 {
			continue
		}
		for name := range strings.SplitSeq(f[2], "/") {
			if m := podGroup.FindStringSubmatch(name); m != nil {
				if staticUID.MatchString(m[1]) {
					static = true
				} else {
					ordinary = true
				}
				break
			}
		}
	}
	return static, ordinary
}

func isCommand(want []argument, have []string) bool {
	if len(want) != len(have) || path.Base(want[0].text) != path.Base(have[0]) {
		return false
	}
	for i, a := range want[1:] {
		if !a.fits(have[i+1]) {
			return false
		}
	}
	return true
}

// commandOf is the command of a manifest's first container, as kubeadm writes
// it: a list of scalars, each on a line of its own.
func commandOf(manifest string) (out []argument) {
	_, list, ok := strings.Cut(manifest, "command:\n")
	if !ok {
		return nil
	}
	depth := len(list) - len(strings.TrimLeft(list, " "))
	for line := range strings.Lines(list) {
		line = strings.TrimSuffix(line, "\n")
		text := strings.TrimLeft(line, " ")
		item, isItem := strings.CutPrefix(text, "- ")
		switch indent := len(line) - len(text); {
		case indent == depth && isItem:
			out = append(out, scalar(item))
		case indent > depth && len(out) > 0: // it goes on, in one of YAML's ways
			out[len(out)-1].loose = true
		default:
			return out
		}
	}
	return out
}

// scalar reads one that stands on one line. The kubelet puts values in the
// place of $(NAME).
func scalar(text string) argument {
	loose := strings.Contains(text, "$")
	if len(text) > 1 && text[0] == '\'' && text[len(text)-1] == '\'' {
		return argument{strings.ReplaceAll(text[1:len(text)-1], "''", "'"), loose}
	}
	return argument{strings.TrimLeft(text, `"'`), loose || strings.IndexAny(text, `"'|>&*!`) == 0}
}
