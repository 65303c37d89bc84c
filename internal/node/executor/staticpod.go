//go:build linux

package executor

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

// An argument is one argument of a static pod's command in its manifest.
type argument struct {
	text string
	// loose reports whether the kubelet may change its text: then only its name is
	// compared.
	loose bool
}

func (a argument) fits(have string) bool {
	if !a.loose {
		return a.text == have
	}
	name, _, ok := strings.Cut(a.text, "=")
	return !ok || strings.HasPrefix(have, name+"=")
}

// runsAs returns an error unless a program runs with the command in a static pod's
// manifest. Right after a change the previous one is still running, until the kubelet
// reads its manifests and stops the pod.
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

// steady returns why no program has been running for a time with the command in a static
// pod's manifest, or nil.
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

// ended returns an error if a program runs that was started with an argument.
func (s *session) ended(argument string) error {
	runs, err := s.anyProgram(func(have []string) bool { return slices.Contains(have, argument) })
	if runs {
		err = fmt.Errorf("a program with the argument %s is still running", argument)
	}
	return err
}

// anyProgram reports whether a program with a certain command runs. Programs of pods that
// are not static do not count, because their users choose their command lines.
func (s *session) anyProgram(is func(command []string) bool) (bool, error) {
	processes, err := filepath.Glob(s.path("/proc/[0-9]*/cmdline"))
	if err != nil {
		return false, err
	}
	for _, file := range processes {
		raw, err := bounded.ReadFile(file, bounded.Proc) // a process that ends meanwhile is not running
		if err == nil && is(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")) && !ofOrdinaryPod(filepath.Dir(file)) {
			return true, nil
		}
	}
	return false, nil
}

var (
	// podGroup matches the cgroup of a pod, as kubelets name it with either driver.
	podGroup = regexp.MustCompile(`^(?:kubepods-(?:[a-z]+-)?)?pod([0-9a-zA-Z_-]+?)(?:\.slice)?$`)
	// staticUID matches the UID of a static pod: a digest of its manifest. Other pods
	// have UUIDs from the API, and cgroups have these with '-' or '_'.
	staticUID = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// ofOrdinaryPod reports whether a process, by its directory in /proc, belongs to a pod
// from the API, and not to a static one.
func ofOrdinaryPod(dir string) bool {
	_, ordinary := podsOf(dir)
	return ordinary
}

// podsOf reports whether a process belongs to a static pod, and whether it belongs to a
// pod from the API. The kernel reports its cgroup; only cgroups of its own pod can be
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

// commandOf returns the command of a manifest's first container, in the form that kubeadm
// writes: a list of scalars, each on its own line.
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
		case indent > depth && len(out) > 0: // it continues, in one of YAML's ways
			out[len(out)-1].loose = true
		default:
			return out
		}
	}
	return out
}

// scalar parses a scalar on one line. The kubelet replaces $(NAME) with values.
func scalar(text string) argument {
	loose := strings.Contains(text, "$")
	if len(text) > 1 && text[0] == '\'' && text[len(text)-1] == '\'' {
		return argument{strings.ReplaceAll(text[1:len(text)-1], "''", "'"), loose}
	}
	return argument{strings.TrimLeft(text, `"'`), loose || strings.IndexAny(text, `"'|>&*!`) == 0}
}
