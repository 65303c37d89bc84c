//go:build linux

package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Families are the nftables address families by name.
var Families = map[string]uint8{
	"inet": unix.NFPROTO_INET, "ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6,
	"arp": unix.NFPROTO_ARP, "bridge": unix.NFPROTO_BRIDGE, "netdev": unix.NFPROTO_NETDEV,
}

// PolicyAccept is the kernel's NF_ACCEPT: the policy of a base chain without effect.
const PolicyAccept = 1

// Table identifies a table.
type Table struct {
	Family uint8
	Name   string
}

// Chain is a chain; base chains hook into the kernel.
type Chain struct {
	Table  Table
	Name   string
	Base   bool
	Policy uint32
}

// Rule is a rule and the chains to which it jumps.
type Rule struct {
	Table   Table
	Chain   string
	Handle  uint64
	Jumps   []string
	Comment string
}

// NFT uses nfnetlink: it replaces the program nft on hosts without it.
type NFT struct{ *netlinkSocket }

// OpenNFT opens a socket for nftables.
func OpenNFT() (NFT, error) {
	n, err := OpenNetlink(unix.NETLINK_NETFILTER)
	return NFT{n}, err
}

// HasNFTables reports whether the kernel supports nftables.
func HasNFTables() bool {
	n, err := OpenNFT()
	if err != nil {
		return false
	}
	defer n.Close()
	_, err = n.ListTables()
	return err == nil
}

func nftType(message uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | message }

// nfgenmsg is the header of nfnetlink messages.
func nfgenmsg(family uint8, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}

// listObjects dumps objects; it passes on the family and attributes of each. A kernel
// without nftables has none.
func (n NFT) listObjects(message uint16, each func(family uint8, a map[uint16][][]byte)) error {
	msgs, err := n.dump(nftType(message), nfgenmsg(unix.NFPROTO_UNSPEC, 0))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing nftables: %w", err)
	}
	for _, m := range msgs {
		if len(m) >= 4 {
			each(m[0], ParseAttrs(m[4:]))
		}
	}
	return nil
}

// ListTables lists all tables.
func (n NFT) ListTables() ([]Table, error) {
	var out []Table
	err := n.listObjects(unix.NFT_MSG_GETTABLE, func(family uint8, a map[uint16][][]byte) {
		out = append(out, Table{family, attrText(a, unix.NFTA_TABLE_NAME)})
	})
	return out, err
}

// ListChains lists all chains.
func (n NFT) ListChains() ([]Chain, error) {
	var out []Chain
	err := n.listObjects(unix.NFT_MSG_GETCHAIN, func(family uint8, a map[uint16][][]byte) {
		c := Chain{Table: Table{family, attrText(a, unix.NFTA_CHAIN_TABLE)}, Name: attrText(a, unix.NFTA_CHAIN_NAME)}
		c.Base = firstAttr(a, unix.NFTA_CHAIN_HOOK) != nil
		if p := firstAttr(a, unix.NFTA_CHAIN_POLICY); len(p) == 4 {
			c.Policy = binary.BigEndian.Uint32(p)
		}
		out = append(out, c)
	})
	return out, err
}

// ListRules lists all rules.
func (n NFT) ListRules() ([]Rule, error) {
	var out []Rule
	err := n.listObjects(unix.NFT_MSG_GETRULE, func(family uint8, a map[uint16][][]byte) {
		r := Rule{Table: Table{family, attrText(a, unix.NFTA_RULE_TABLE)}, Chain: attrText(a, unix.NFTA_RULE_CHAIN)}
		if h := firstAttr(a, unix.NFTA_RULE_HANDLE); len(h) == 8 {
			r.Handle = binary.BigEndian.Uint64(h)
		}
		r.Jumps = RuleJumps(firstAttr(a, unix.NFTA_RULE_EXPRESSIONS))
		r.Comment = ruleComment(firstAttr(a, unix.NFTA_RULE_EXPRESSIONS), firstAttr(a, unix.NFTA_RULE_USERDATA))
		out = append(out, r)
	})
	return out, err
}

// RuleJumps returns the chains to which the expressions of a rule jump or go.
func RuleJumps(expressions []byte) []string {
	var out []string
	for _, e := range ParseAttrs(expressions)[unix.NFTA_LIST_ELEM] {
		expr := ParseAttrs(e)
		if attrText(expr, unix.NFTA_EXPR_NAME) != "immediate" {
			continue
		}
		data := ParseAttrs(firstAttr(ParseAttrs(firstAttr(expr, unix.NFTA_EXPR_DATA)), unix.NFTA_IMMEDIATE_DATA))
		verdict := ParseAttrs(firstAttr(data, unix.NFTA_DATA_VERDICT))
		if chain := attrText(verdict, unix.NFTA_VERDICT_CHAIN); chain != "" {
			out = append(out, chain)
		}
	}
	return out
}

// ruleComment returns the comment of a rule: nft stores it next to the rule, iptables in
// it.
func ruleComment(expressions, userdata []byte) string {
	const udataComment = 0 // libnftnl's NFTNL_UDATA_RULE_COMMENT
	for b := userdata; len(b) >= 2 && len(b) >= 2+int(b[1]); b = b[2+int(b[1]):] {
		if b[0] == udataComment {
			return unix.ByteSliceToString(b[2 : 2+int(b[1])])
		}
	}
	for _, e := range ParseAttrs(expressions)[unix.NFTA_LIST_ELEM] {
		expr := ParseAttrs(e)
		if attrText(expr, unix.NFTA_EXPR_NAME) != "match" {
			continue
		}
		data := ParseAttrs(firstAttr(expr, unix.NFTA_EXPR_DATA))
		if attrText(data, unix.NFTA_MATCH_NAME) == "comment" {
			return attrText(data, unix.NFTA_MATCH_INFO)
		}
	}
	return ""
}

// Commit sends changes as one transaction: all of them are made, or none. Only the last
// one is acknowledged, which is enough: a failure is always reported, and thousands of
// acknowledgements would not fit into the socket.
func (n NFT) Commit(changes [][]byte) error {
	batch := n.EncodeMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, nfgenmsg(unix.NFPROTO_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	last := changes[len(changes)-1]
	binary.NativeEndian.PutUint16(last[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	seq := binary.NativeEndian.Uint32(last[8:])
	for _, c := range changes {
		batch = append(batch, c...)
	}
	batch = append(batch, n.EncodeMessage(unix.NFNL_MSG_BATCH_END, 0, nfgenmsg(unix.NFPROTO_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))...)
	if err := unix.SetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*len(batch)+1<<16); err != nil {
		return fmt.Errorf("increasing the buffer for a transaction: %w", err)
	}
	if err := n.Send(batch); err != nil {
		return err
	}
	return n.Receive(func(m syscall.NetlinkMessage) bool {
		return m.Header.Type == unix.NLMSG_ERROR && m.Header.Seq == seq
	})
}

// EncodeChange encodes one request of a transaction.
func (n NFT) EncodeChange(message uint16, family uint8, attributes ...[]byte) []byte {
	return n.EncodeMessage(nftType(message), 0, append([][]byte{nfgenmsg(family, 0)}, attributes...)...)
}

// DeleteTable returns the message that deletes a table.
func (n NFT) DeleteTable(t Table) []byte {
	return n.EncodeChange(unix.NFT_MSG_DELTABLE, t.Family, EncodeAttr(unix.NFTA_TABLE_NAME, CString(t.Name)))
}
