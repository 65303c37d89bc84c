// Package facts is a typed observation of hosts: what to ask of them, what
// they answer, and a digest over the part of it that plans depend on.
package facts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// A Host is what was seen of one host of the file.
type Host struct {
	Spec v1alpha1.Host
	// Facts are what it says of itself; nil if it could not be asked, and
	// then Err says why (a *remote.Error, if it could not be reached).
	Facts *op.HostFacts
	Err   error
	// Skew is the host's clock minus the manager's at the middle of the
	// round trip; it is right to within Uncertainty.
	Skew        time.Duration
	Uncertainty time.Duration
}

// Ours says that Slipway has set the host up for this cluster.
func (h Host) Ours(cluster string) bool {
	return h.Facts != nil && h.Facts.Ledger && h.Facts.Cluster == cluster
}

// askTime bounds the question: a file system that hangs must not hang us.
const askTime = time.Minute

// Ask asks a host what it is. It changes nothing there; what goes wrong is in
// the answer's Err.
func Ask(ctx context.Context, spec v1alpha1.Host, conn remote.Host, want op.Facts) Host {
	h := Host{Spec: spec}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	start := time.Now()
	results, err := conn.Check(ctx, op.List{want})
	trip := time.Since(start)
	if err != nil {
		h.Err = err
		return h
	}
	if len(results) != 1 {
		h.Err = fmt.Errorf("reading the facts of %s: %d replies instead of one", spec.Name, len(results))
		return h
	}
	if e := results[0].Error; e != nil {
		h.Err = fmt.Errorf("reading the facts of %s: %w", spec.Name, e)
		return h
	}
	f := &op.HostFacts{}
	if err := json.Unmarshal(results[0].Output, f); err != nil {
		h.Err = fmt.Errorf("reading the facts of %s: %w", spec.Name, err)
		return h
	}
	h.Facts = f
	// The host says whole seconds: its clock is half a second further, give
	// or take as much.
	const half = time.Second / 2
	h.Skew = time.Unix(f.TimeUnix, 0).Add(half).Sub(start.Add(trip / 2))
	h.Uncertainty = half + trip/2
	return h
}

// Digest is over what plans are made of, so that a plan can be refused when
// the hosts are no longer those it was made for. Gauges (free space, time,
// listeners) and what an operation itself changes (host name, swap, ledger)
// are not in it. It does not depend on the order of hosts.
func Digest(hosts []Host) string {
	type stable struct {
		Name        string   `json:"name"`
		Known       bool     `json:"known"`
		MachineID   string   `json:"machineID"`
		Arch        string   `json:"arch"`
		OS          string   `json:"os"`
		Cgroup      int      `json:"cgroup"`
		Controllers []string `json:"controllers"`
		Resource    bool     `json:"resource"`
		Features    []string `json:"features"`
	}
	list := make([]stable, len(hosts))
	for i, h := range hosts {
		list[i].Name = h.Spec.Name
		if f := h.Facts; f != nil {
			list[i] = stable{
				Name: h.Spec.Name, Known: true, MachineID: f.MachineID, Arch: f.Arch, OS: f.OS.ID,
				Cgroup: f.CgroupVersion, Controllers: sorted(f.CgroupControllers),
				Resource: f.ResourceCapability, Features: sorted(f.KernelFeatures),
			}
		}
	}
	slices.SortFunc(list, func(a, b stable) int { return strings.Compare(a.Name, b.Name) })
	raw, err := json.Marshal(list)
	if err != nil { // text, numbers and lists of them always encode
		return ""
	}
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func sorted(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}

// Addresses are those of a host that others can use: no loopback, no
// link-local ones, and none of the links that container networks make.
func Addresses(f *op.HostFacts) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range f.Addresses {
		p, err := netip.ParsePrefix(a.Prefix)
		if err != nil || virtual(a.Link) {
			continue
		}
		if ip := p.Addr(); ip.IsGlobalUnicast() && !ip.IsLinkLocalUnicast() {
			out = append(out, p)
		}
	}
	return out
}

// DefaultAddress is the first of Addresses, IPv4 before IPv6, for a host whose
// file does not say where others reach it; "" if there is none.
func DefaultAddress(f *op.HostFacts) string {
	all := Addresses(f)
	if i := slices.IndexFunc(all, func(p netip.Prefix) bool { return p.Addr().Is4() }); i >= 0 {
		return all[i].Addr().String()
	}
	if len(all) > 0 {
		return all[0].Addr().String()
	}
	return ""
}

// OtherAddress is a host's address of the other IP version than the given one,
// for dual stack: on the same link if there is one, the lowest of several, so
// that their order does not matter; "" if there is none.
func OtherAddress(f *op.HostFacts, address string) string {
	one, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	link := Link(f, address)
	var near, far []netip.Addr
	for _, a := range f.Addresses {
		for _, p := range Addresses(&op.HostFacts{Addresses: []op.Address{a}}) {
			switch ip := p.Addr().Unmap(); {
			case ip.Is4() == one.Unmap().Is4():
			case a.Link == link:
				near = append(near, ip)
			default:
				far = append(far, ip)
			}
		}
	}
	for _, list := range [][]netip.Addr{near, far} {
		if len(list) > 0 {
			return slices.MinFunc(list, netip.Addr.Compare).String()
		}
	}
	return ""
}

// Link returns the network link of a host that has an address, "" if none does.
func Link(f *op.HostFacts, address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	for _, a := range f.Addresses {
		if p, err := netip.ParsePrefix(a.Prefix); err == nil && p.Addr().Unmap() == ip.Unmap() {
			return a.Link
		}
	}
	return ""
}

// virtual says that a link is made by a container network.
func virtual(link string) bool {
	if i := strings.IndexByte(link, '@'); i >= 0 {
		link = link[:i]
	}
	return slices.ContainsFunc([]string{
		"lo", "cni", "flannel", "veth", "docker", "br-", "kube-", "virbr", "cali", "vxlan.calico", "cilium", "lxc",
		"nodelocaldns", "podman",
	}, func(prefix string) bool { return strings.HasPrefix(link, prefix) && (prefix != "lo" || link == "lo") })
}
