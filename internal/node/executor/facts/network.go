//go:build linux

package facts

import (
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// ParseRoutes parses /proc/net/route: the main IPv4 table, with hexadecimal numbers in
// the host's byte order.
func ParseRoutes(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] == "Iface" {
			continue
		}
		dest, err1 := strconv.ParseUint(f[1], 16, 32)
		mask, err2 := strconv.ParseUint(f[7], 16, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		addr := netip.AddrFrom4([4]byte{byte(dest), byte(dest >> 8), byte(dest >> 16), byte(dest >> 24)})
		bits := 0
		for m := mask; m != 0; m &= m - 1 {
			bits++
		}
		out = append(out, routeName(netip.PrefixFrom(addr, bits)))
	}
	return withoutDuplicates(out)
}

// ParseRoutes6 parses /proc/net/ipv6_route. Routes of loopback, link-local and multicast
// addresses are left out, because every host has them.
func ParseRoutes6(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 || f[9] == "lo" {
			continue
		}
		raw, err1 := hex.DecodeString(f[0])
		bits, err2 := strconv.ParseUint(f[1], 16, 8)
		if err1 != nil || err2 != nil || len(raw) != 16 || bits > 128 {
			continue
		}
		addr := netip.AddrFrom16([16]byte(raw))
		if addr.IsLinkLocalUnicast() || addr.IsMulticast() {
			continue
		}
		out = append(out, routeName(netip.PrefixFrom(addr, int(bits))))
	}
	return withoutDuplicates(out)
}

func routeName(p netip.Prefix) string {
	if p.Bits() == 0 {
		return "default"
	}
	return p.String()
}

func withoutDuplicates(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// listeningSocket is a line of /proc/net/tcp, udp and their like.
type listeningSocket struct {
	Port     int
	protocol string
	Inode    string
}

// ParseListeners returns the listening sockets: TCP sockets in state 0A, and bound but
// unconnected UDP sockets, in state 07.
func ParseListeners(text, protocol string) []listeningSocket {
	state := map[string]string{"tcp": "0A", "udp": "07"}[protocol]
	var out []listeningSocket
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != state {
			continue
		}
		_, hexPort, ok := strings.Cut(f[1], ":")
		port, err := strconv.ParseUint(hexPort, 16, 16)
		if ok && err == nil {
			out = append(out, listeningSocket{Port: int(port), protocol: protocol, Inode: f[9]})
		}
	}
	return out
}

// findListeners returns the listeners on the requested ports, by port.
func findListeners(h *host.Host, ports []int) []op.Listener {
	var sockets []listeningSocket
	for _, protocol := range []string{"tcp", "udp"} {
		for _, version := range []string{"", "6"} {
			sockets = append(sockets, ParseListeners(h.ReadText("/proc/net/"+protocol+version), protocol)...)
		}
	}
	sockets = slices.DeleteFunc(sockets, func(l listeningSocket) bool { return !slices.Contains(ports, l.Port) })
	if len(sockets) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for _, l := range sockets {
		wanted[l.Inode] = true
	}
	owners := socketOwners(h, wanted)
	var out []op.Listener
	for _, l := range sockets {
		entry := op.Listener{Port: l.Port, Protocol: l.protocol, Process: owners[l.Inode]}
		if !slices.Contains(out, entry) {
			out = append(out, entry)
		}
	}
	sort.Slice(out, func(i, j int) bool { // compiled once for all types, to keep the helper small
		a, b := out[i], out[j]
		if a.Port != b.Port {
			return a.Port < b.Port
		}
		return a.Protocol+a.Process < b.Protocol+b.Process
	})
	return out
}

// socketOwners finds the processes of sockets, by the sockets' inodes. Without root, it
// only sees its own processes.
func socketOwners(h *host.Host, inodes map[string]bool) map[string]string {
	owners := map[string]string{}
	fds, err := filepath.Glob(h.DiskPath("/proc/[0-9]*/fd"))
	if err != nil {
		return owners
	}
	for _, dir := range fds {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			to, err := os.Readlink(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			inode, ok := strings.CutPrefix(to, "socket:[")
			inode = strings.TrimSuffix(inode, "]")
			if !ok || !inodes[inode] || owners[inode] != "" {
				continue
			}
			comm, err := bounded.ReadFile(filepath.Join(filepath.Dir(dir), "comm"), bounded.Proc)
			if err == nil {
				owners[inode] = strings.TrimSpace(string(comm))
			}
		}
	}
	return owners
}
