package spec

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
)

// A SharedAddress is an address of a host that an earlier host has too.
type SharedAddress struct {
	// Host and Earlier are the indexes of the two hosts.
	Host, Earlier int
	// Field is the field of the host, address or internalAddress, and Text its value in words.
	Field, Text string
}

// SharedAddressHint is the action against a shared address.
const SharedAddressHint = "set ssh.port and internalAddress for each host if several hosts share an address"

// FindSharedAddresses returns the addresses by which two hosts are the same machine. The
// cluster may be without defaults: missing values count as SetDefaults would set them.
func FindSharedAddresses(c *v1alpha1.Cluster) (out []SharedAddress) {
	logins, internal := map[string]int{}, map[string]int{}
	for i, h := range c.Spec.Hosts {
		earlier, shared := noteHost(logins, LoginKey(c, h), i)
		if shared {
			out = append(out, SharedAddress{Host: i, Earlier: earlier, Field: "address", Text: LoginText(c, h)})
		}
		address := nodeAddress(h)
		if shared && address == CanonicalIP(h.Address) {
			continue // already in the result
		}
		if earlier, shared := noteHost(internal, address, i); shared {
			out = append(out, SharedAddress{Host: i, Earlier: earlier, Field: "internalAddress", Text: address})
		}
	}
	return out
}

// noteHost adds host i with a key, and returns the earlier host with this key, if there is one.
func noteHost(seen map[string]int, key string, i int) (int, bool) {
	if key == "" {
		return 0, false
	}
	earlier, ok := seen[key]
	if !ok {
		seen[key] = i
	}
	return earlier, ok
}

// nodeAddress returns the address of a host in the node network, "" if the host reports it.
func nodeAddress(h v1alpha1.Host) string {
	if h.InternalAddress != "" {
		return CanonicalIP(h.InternalAddress)
	}
	if ip, err := netip.ParseAddr(h.Address); err == nil && !ip.IsLoopback() {
		return CanonicalIP(h.Address)
	}
	return ""
}

// LoginKey identifies a machine by its SSH destination: address, port and bastion. It is "" without an address.
func LoginKey(c *v1alpha1.Cluster, h v1alpha1.Host) string {
	if h.Address == "" {
		return ""
	}
	if h.Address == localhost {
		return localhost
	}
	ssh := MergeSSH(c.Spec.SSH, h.SSH)
	key := destination(h.Address, ssh.Port)
	if ssh.Bastion != nil {
		key += " " + destination(ssh.Bastion.Address, ssh.Bastion.Port)
	}
	return key
}

// destination returns an address and a port in the form in which they are compared.
func destination(address string, port int) string {
	return strings.ToLower(CanonicalIP(address)) + " " + strconv.Itoa(cmp.Or(port, DefaultSSHPort))
}

// LoginText returns the SSH destination of a host in words.
func LoginText(c *v1alpha1.Cluster, h v1alpha1.Host) string {
	if port := MergeSSH(c.Spec.SSH, h.SSH).Port; port != 0 && port != DefaultSSHPort {
		return h.Address + " port " + strconv.Itoa(port)
	}
	return h.Address
}
