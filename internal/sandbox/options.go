package sandbox

import (
	"fmt"
	"net/netip"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
)

// Options configure Create. Home, Cache, Name and the numbers are required.
type Options struct {
	// Home is Slipway's state directory, Cache the directory for content that can be
	// created again.
	Home, Cache string
	Name        string
	// Machines is the number of machines; From overrides it.
	Machines int
	// ControlPlanes is the number of control planes among them.
	ControlPlanes int
	// From is a cluster file: the sandbox has one machine for each of its hosts, with the
	// same name, and the same address if possible.
	From string
	// Kubernetes is the version for the cluster file; "" leaves it out.
	Kubernetes string
	// Dir is the directory for the sandbox; default Home/sandboxes.
	Dir string
	// Out is the cluster file to write; default NAME.yaml.
	Out string
	// Disk is the size of each machine's disk in bytes.
	Disk int64
	// Internet gives the machines internet access.
	Internet bool
	// Pool is the source of the sandbox's range; default 198.18.0.0/16.
	Pool netip.Prefix
	// Program is the slipway program that supervises the machines; default: this one.
	Program string
	// Owner is the owner of the keys, records and the cluster file; nil is the user of
	// this process. The machines belong to root.
	Owner *fileowner.Owner
	// Progress is called with a description of each step. It can be nil.
	Progress func(string)
}

const minDisk = 2 << 30

// withDefaults sets defaults, and reports all problems.
func (o Options) withDefaults() (Options, error) {
	if o.Out == "" {
		o.Out = o.Name + ".yaml"
	}
	if !o.Pool.IsValid() {
		o.Pool = defaultPool
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	var list diag.List
	if !nameRE.MatchString(o.Name) {
		list = append(list, newProblem(IDBadName, fmt.Sprintf("%q is not a valid sandbox name", o.Name),
			"use up to 40 lower-case letters, digits and hyphens, with a letter first"))
	}
	if o.Machines < 1 || o.Machines > maxMachines {
		list = append(list, newProblem(IDBadNumber, fmt.Sprintf("a sandbox cannot have %d machines", o.Machines),
			fmt.Sprintf("use 1 to %d machines for a sandbox", maxMachines)))
	}
	if o.From == "" && (o.ControlPlanes < 1 || o.ControlPlanes > o.Machines) {
		list = append(list, newProblem(IDBadNumber, fmt.Sprintf("%d machines cannot provide %d control planes", o.Machines, o.ControlPlanes),
			"use at least one control plane, and not more control planes than machines"))
	}
	if o.Disk < minDisk {
		list = append(list, newProblem(IDBadNumber, fmt.Sprintf("a disk of %d MiB is too small", o.Disk>>20),
			fmt.Sprintf("use at least %d MiB", minDisk>>20)))
	}
	if p := poolProblem(o.Pool); p != "" {
		list = append(list, newProblem(IDBadRange, p, "use an IPv4 network from /8 to /24"))
	}
	return o, list.Err()
}

// poolProblem returns why no sandbox can take its range from a network, or "".
func poolProblem(pool netip.Prefix) string {
	if !pool.Addr().Is4() || pool.Bits() > rangeBits || pool.Bits() < 8 {
		return fmt.Sprintf("the network %s is too small for a sandbox", pool)
	}
	return ""
}
