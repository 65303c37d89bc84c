//go:build linux

package reset

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/netfilter"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/executor/program"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// KubernetesOp executes op.Reset.
type KubernetesOp struct{ Op op.Reset }

func (x *KubernetesOp) Paths() []string {
	return slices.Concat(x.Op.Mounts, x.Op.Paths)
}

// netnsDir is the mount directory of named network namespaces.
const netnsDir = "/run/netns"

// leftovers has everything that Kubernetes created on this host at run time.
type leftovers struct {
	steps     []string // Slipway's steps that no manager controls
	units     []string
	processes []process.Process // in pods, and their shims
	mounts    []string
	links     []string
	addresses []held
	cni       attachments
	filter    packetFilter
	slices    []string // of pods, in systemd
	cgroups   []string // deepest first
	paths     []string
	full      []string // directories that were empty
	kept      []string // with the reason why some of them must not be removed
}

// matchPaths reports whether a name is in the list, or begins with an item that ends in
// "*".
func matchPaths(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		prefix, wild := strings.CutSuffix(n, "*")
		return n == name || wild && prefix != "" && strings.HasPrefix(name, prefix)
	})
}

func findLeftovers(ctx context.Context, h *host.Host, o op.Reset) (leftovers, error) {
	var l leftovers
	var err error
	if l.steps, err = program.UnclaimedUnits(h); err != nil {
		return l, err
	}
	for _, name := range o.Units {
		u, err := systemctl.ShowUnit(ctx, h, name)
		if err != nil {
			return l, err
		}
		if u.IsRunning() {
			l.units = append(l.units, name)
		}
	}
	if l.processes, err = process.PodProcesses(h, onlyPods(o)); err != nil {
		return l, err
	}
	if l.mounts, err = mountsBelow(h, o.Mounts); err != nil {
		return l, err
	}
	if l.links, err = linksNamed(o.Links); err != nil {
		return l, err
	}
	if l.addresses, err = heldAddresses(o.Addresses); err != nil {
		return l, err
	}
	if l.cni, err = findAttachments(h, o); err != nil {
		return l, err
	}
	if l.filter, err = findFilter(o, l.cni); err != nil {
		return l, err
	}
	if l.slices, err = activeSlices(ctx, h, o.Cgroups); err != nil {
		return l, err
	}
	l.cgroups = process.FindCgroups(h, o.Cgroups)
	return l, resetPaths(h, o, &l)
}

// resetPaths adds the paths that the ledger allows to remove or empty.
func resetPaths(h *host.Host, o op.Reset, out *leftovers) error {
	l, err := ledger.Open(h.State, h.Root, h.Disk, ledger.Owner{})
	if err != nil {
		return err
	}
	for _, p := range o.Paths {
		if host.Exists(h.DiskPath(p)) && l.WasAbsent(p) {
			out.paths = append(out.paths, p)
			continue
		}
		dir, err := hostfs.ResolveDir(h, p)
		if err != nil {
			continue // a link to no directory of this host
		}
		full, left, err := l.IsFilled(dir)
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
	n, err := netfilter.OpenNFT()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return packetFilter{}, nil // this kernel has no netfilter
	}
	if err != nil {
		return packetFilter{}, err
	}
	defer n.Close()
	return findOwnedRules(n, owned{tables: o.NFTables, prefixes: o.IPTables, cni: cni})
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
		if l.Flags&net.FlagLoopback == 0 && matchPaths(names, l.Name) {
			out = append(out, l.Name)
		}
	}
	return out, nil
}

func (l leftovers) String() string {
	var parts []string
	add := func(verb string, names []string) {
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", verb, host.Summarize(names)))
		}
	}
	count := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add("end", l.steps)
	add("stop", l.units)
	add("stop", l.slices)
	count(len(l.processes), "pod processes to stop")
	count(len(l.mounts), "mounts to remove")
	add("remove links", l.links)
	for _, a := range l.addresses {
		add("remove address", []string{a.prefix.Addr().String()})
	}
	add("remove network namespaces", l.cni.namespaces)
	if !l.filter.isEmpty() {
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

func (x *KubernetesOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	l, err := findLeftovers(ctx, h, o)
	if err != nil {
		return host.CheckResult{}, err
	}
	ours, err := ledger.Open(h.State, h.Root, h.Disk, ledger.Owner{})
	if err != nil {
		return host.CheckResult{}, err
	}
	change := l.String()
	if change != "" && o.KeepUnmanaged && ours.IsEmpty() {
		return host.CheckResult{}, &op.Error{
			Reason:  op.IDUnmanaged,
			Message: "this host has no ledger: Slipway did not install it, and changes nothing (" + change + ")",
		}
	}
	return host.CheckResult{Change: change}, nil
}

func (x *KubernetesOp) Apply(ctx context.Context, h *host.Host, res *op.Result) error {
	o := x.Op
	if o.Serves == nil || health.IsServing(ctx, h, *o.Serves) {
		if err := health.AwaitGate(ctx, h, o.Gate); err != nil {
			return err
		}
	}
	// A step that continues could create something again afterwards.
	begun, err := program.UnclaimedUnits(h)
	if err != nil {
		return err
	}
	for _, unit := range begun {
		if err := program.EndUnit(ctx, h, unit); err != nil {
			return err
		}
	}
	if err := stopPods(ctx, h, o); err != nil {
		return err
	}
	// Search again for objects of the components after they have stopped.
	l, err := findLeftovers(ctx, h, o)
	if err != nil {
		return err
	}
	if err := unmountAll(ctx, l.mounts); err != nil {
		return err
	}
	for _, name := range l.cni.namespaces {
		if err := removeNamespace(h, name); err != nil {
			return err
		}
	}
	for _, name := range l.links {
		if err := netfilter.DeleteLink(name); err != nil {
			return err
		}
	}
	for _, a := range l.addresses {
		if err := a.removeAddresses(); err != nil {
			return err
		}
	}
	if err := removeFilter(l.filter); err != nil {
		return err
	}
	if err := removeCgroups(ctx, h, o.Cgroups); err != nil {
		return err
	}
	// The last data that identify the owner of something.
	if err := removeAttachments(h, l.cni); err != nil {
		return err
	}
	notes, err := removePaths(h, l)
	if err != nil {
		return err
	}
	notes = append(notes, legacyRules(ctx, h, o.IPTables)...)
	if len(notes) > 0 {
		res.Output = joinLines(notes)
	}
	return nil
}

// joinLines returns the lines of an output. Names of files on the host can have line breaks, and must not look like other
// lines.
func joinLines(lines []string) []byte {
	const end = "\x00" // no name has it
	text := strings.ReplaceAll(strings.Join(lines, end)+end, "\n", `\n`)
	return []byte(strings.ReplaceAll(text, end, "\n"))
}

// removePaths returns the remaining paths, with the reason.
func removePaths(h *host.Host, l leftovers) ([]string, error) {
	notes := l.kept
	for _, p := range slices.Concat(l.paths, l.full) {
		remove := h.Ledger.RemoveAbsent
		if slices.Contains(l.full, p) {
			remove = h.Ledger.ClearDir
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
	if p.isEmpty() {
		return nil
	}
	n, err := netfilter.OpenNFT()
	if err != nil {
		return err
	}
	defer n.Close()
	return removeOwnedRules(n, p)
}

// removeNamespace unmounts and removes a named network namespace; its links are removed
// once nothing uses it.
func removeNamespace(h *host.Host, name string) error {
	p := h.DiskPath(filepath.Join(netnsDir, name))
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
func legacyRules(ctx context.Context, h *host.Host, prefixes []string) []string {
	if len(prefixes) == 0 || h.ReadText("/proc/net/ip_tables_names") == "" {
		return nil
	}
	out, err := h.Output(ctx, "iptables-legacy-save")
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
