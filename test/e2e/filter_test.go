//go:build e2e

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// addFilter describes nftables by the names of tables and chains, as the
// kernel tells them: a machine has no program that would.
func (s snapshot) addFilter() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil // nor has the kernel any
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for _, ask := range []struct {
		message     uint16
		what        string
		table, name uint16
	}{
		{unix.NFT_MSG_GETTABLE, "table", unix.NFTA_TABLE_NAME, 0},
		{unix.NFT_MSG_GETCHAIN, "chain", unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME},
	} {
		err := dumpFilter(fd, ask.message, func(family byte, a map[uint16]string) {
			key := fmt.Sprintf("filter %s %d %s", ask.what, family, a[ask.table])
			if ask.name != 0 {
				key += " " + a[ask.name]
			}
			s[key] = entry{}
		})
		if err != nil {
			return fmt.Errorf("listing nftables' %ss: %w", ask.what, err)
		}
	}
	return nil
}

// dumpFilter asks for objects of nftables; each is its family and its
// attributes, which are text where they are names.
func dumpFilter(fd int, message uint16, each func(family byte, attributes map[uint16]string)) error {
	ask := make([]byte, unix.SizeofNlMsghdr+4) // and an empty nfgenmsg: any family
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], unix.NFNL_SUBSYS_NFTABLES<<8|message)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				errno := syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
				if errno == unix.EINVAL || errno == unix.EOPNOTSUPP {
					return nil // a kernel without nftables
				}
				return errno
			case len(m.Data) >= 4:
				each(m.Data[0], parseAttributes(m.Data[4:]))
			}
		}
	}
}

// parseAttributes returns the attributes of a netlink message, each up to its first zero
// byte.
func parseAttributes(data []byte) map[uint16]string {
	out := map[uint16]string{}
	for len(data) >= 4 {
		length := int(binary.NativeEndian.Uint16(data))
		if length < 4 || length > len(data) {
			break
		}
		out[binary.NativeEndian.Uint16(data[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = unix.ByteSliceToString(data[4:length])
		data = data[min(len(data), (length+3)&^3):]
	}
	return out
}
