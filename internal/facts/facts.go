// Package facts observes hosts: the questions, the answers, and a digest of the part that
// plans depend on.
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

// A Host is an observed host of the file.
type Host struct {
	Spec v1alpha1.Host
	// Facts is the host's answer; nil if it could not be asked. Err is then the reason (a
	// *remote.Error if the host could not be reached).
	Facts *op.HostFacts
	Err   error
	// Skew is the host's clock minus the manager's clock at the middle of the round trip,
	// with an error of at most Uncertainty.
	Skew        time.Duration
	Uncertainty time.Duration
}

// IsManagedFor reports whether Slipway has set up the host for this cluster.
func (h Host) IsManagedFor(cluster string) bool {
	return h.Facts != nil && h.Facts.Ledger && h.Facts.Cluster == cluster
}

// askTime limits the request: a hanging file system must not block the manager.
const askTime = time.Minute

// ReadHost reads the facts of a host. It changes nothing on the host; an error is returned in
// Err.
func ReadHost(ctx context.Context, spec v1alpha1.Host, conn remote.Host, want op.Facts) Host {
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
	// The host reports whole seconds: on average its clock is half a second further, with
	// an error of half a second.
	const half = time.Second / 2
	h.Skew = time.Unix(f.TimeUnix, 0).Add(half).Sub(start.Add(trip / 2))
	h.Uncertainty = half + trip/2
	return h
}

// DigestOf covers the facts that plans depend on, so that a plan can be rejected if the
// hosts have changed. It does not include measured values (free space, time, listeners)
// and values that an operation itself changes (host name, swap, ledger). It does not
// depend on the order of hosts.
func DigestOf(hosts []Host) string {
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
				Cgroup: f.CgroupVersion, Controllers: sortedCopy(f.CgroupControllers),
				Resource: f.ResourceCapability, Features: sortedCopy(f.KernelFeatures),
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

func sortedCopy(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}

// Addresses returns the addresses of a host that other hosts can use: no loopback and
// link-local addresses, and no addresses on links of container networks.
func Addresses(f *op.HostFacts) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range f.Addresses {
		p, err := netip.ParsePrefix(a.Prefix)
		if err != nil || isContainerLink(a.Link) {
			continue
		}
		if ip := p.Addr(); ip.IsGlobalUnicast() && !ip.IsLinkLocalUnicast() {
			out = append(out, p)
		}
	}
	return out
}

// DefaultAddress returns the first of Addresses, IPv4 before IPv6, for a host whose
// address for other nodes is not in the file; "" if there is none.
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

// OtherAddress returns a host's address of the other IP version than address, for dual
// stack: on the same link if there is one. Of several it returns the lowest, so that
// their order does not matter; "" if there is none.
func OtherAddress(f *op.HostFacts, address string) string {
	one, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	link := LinkWithAddress(f, address)
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

// LinkWithAddress returns the network link of a host that has an address, "" if none does.
func LinkWithAddress(f *op.HostFacts, address string) string {
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

// isContainerLink reports whether a link belongs to a container network.
func isContainerLink(link string) bool {
	if i := strings.IndexByte(link, '@'); i >= 0 {
		link = link[:i]
	}
	return slices.ContainsFunc([]string{
		"lo", "cni", "flannel", "veth", "docker", "br-", "kube-", "virbr", "cali", "vxlan.calico", "cilium", "lxc",
		"nodelocaldns", "podman",
	}, func(prefix string) bool { return strings.HasPrefix(link, prefix) && (prefix != "lo" || link == "lo") })
}
