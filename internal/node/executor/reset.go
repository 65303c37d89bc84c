//go:build linux

package executor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// resetOp executes op.Reset.
type resetOp struct{ o op.Reset }

func (x *resetOp) Paths() []string {
	return slices.Concat(x.o.Mounts, x.o.Paths)
}

// netnsDir is the mount directory of named network namespaces.
const netnsDir = "/run/netns"

// settle limits how long a Reset waits for killed processes to end.
const settle = 15 * time.Second

// leftovers has everything that Kubernetes created on this host at run time.
type leftovers struct {
	steps     []string // Slipway's steps that no manager controls
	units     []string
	processes []process // in pods, and their shims
	mounts    []string
	links     []string
	addresses []held
	cni       attachments
	filter    packetFilter
	cgroups   []string // deepest first
	paths     []string
	full      []string // directories that were empty
	kept      []string // with the reason why some of them must not be removed
}

// matches reports whether a name is in the list, or begins with an item that ends in "*".
func matches(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		prefix, wild := strings.CutSuffix(n, "*")
		return n == name || wild && prefix != "" && strings.HasPrefix(name, prefix)
	})
}

func (s *session) leftovers(ctx context.Context, o op.Reset) (leftovers, error) {
	var l leftovers
	var err error
	if l.steps, err = s.untaken(); err != nil {
		return l, err
	}
	for _, name := range o.Units {
		u, err := s.unit(ctx, name)
		if err != nil {
			return l, err
		}
		if u.running() {
			l.units = append(l.units, name)
		}
	}
	if l.processes, err = s.podProcesses(ofPods(o)); err != nil {
		return l, err
	}
	if l.mounts, err = s.mountsBelow(o.Mounts); err != nil {
		return l, err
	}
	if l.links, err = linksNamed(o.Links); err != nil {
		return l, err
	}
	if l.addresses, err = heldAddresses(o.Addresses); err != nil {
		return l, err
	}
	if l.cni, err = s.attachments(o); err != nil {
		return l, err
	}
	if l.filter, err = findFilter(o, l.cni); err != nil {
		return l, err
	}
	l.cgroups = s.cgroupsNamed(o.Cgroups)
	return l, s.resetPaths(o, &l)
}

// resetPaths adds the paths that the ledger allows to remove or empty.
func (s *session) resetPaths(o op.Reset, out *leftovers) error {
	l, err := ledger.Open(s.State, s.Root, s.disk, ledger.Owner{})
	if err != nil {
		return err
	}
	for _, p := range o.Paths {
		if exists(s.path(p)) && l.WasAbsent(p) {
			out.paths = append(out.paths, p)
			continue
		}
		dir, err := s.followed(p)
		if err != nil {
			continue // a link to no directory of this host
		}
		full, left, err := l.Filled(dir)
		switch {
		case err != nil:
			return err
		case left != "":
			out.kept = append(out.kept, dir+": left: "+left)
		case full:
			out.full = append(out.full, dir)
		}
	}
	return nil
}

func findFilter(o op.Reset, cni attachments) (packetFilter, error) {
	if len(o.NFTables)+len(o.IPTables) == 0 && !cni.asked {
		return packetFilter{}, nil
	}
	n, err := openNFT()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return packetFilter{}, nil // this kernel has no netfilter
	}
	if err != nil {
		return packetFilter{}, err
	}
	defer n.close()
	return n.findFilter(owned{tables: o.NFTables, prefixes: o.IPTables, cni: cni})
}

func linksNamed(names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing network links: %w", err)
	}
	var out []string
	for _, l := range links {
		if l.Flags&net.FlagLoopback == 0 && matches(names, l.Name) {
			out = append(out, l.Name)
		}
	}
	return out, nil
}

func (l leftovers) String() string {
	var parts []string
	add := func(verb string, names []string) {
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", verb, some(names)))
		}
	}
	count := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add("end", l.steps)
	add("stop", l.units)
	count(len(l.processes), "pod processes to stop")
	count(len(l.mounts), "mounts to remove")
	add("remove links", l.links)
	for _, a := range l.addresses {
		add("remove address", []string{a.prefix.Addr().String()})
	}
	add("remove network namespaces", l.cni.namespaces)
	if !l.filter.none() {
		parts = append(parts,
			fmt.Sprintf("remove %d tables, %d chains and %d rules of the packet filter", len(l.filter.tables),
				len(l.filter.chains), len(l.filter.rules)))
	}
	count(len(l.cgroups), "cgroups to remove")
	count(len(l.cni.paths), "CNI records of pods to remove")
	add("remove", l.paths)
	add("remove everything in", l.full)
	parts = append(parts, l.kept...)
	return strings.Join(parts, ", ")
}

func (x *resetOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	l, err := s.leftovers(ctx, o)
	if err != nil {
		return verdict{}, err
	}
	ours, err := ledger.Open(s.State, s.Root, s.disk, ledger.Owner{})
	if err != nil {
		return verdict{}, err
	}
	change := l.String()
	if change != "" && o.KeepUnmanaged && ours.Empty() {
		return verdict{}, &op.Error{Reason: op.IDUnmanaged,
			Message: "this host has no ledger: Slipway did not install it, and changes nothing (" + change + ")"}
	}
	return verdict{change: change}, nil
}

func (x *resetOp) Apply(ctx context.Context, s *session, res *op.Result) error {
	o := x.o
	if o.Serves == nil || s.serves(ctx, *o.Serves) {
		if err := s.pass(ctx, o.Gate); err != nil {
			return err
		}
	}
	// A step that continues could create something again afterwards.
	begun, err := s.untaken()
	if err != nil {
		return err
	}
	for _, unit := range begun {
		if err := s.endWhole(ctx, unit); err != nil {
			return err
		}
	}
	if err := s.stopPods(ctx, o); err != nil {
		return err
	}
	// Search again for objects of the components after they have stopped.
	l, err := s.leftovers(ctx, o)
	if err != nil {
		return err
	}
	if err := s.unmountAll(ctx, l.mounts); err != nil {
		return err
	}
	for _, name := range l.cni.namespaces {
		if err := s.removeNamespace(name); err != nil {
			return err
		}
	}
	for _, name := range l.links {
		if err := deleteLink(name); err != nil {
			return err
		}
	}
	for _, a := range l.addresses {
		if err := a.remove(); err != nil {
			return err
		}
	}
	if err := removeFilter(l.filter); err != nil {
		return err
	}
	if err := s.removeCgroups(ctx, o.Cgroups); err != nil {
		return err
	}
	// The last data that identify the owner of something.
	if err := s.removeAttachments(l.cni); err != nil {
		return err
	}
	notes, err := s.removePaths(l)
	if err != nil {
		return err
	}
	notes = append(notes, s.legacyRules(ctx, o.IPTables)...)
	if len(notes) > 0 {
		res.Output = []byte(strings.Join(notes, "\n") + "\n")
	}
	return nil
}

// removePaths returns the remaining paths, with the reason.
func (s *session) removePaths(l leftovers) ([]string, error) {
	notes := l.kept
	for _, p := range slices.Concat(l.paths, l.full) {
		remove := s.ledger.RemoveAbsent
		if slices.Contains(l.full, p) {
			remove = s.ledger.Clear
		}
		out, err := remove(p)
		if err != nil {
			return nil, fmt.Errorf("removing %s: %w", p, err)
		}
		if out.Left != "" {
			notes = append(notes, p+": left: "+out.Left)
		}
	}
	return notes, nil
}

func removeFilter(p packetFilter) error {
	if p.none() {
		return nil
	}
	n, err := openNFT()
	if err != nil {
		return err
	}
	defer n.close()
	return n.removeFilter(p)
}

// removeNamespace unmounts and removes a named network namespace; its links are removed
// once nothing uses it.
func (s *session) removeNamespace(name string) error {
	p := s.path(filepath.Join(netnsDir, name))
	if err := unix.Unmount(p, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting network namespace %s: %w", name, err)
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing network namespace %s: %w", name, err)
	}
	return nil
}

// legacyRules reports rules in the old packet filter, which Slipway's components do not
// use: they belong to other software, or to another installer.
func (s *session) legacyRules(ctx context.Context, prefixes []string) []string {
	if len(prefixes) == 0 || s.text("/proc/net/ip_tables_names") == "" {
		return nil
	}
	out, err := s.output(ctx, "iptables-legacy-save")
	if err != nil {
		return nil // no program on this host can create such rules either
	}
	n := 0
	for line := range strings.Lines(out) {
		for _, p := range prefixes {
			if strings.Contains(line, " "+p) || strings.HasPrefix(line, ":"+p) {
				n++
				break
			}
		}
	}
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("legacy iptables rules: left: %d lines of %s, not created by Slipway; see iptables-legacy-save",
		n, strings.Join(prefixes, ", "))}
}
