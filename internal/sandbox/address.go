package sandbox

import (
	"encoding/hex"
	"fmt"
	"net/netip"
)

// defaultPool is the default source of sandbox ranges: the network that RFC 2544 reserves
// for benchmarks, which is not routed.
var defaultPool = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, 0}), 16)

const (
	rangeBits = 24 // of one sandbox
	// maxMachines excludes the network address, the host's bridge address and the
	// broadcast address, and is small enough for any host.
	maxMachines = 200
)

// freeRange returns the first /24 of pool that overlaps none of used.
func freeRange(pool netip.Prefix, used []netip.Prefix) (netip.Prefix, error) {
	for addr := pool.Masked().Addr(); pool.Contains(addr); addr = nextRange(addr) {
		p := netip.PrefixFrom(addr, rangeBits)
		if !overlapsAny(p, used) {
			return p, nil
		}
	}
	return netip.Prefix{}, refuseWith(IDRangeTaken,
		fmt.Sprintf("every /%d in %s is in use", rangeBits, pool),
		"delete a sandbox, or use another network with --range")
}

func overlapsAny(p netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if p.Overlaps(u) {
			return true
		}
	}
	return false
}

// nextRange returns the network address of the next /24; it wraps at the end of the
// address space, which no pool contains.
func nextRange(a netip.Addr) netip.Addr {
	b := a.As4()
	n := uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2])
	n++
	return netip.AddrFrom4([4]byte{byte(n >> 16), byte(n >> 8), byte(n), 0})
}

// nthAddress returns the address with this last byte.
func nthAddress(p netip.Prefix, n int) netip.Addr {
	b := p.Addr().As4()
	b[3] = byte(n)
	return netip.AddrFrom4(b)
}

// rangeID names a range in the names of links and cgroups: its first three bytes in
// hexadecimal, unique on a host.
func rangeID(p netip.Prefix) string {
	b := p.Addr().As4()
	return fmt.Sprintf("%02x%02x%02x", b[0], b[1], b[2])
}

// macOf derives a locally administered hardware address from an address. It does not
// change at a reboot, so that the caches of neighbours remain valid.
func macOf(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

// rangeOf returns the range of a rangeID; false for another kind of ID.
func rangeOf(id string) netip.Prefix {
	b, err := hex.DecodeString(id)
	if err != nil || len(b) != 3 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{b[0], b[1], b[2], 0}), rangeBits)
}
