package sandbox

import (
	"fmt"
	"net/netip"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/owner"
)

// Options say what Create makes. Home, Cache and Name are required.
type Options struct {
	// Home is Slipway's state directory, Cache that for what can be made
	// again.
	Home, Cache string
	Name        string
	// Machines is how many; default 1. From overrides it.
	Machines int
	// ControlPlanes is how many of them are control planes; default 1.
	ControlPlanes int
	// From is a cluster file: there is one machine for each of its hosts,
	// of the same name, and the same address if that is possible.
	From string
	// Kubernetes is the version for the cluster file; "" leaves it open.
	Kubernetes string
	// Dir is the directory to keep the sandbox in; default Home/sandboxes.
	Dir string
	// Out is the cluster file to write; default NAME.yaml.
	Out string
	// Disk is the size of each machine's disk in bytes; default 20 GiB.
	Disk int64
	// Internet lets the machines out.
	Internet bool
	// Pool is where the sandbox's range is taken from; default
	// 198.18.0.0/16.
	Pool netip.Prefix
	// Program is the slipway program that keeps the machines; default:
	// this one.
	Program string
	// Owner is whose files the keys, records and the cluster file become;
	// nil leaves them to this process's user. The machines are root's.
	Owner *owner.Owner
	// Progress is told what happens, in words. It may be nil.
	Progress func(string)
}

const (
	defaultDisk = 20 << 30
	minDisk     = 2 << 30
)

// withDefaults fills in what was left out, and reports all that is wrong.
func (o Options) withDefaults() (Options, error) {
	if o.Machines == 0 {
		o.Machines = 1
	}
	if o.ControlPlanes == 0 {
		o.ControlPlanes = 1
	}
	if o.Disk == 0 {
		o.Disk = defaultDisk
	}
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
		list = append(list, problem(IDBadName, fmt.Sprintf("%q cannot name a sandbox", o.Name),
			"use up to 40 small letters, digits and hyphens, a letter first"))
	}
	if o.Machines < 1 || o.Machines > maxMachines {
		list = append(list, problem(IDBadNumber, fmt.Sprintf("%d machines", o.Machines),
			fmt.Sprintf("a sandbox has 1 to %d", maxMachines)))
	}
	if o.From == "" && (o.ControlPlanes < 0 || o.ControlPlanes > o.Machines) {
		list = append(list, problem(IDBadNumber, fmt.Sprintf("%d control planes of %d machines", o.ControlPlanes, o.Machines),
			"ask for at least as many machines"))
	}
	if o.Disk < minDisk {
		list = append(list, problem(IDBadNumber, fmt.Sprintf("a disk of %d MiB", o.Disk>>20),
			fmt.Sprintf("give it at least %d MiB", minDisk>>20)))
	}
	if !o.Pool.Addr().Is4() || o.Pool.Bits() > rangeBits || o.Pool.Bits() < 8 {
		list = append(list, problem(IDBadRange, fmt.Sprintf("no sandbox fits into %s", o.Pool),
			"name an IPv4 network from /8 to /24"))
	}
	return o, list.Err()
}
