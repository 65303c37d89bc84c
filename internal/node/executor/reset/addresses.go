//go:build linux

package reset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/netfilter"
)

// held is an address on an interface of this host.
type held struct {
	link   int
	prefix netip.Prefix
}

// heldAddresses finds addresses by their text, on any interface.
func heldAddresses(wanted []string) ([]held, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing network links: %w", err)
	}
	var out []held
	for _, l := range links {
		list, err := l.Addrs()
		if err != nil {
			return nil, fmt.Errorf("listing addresses of %s: %w", l.Name, err)
		}
		for _, a := range list {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && slices.Contains(wanted, p.Addr().String()) {
				out = append(out, held{l.Index, p})
			}
		}
	}
	return out, nil
}

// removeAddresses removes the address; a missing one is not an error.
func (h held) removeAddresses() error {
	n, err := netfilter.OpenNetlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer n.Close()
	info := make([]byte, unix.SizeofIfAddrmsg) // family, bits, flags, scope, link
	info[0], info[1] = unix.AF_INET, byte(h.prefix.Bits())
	if h.prefix.Addr().Is6() {
		info[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(info[4:], uint32(h.link))
	err = n.Send(n.EncodeMessage(unix.RTM_DELADDR, unix.NLM_F_ACK, info, netfilter.EncodeAttr(unix.IFA_LOCAL, h.prefix.Addr().AsSlice())))
	if err == nil {
		err = n.Receive(func(m syscall.NetlinkMessage) bool { return m.Header.Type == unix.NLMSG_ERROR })
	}
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("removing the address %s: %w", h.prefix, err)
	}
	return nil
}
