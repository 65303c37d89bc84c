//go:build linux

package health

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/process"
)

// An Argument is one argument of a static pod's command in its manifest.
type Argument struct {
	Text string
	// loose reports whether the kubelet may change its text: then only its name is
	// compared.
	loose bool
}

func (a Argument) matches(have string) bool {
	if !a.loose {
		return a.Text == have
	}
	name, _, ok := strings.Cut(a.Text, "=")
	return !ok || strings.HasPrefix(have, name+"=")
}

// runsManifest returns an error unless a program runs with the command in a static pod's
// manifest. Right after a change the previous one is still running, until the kubelet
// reads its manifests and stops the pod.
func runsManifest(h *host.Host, manifest string) error {
	raw, err := bounded.ReadFile(h.DiskPath(manifest), bounded.Config)
	if err != nil {
		return err
	}
	want := CommandOf(string(raw))
	if len(want) == 0 {
		return fmt.Errorf("%s has no command", manifest)
	}
	is := func(have []string) bool { return IsCommand(want, have) }
	if runs, err := anyProgramOf(h, is); runs || err != nil {
		return err
	}
	return fmt.Errorf("no %s runs with the current settings of %s: the kubelet has not started it", path.Base(want[0].Text), manifest)
}

// hasRunFor returns why no program has been running for a time with the command in a
// static pod's manifest, or nil.
func hasRunFor(h *host.Host, manifest string, least time.Duration) error {
	raw, err := bounded.ReadFile(h.DiskPath(manifest), bounded.Config)
	if err != nil {
		return err
	}
	want := CommandOf(string(raw))
	running, err := FindPrograms(h, func(have []string) bool { return len(want) > 0 && IsCommand(want, have) })
	if err != nil {
		return err
	}
	for _, p := range running {
		if at, err := p.StartedAt(); err == nil && time.Since(at) >= least {
			return nil
		}
	}
	return fmt.Errorf("the program of %s has been running for less than %s", manifest, least)
}

// hasEnded returns an error if a program runs that was started with an argument.
func hasEnded(h *host.Host, argument string) error {
	runs, err := anyProgramOf(h, func(have []string) bool { return slices.Contains(have, argument) })
	if runs {
		err = fmt.Errorf("a program with the argument %s is still running", argument)
	}
	return err
}

// anyProgramOf reports whether a program with a certain command runs. Programs of pods
// that are not static do not count, because their users choose their command lines.
func anyProgramOf(h *host.Host, is func(command []string) bool) (bool, error) {
	processes, err := filepath.Glob(h.DiskPath("/proc/[0-9]*/cmdline"))
	if err != nil {
		return false, err
	}
	for _, file := range processes {
		raw, err := bounded.ReadFile(file, bounded.Proc) // a process that ends meanwhile is not running
		if err == nil && is(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")) && !IsOrdinaryPod(filepath.Dir(file)) {
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

// IsOrdinaryPod reports whether a process, by its directory in /proc, belongs to a pod
// from the API, and not to a static one.
func IsOrdinaryPod(dir string) bool {
	_, ordinary := podsOf(dir)
	return ordinary
}

// podsOf reports whether a process belongs to a static pod, and whether it belongs to a
// pod from the API. The kernel reports its cgroup; only cgroups of the same pod can be
// below the cgroup of a pod.
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

// IsCommand reports whether a command line has the wanted arguments.
func IsCommand(want []Argument, have []string) bool {
	if len(want) != len(have) || path.Base(want[0].Text) != path.Base(have[0]) {
		return false
	}
	for i, a := range want[1:] {
		if !a.matches(have[i+1]) {
			return false
		}
	}
	return true
}

// CommandOf returns the command of a manifest's first container, in the form that kubeadm
// writes: a list of scalars, each on its own line.
func CommandOf(manifest string) (out []Argument) {
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
			out = append(out, parseScalar(item))
		case indent > depth && len(out) > 0: // it continues, in one of YAML's ways
			out[len(out)-1].loose = true
		default:
			return out
		}
	}
	return out
}

// parseScalar parses a scalar on one line. The kubelet replaces $(NAME) with values.
func parseScalar(text string) Argument {
	loose := strings.Contains(text, "$")
	if len(text) > 1 && text[0] == '\'' && text[len(text)-1] == '\'' {
		return Argument{strings.ReplaceAll(text[1:len(text)-1], "''", "'"), loose}
	}
	return Argument{strings.TrimLeft(text, `"'`), loose || strings.IndexAny(text, `"'|>&*!`) == 0}
}

// FindPrograms returns the processes in static pods of this machine with a certain
// command. Machines inside this machine have such processes as well.
func FindPrograms(h *host.Host, is func(command []string) bool) (out []process.Process, err error) {
	files, err := filepath.Glob(h.DiskPath("/proc/[0-9]*/cmdline"))
	if err != nil {
		return nil, err
	}
	here, err := os.Readlink(h.DiskPath("/proc/self/ns/pid"))
	if err != nil {
		return nil, fmt.Errorf("reading our process namespace: %w", err)
	}
	for _, file := range files {
		raw, err := bounded.ReadFile(file, bounded.Proc) // a process that ends meanwhile is not running
		if err != nil || !is(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")) {
			continue
		}
		p, ok := process.ReadProcess(filepath.Dir(file))
		if !ok {
			continue
		}
		shim := process.ShimArgs(h.DiskPath("/proc/"+strconv.Itoa(p.Parent)), here)
		static, ordinary := podsOf(filepath.Dir(file))
		if process.IsContainerdShim(shim) && !ordinary || process.IsDockerShim(shim) && static && !ordinary {
			out = append(out, p)
		}
	}
	return out, nil
}
