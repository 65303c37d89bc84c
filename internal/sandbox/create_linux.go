package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/safefile"
)

// baseSpace is the space for building the base system, machineSpace the space of a
// machine before anything is installed; both in bytes, with a margin.
const (
	baseSpace    = 2 << 30
	machineSpace = 512 << 20
)

// cleanupTimeout limits the cleanup of a failed or interrupted creation.
const cleanupTimeout = 2 * time.Minute

// Create creates a sandbox, starts its machines, waits until sshd responds on each, and
// writes the cluster file. If it fails or the context ends, it removes everything that it
// created. Problems that the user can fix are a diag.List.
func Create(ctx context.Context, o Options) (_ *Sandbox, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &creation{Options: o}
	if err := c.checkOptions(); err != nil {
		return nil, err
	}
	image, err := baseImage(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if ctx.Err() != nil {
			// An error of an interrupted step is not meaningful.
			err = fmt.Errorf("creating sandbox %s: %w", o.Name, ctx.Err())
		}
		if err != nil {
			err = errors.Join(err, c.undoCreation(ctx))
		}
	}()
	s, err := c.makeSandbox(ctx)
	if err != nil {
		return nil, fmt.Errorf("creating sandbox %s: %w", o.Name, err)
	}
	o.Progress("Starting the machines")
	err = s.eachMachine(ctx, func(ctx context.Context, m *Machine) error {
		if err := copySparse(m.filePath(diskFile), image); err != nil {
			return fmt.Errorf("creating its disk: %w", err)
		}
		return m.Start(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("creating sandbox %s: %w", o.Name, err)
	}
	if err := c.writeClusterFile(s); err != nil {
		return nil, fmt.Errorf("writing %s: %w", o.Out, err)
	}
	return s, nil
}

// A creation is one run of Create.
type creation struct {
	Options
	hosts []v1alpha1.Host // of From
	text  []byte          // of From

	made   *Sandbox
	linked bool // from Home to the sandbox, if that is elsewhere
	wrote  bool // the cluster file
}

// checkOptions rejects options that cannot work, before anything is changed.
func (c *creation) checkOptions() error {
	if os.Geteuid() != 0 {
		return refuseWith(IDNeedsRoot, "creating machines needs root", "run it with sudo")
	}
	if err := needPrograms("ip", "mkfs.ext4"); err != nil {
		return err
	}
	if c.Internet {
		if err := needPrograms("nft"); err != nil {
			return err
		}
	}
	control, err := openLoopControl()
	if err != nil {
		return err
	}
	if err := control.Close(); err != nil {
		return err
	}
	if _, err := findCgroups(""); err != nil {
		return err
	}
	if _, err := os.Lstat(c.Out); err == nil {
		return refuseWith(IDOutputExists, c.Out+" already exists", "set --out to another file, or remove this file")
	}
	if err := c.checkNames(); err != nil {
		return err
	}
	return c.checkSpace()
}

// checkNames ensures that machines have different names.
func (c *creation) checkNames() error {
	if c.From != "" {
		hosts, err := readHosts(c.From)
		if err != nil {
			return err
		}
		if c.hosts = hosts; len(hosts) > maxMachines {
			return refuseWith(IDBadNumber, fmt.Sprintf("%s has %d hosts", c.From, len(hosts)),
				fmt.Sprintf("use 1 to %d hosts for a sandbox", maxMachines))
		}
		if c.text, err = os.ReadFile(c.From); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(c.Home, "sandboxes", c.Name)); err == nil {
		return nameTaken(c.Name)
	}
	if _, err := os.Lstat(c.sandboxDir()); err == nil {
		return refuseWith(IDNameTaken, c.sandboxDir()+" already exists", "use another directory with --dir")
	}
	return nil
}

func nameTaken(name string) error {
	return refuseWith(IDNameTaken, fmt.Sprintf("a sandbox named %q already exists", name),
		"choose another name, or: slipway sandbox delete "+name)
}

func (c *creation) sandboxDir() string {
	if c.Dir != "" {
		return filepath.Join(c.Dir, c.Name)
	}
	return filepath.Join(c.Home, "sandboxes", c.Name)
}

func (c *creation) checkSpace() error {
	n := max(c.Machines, len(c.hosts))
	for _, need := range []struct {
		dir   string
		bytes int64
	}{{c.Cache, baseSpace}, {filepath.Dir(c.sandboxDir()), int64(n) * machineSpace}} {
		if err := c.Owner.MakeDir(need.dir, 0o755); err != nil {
			return fmt.Errorf("creating a directory: %w", foreignDirError(err, "use another place with --dir, SLIPWAY_HOME or SLIPWAY_CACHE"))
		}
		free, err := freeBytes(need.dir)
		if err != nil {
			return err
		}
		if free < need.bytes {
			return refuseWith(IDNoSpace, fmt.Sprintf("%s has %d MiB of free space, but %d MiB are needed", need.dir, free>>20, need.bytes>>20),
				"free disk space, or use another place with --dir or SLIPWAY_CACHE")
		}
	}
	return nil
}

// makeSandbox claims the names and the range and writes everything except the disks.
func (c *creation) makeSandbox(ctx context.Context) (*Sandbox, error) {
	dir, err := filepath.Abs(c.sandboxDir())
	if err != nil {
		return nil, err
	}
	fd, err := c.makeDir(dir)
	if err != nil {
		return nil, err
	}
	// From here on there is something to clean up.
	s := &Sandbox{
		dir: dir, fd: fd, program: c.Program,
		spec: spec{Version: specVersion, Name: c.Name, Created: time.Now().UTC(), Pool: c.Pool.Masked(), Internet: c.Internet},
	}
	c.made = s
	if err := s.saveState(); err != nil {
		return nil, err
	}
	if s.program == "" {
		if s.program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if c.Dir != "" {
		if err := c.linkHome(dir); err != nil {
			return nil, err
		}
	}
	key, err := newKeyPair("slipway sandbox " + c.Name)
	if err != nil {
		return nil, err
	}
	s.spec.AuthorizedKey = key.Public + " " + c.Name
	err = errors.Join(
		os.WriteFile(s.filePath(keyFile), key.Private, 0o600),
		os.WriteFile(s.filePath(keyFile+".pub"), []byte(s.spec.AuthorizedKey+"\n"), 0o644),
	)
	if err != nil {
		return nil, err
	}
	if err := c.takeRange(ctx, s); err != nil {
		return nil, err
	}
	var known []byte
	for i, m := range s.spec.Machines {
		if s.spec.Machines[i], err = c.makeMachine(s, m); err != nil {
			return nil, err
		}
		known = fmt.Appendf(known, "%s,%s %s\n", m.Address, m.Name, s.spec.Machines[i].HostKey)
	}
	if err := os.WriteFile(s.filePath(knownHostsFile), known, 0o644); err != nil {
		return nil, err
	}
	return s, errors.Join(s.saveState(), c.Owner.GiveFiles(s.filePath(keyFile)))
}

// makeDir creates the directory of the sandbox and opens it. It belongs to root; the
// caller can read it.
func (c *creation) makeDir(dir string) (int, error) {
	parent, err := c.Owner.MakeRoot(filepath.Dir(dir), 0o755)
	if err != nil {
		return -1, foreignDirError(err, "use another place with --dir")
	}
	defer parent.Close()
	if err := parent.Mkdir(c.Name, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return -1, nameTaken(c.Name)
		}
		return -1, err
	}
	fd, err := openIn(parent, c.Name)
	if err != nil {
		return -1, err
	}
	return fd, os.Chmod(pinnedPath(fd), 0o755) // whatever the umask
}

// linkHome links the sandbox into Home, where it is found.
func (c *creation) linkHome(dir string) error {
	home, err := c.Owner.MakeRoot(filepath.Join(c.Home, "sandboxes"), 0o755)
	if err != nil {
		return foreignDirError(err, "use another directory with SLIPWAY_HOME")
	}
	defer home.Close()
	if err := home.Symlink(dir, c.Name); err != nil {
		return err
	}
	c.linked = true
	if c.Owner == nil {
		return nil
	}
	return home.Lchown(c.Name, c.Owner.UID, c.Owner.GID)
}

// takeRange chooses a range and addresses, and claims them on this host.
func (c *creation) takeRange(ctx context.Context, s *Sandbox) error {
	return withHost(ctx, func(host *hostState) error {
		used, err := usedRanges(ctx)
		if err != nil {
			return err
		}
		all, _, err := List(c.Home) // a damaged one with machines has a claim on this host
		if err != nil {
			return err
		}
		for _, other := range all {
			used = append(used, other.spec.Range)
		}
		for id := range host.Claims {
			used = append(used, rangeOf(id))
		}
		if want, ok := wantedRange(s.spec.Pool, c.hosts); ok && !overlapsAny(want, used) {
			s.spec.Range = want
			for _, h := range c.hosts {
				s.spec.Machines = append(s.spec.Machines, machineSpec{Name: h.Name, Address: netip.MustParseAddr(h.Address)})
			}
		} else {
			if s.spec.Range, err = freeRange(s.spec.Pool, used); err != nil {
				return err
			}
			for i, name := range c.machineNames() {
				s.spec.Machines = append(s.spec.Machines, machineSpec{Name: name, Address: nthAddress(s.spec.Range, i+2)})
			}
		}
		// Written before the claim, so that delete knows what to release.
		return errors.Join(s.saveState(), host.claimRange(s.network().rangeID(), s.dir))
	})
}

func (c *creation) machineNames() []string {
	var names []string
	for _, h := range c.hosts {
		names = append(names, h.Name)
	}
	for i := 0; c.From == "" && i < c.Machines; i++ {
		names = append(names, fmt.Sprintf("%s-%d", c.Name, i+1))
	}
	return names
}

func (c *creation) makeMachine(s *Sandbox, m machineSpec) (machineSpec, error) {
	key, err := newKeyPair(m.Name)
	if err != nil {
		return m, err
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return m, err
	}
	m.HostKey, m.MachineID, m.Disk = key.Public, hex.EncodeToString(id[:]), c.Disk
	dir := s.filePath(m.Name)
	return m, errors.Join(
		os.Mkdir(dir, 0o755),
		os.Mkdir(filepath.Join(dir, rootDir), 0o755),
		os.WriteFile(filepath.Join(dir, hostKeyFile), key.Private, 0o600),
	)
}

func (c *creation) writeClusterFile(s *Sandbox) (err error) {
	groups, err := s.openCgroups()
	if err != nil {
		return err
	}
	file := clusterFile{Name: c.Name, Kubernetes: c.Kubernetes, KeyFile: s.PrivateKeyFile(), CgroupV1: !groups.isV2()}
	for i, m := range s.spec.Machines {
		role := v1alpha1.RoleWorker
		if i < c.ControlPlanes {
			role = v1alpha1.RoleControlPlane
		}
		file.Hosts = append(file.Hosts, clusterHost{Name: m.Name, Address: m.Address.String(), Role: string(role), HostKey: m.HostKey})
	}
	text, err := file.renderYAML()
	if c.From != "" {
		text, err = rewriteHosts(c.text, file)
	}
	if err != nil {
		return err
	}
	f, err := safefile.OpenFile(c.Out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	c.wrote = true
	_, err = f.Write(text)
	if c.Owner != nil {
		err = errors.Join(err, f.Chown(c.Owner.UID, c.Owner.GID))
	}
	return errors.Join(err, f.Close())
}

// undoCreation removes everything that was created; the context may have ended.
func (c *creation) undoCreation(ctx context.Context) error {
	if c.made == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var errs []error
	if c.wrote {
		errs = append(errs, safefile.Remove(c.Out))
	}
	if c.linked {
		errs = append(errs, c.made.unlinkHome(c.Home))
	}
	return errors.Join(append(errs, c.made.destroyAll(ctx))...)
}
