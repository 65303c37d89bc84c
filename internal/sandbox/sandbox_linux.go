package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/diag"
)

// A Sandbox is a set of machines on one network.
type Sandbox struct {
	dir     string // for people and other programs; see path
	fd      int    // of dir
	program string
	spec    spec
}

// A Machine represents one machine. Its methods can be called concurrently with the methods
// of other machines, and by several programs at once.
type Machine struct {
	sandbox *Sandbox
	spec    machineSpec
}

// Open finds a sandbox by its name in home, Slipway's state directory.
func Open(home, name string) (*Sandbox, error) {
	if !nameRE.MatchString(name) {
		return nil, unknownSandbox(home, name)
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(home, "sandboxes", name))
	if err != nil {
		return nil, unknownSandbox(home, name)
	}
	return loadNamed(home, name, dir)
}

// loadNamed opens the sandbox in a directory that has the name in home.
func loadNamed(home, name, dir string) (*Sandbox, error) {
	s, err := loadSandbox(dir)
	if err == nil && s.Name() != name {
		return nil, errors.Join(refuseWith(IDForeign,
			fmt.Sprintf("%s is a link to a sandbox named %q", filepath.Join(home, "sandboxes", name), s.Name()), "remove the link"),
			unix.Close(s.fd))
	}
	return s, err
}

func unknownSandbox(home, name string) error {
	hint := "slipway sandbox create " + name
	all, _, _ := List(home) // only a hint
	var names []string
	for _, s := range all {
		names = append(names, s.Name())
	}
	if len(names) > 0 {
		hint = "use one of: " + strings.Join(names, ", ")
	}
	return refuseWith(IDUnknown, fmt.Sprintf("no sandbox is named %q", name), hint)
}

// A Damaged is a directory in the place of a sandbox that is not one, or cannot be read.
type Damaged struct {
	Name    string
	Problem diag.Diagnostic
}

func newDamaged(name, dir string, err error) Damaged {
	var list diag.List
	if errors.As(err, &list) && len(list) > 0 {
		return Damaged{Name: name, Problem: list[0]}
	}
	return Damaged{Name: name, Problem: newProblem(IDForeign, dir+" cannot be read as a sandbox: "+err.Error(), "move it away")}
}

// List returns all sandboxes in home, sorted by name. A damaged one does not hide the others.
func List(home string) (all []*Sandbox, damaged []Damaged, err error) {
	entries, err := os.ReadDir(filepath.Join(home, "sandboxes"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	for _, e := range entries {
		dir, err := filepath.EvalSymlinks(filepath.Join(home, "sandboxes", e.Name()))
		if err != nil {
			continue
		}
		s, err := loadNamed(home, e.Name(), dir)
		if err != nil {
			damaged = append(damaged, newDamaged(e.Name(), dir, err))
			continue
		}
		all = append(all, s)
	}
	return all, damaged, nil
}

// FindMachine finds a machine by its name, or by SANDBOX/MACHINE if two sandboxes have a
// machine with that name.
func FindMachine(home, name string) (*Machine, error) {
	if in, m, ok := strings.Cut(name, "/"); ok {
		s, err := Open(home, in)
		if err != nil {
			return nil, err
		}
		return s.FindMachine(m)
	}
	all, _, err := List(home)
	if err != nil {
		return nil, err
	}
	var found []*Machine
	var names []string
	for _, s := range all {
		for _, m := range s.Machines() {
			names = append(names, m.Name())
			if m.Name() == name {
				found = append(found, m)
			}
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		hint := "run 'slipway sandbox create NAME' to create machines"
		if len(names) > 0 {
			hint = "use one of: " + strings.Join(names, ", ")
		}
		return nil, refuseWith(IDMachineUnknown, fmt.Sprintf("no machine is named %q", name), hint)
	default:
		return nil, refuseWith(IDMachineUnknown, fmt.Sprintf("%d sandboxes have a machine named %q", len(found), name),
			fmt.Sprintf("use the full name: %s/%s", found[0].sandbox.Name(), name))
	}
}

// Name returns the name of the sandbox.
func (s *Sandbox) Name() string { return s.spec.Name }

// Dir returns the directory of its files.
func (s *Sandbox) Dir() string { return s.dir }

// PrivateKeyFile returns the key for the root login on every machine.
func (s *Sandbox) PrivateKeyFile() string { return filepath.Join(s.dir, keyFile) }

// KnownHostsFile returns the file with the machines' host keys.
func (s *Sandbox) KnownHostsFile() string { return filepath.Join(s.dir, knownHostsFile) }

// Machines returns all machines, in the order of creation.
func (s *Sandbox) Machines() []*Machine {
	all := make([]*Machine, len(s.spec.Machines))
	for i, m := range s.spec.Machines {
		all[i] = &Machine{sandbox: s, spec: m}
	}
	return all
}

// FindMachine returns the machine with that name.
func (s *Sandbox) FindMachine(name string) (*Machine, error) {
	i := slices.IndexFunc(s.spec.Machines, func(m machineSpec) bool { return m.Name == name })
	if i < 0 {
		return nil, refuseWith(IDMachineUnknown, fmt.Sprintf("sandbox %s has no machine %q", s.Name(), name),
			"run 'slipway sandbox list'")
	}
	return &Machine{sandbox: s, spec: s.spec.Machines[i]}, nil
}

// eachMachine calls f for all machines concurrently and joins the errors.
func (s *Sandbox) eachMachine(ctx context.Context, f func(context.Context, *Machine) error) error {
	machines := s.Machines()
	errs := make([]error, len(machines))
	var wg sync.WaitGroup
	for i, m := range machines {
		wg.Go(func() {
			if err := f(ctx, m); err != nil {
				errs[i] = fmt.Errorf("machine %s: %w", m.Name(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Start starts every machine that is off, and waits for their sshd.
func (s *Sandbox) Start(ctx context.Context) error {
	return s.eachMachine(ctx, func(ctx context.Context, m *Machine) error { return m.Start(ctx) })
}

// Stop powers every machine off.
func (s *Sandbox) Stop(ctx context.Context) error {
	return s.eachMachine(ctx, func(ctx context.Context, m *Machine) error { return m.Stop(ctx) })
}

func (s *Sandbox) saveState() error { return writeJSON(s.filePath(specFile), s.spec) }

func (s *Sandbox) network() lan {
	return lan{pool: s.spec.Pool, prefix: s.spec.Range, internet: s.spec.Internet}
}

func (s *Sandbox) openCgroups() (cgroups, error) { return findCgroups(s.network().rangeID()) }
