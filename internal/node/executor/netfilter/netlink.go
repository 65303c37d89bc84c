//go:build linux

package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// netlinkSocket is a connection to one subsystem of the kernel's network stack, in the
// network namespace of the thread that opened it.
type netlinkSocket struct {
	fd  int
	seq uint32
}

// OpenNetlink opens a socket of a netlink protocol.
func OpenNetlink(protocol int) (*netlinkSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	n := &netlinkSocket{fd: fd}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		// The kernel responds at once; this limit is for the case that it does not.
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return n, nil
}

func (n *netlinkSocket) Close() { unix.Close(n.fd) }

// EncodeMessage encodes one request; requests with an acknowledgement get an answer even on
// success.
func (n *netlinkSocket) EncodeMessage(kind, flags uint16, payload ...[]byte) []byte {
	n.seq++
	b := slices.Concat(append([][]byte{make([]byte, unix.SizeofNlMsghdr)}, payload...)...)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b[8:], n.seq)
	return b
}

// Send sends messages.
func (n *netlinkSocket) Send(b []byte) error {
	if err := unix.Sendto(n.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending over netlink: %w", err)
	}
	return nil
}

// Receive passes messages to each until it returns true. An error from the kernel is
// returned as errno; acknowledgements are passed on.
func (n *netlinkSocket) Receive(each func(syscall.NetlinkMessage) bool) error {
	buf := make([]byte, 1<<20)
	for {
		size, _, err := unix.Recvfrom(n.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receiving over netlink: %w", err)
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:size])
		if err != nil {
			return fmt.Errorf("reading a netlink message: %w", err)
		}
		for _, m := range msgs {
			if m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4 {
				if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
					return unix.Errno(-code)
				}
			}
			if each(m) {
				return nil
			}
		}
	}
}

// dump returns all messages of a listing.
func (n *netlinkSocket) dump(kind uint16, payload []byte) ([][]byte, error) {
	if err := n.Send(n.EncodeMessage(kind, unix.NLM_F_DUMP, payload)); err != nil {
		return nil, err
	}
	var out [][]byte
	err := n.Receive(func(m syscall.NetlinkMessage) bool {
		if m.Header.Type > unix.NLMSG_MIN_TYPE {
			out = append(out, append([]byte(nil), m.Data...))
		}
		return m.Header.Type == unix.NLMSG_DONE
	})
	return out, err
}

// EncodeAttr encodes an attribute, padded to four bytes.
func EncodeAttr(kind uint16, data []byte) []byte {
	b := make([]byte, 4, 4+len(data)+3)
	binary.NativeEndian.PutUint16(b[0:], uint16(4+len(data)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// CString encodes a string for the kernel.
func CString(s string) []byte { return append([]byte(s), 0) }

// ParseAttrs decodes attributes by kind; it keeps all attributes of a kind.
func ParseAttrs(b []byte) map[uint16][][]byte {
	out := map[uint16][][]byte{}
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			break
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		out[kind] = append(out[kind], b[4:size])
		b = b[min(len(b), (size+3)&^3):]
	}
	return out
}

// firstAttr returns the first attribute of a kind, or nil.
func firstAttr(m map[uint16][][]byte, kind uint16) []byte {
	if v := m[kind]; len(v) > 0 {
		return v[0]
	}
	return nil
}

// attrText returns a string attribute.
func attrText(m map[uint16][][]byte, kind uint16) string {
	return unix.ByteSliceToString(firstAttr(m, kind))
}

// DeleteLink removes a network link by name; a missing one is not an error.
func DeleteLink(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil // removed together with its peer
	}
	n, err := OpenNetlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer n.Close()
	info := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(info[4:], uint32(link.Index))
	if err := n.Send(n.EncodeMessage(unix.RTM_DELLINK, unix.NLM_F_ACK, info)); err != nil {
		return err
	}
	err = n.Receive(func(m syscall.NetlinkMessage) bool { return m.Header.Type == unix.NLMSG_ERROR })
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing network link %s: %w", name, err)
	}
	return nil
}
