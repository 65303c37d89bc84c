//go:build linux

package run

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// nftFamilies are nftables' address families by their names.
var nftFamilies = map[string]uint8{
	"inet": unix.NFPROTO_INET, "ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6,
	"arp": unix.NFPROTO_ARP, "bridge": unix.NFPROTO_BRIDGE, "netdev": unix.NFPROTO_NETDEV,
}

// nfAccept is the kernel's NF_ACCEPT: a base chain's policy that does nothing.
const nfAccept = 1

// nftTable names a table.
type nftTable struct {
	family uint8
	name   string
}

// nftChain is a chain; base chains hook into the kernel.
type nftChain struct {
	table  nftTable
	name   string
	base   bool
	policy uint32
}

// nftRule is a rule and the chains it jumps to.
type nftRule struct {
	table  nftTable
	chain  string
	handle uint64
	jumps  []string
}

// nft speaks nfnetlink: what the nft program does, on hosts that lack it.
type nft struct{ *netlinkSocket }

func openNFT() (nft, error) {
	n, err := openNetlink(unix.NETLINK_NETFILTER)
	return nft{n}, err
}

// hasNFTables says that the kernel speaks nftables.
func hasNFTables() bool {
	n, err := openNFT()
	if err != nil {
		return false
	}
	defer n.close()
	_, err = n.tables()
	return err == nil
}

func nftType(message uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | message }

// nfgenmsg is the header of nfnetlink messages.
func nfgenmsg(family uint8, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}

// list dumps objects; family and attributes of each are handed on. A kernel
// without nftables has none.
func (n nft) list(message uint16, each func(family uint8, a map[uint16][][]byte)) error {
	msgs, err := n.dump(nftType(message), nfgenmsg(unix.NFPROTO_UNSPEC, 0))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing nftables: %w", err)
	}
	for _, m := range msgs {
		if len(m) >= 4 {
			each(m[0], attrs(m[4:]))
		}
	}
	return nil
}

func (n nft) tables() ([]nftTable, error) {
	var out []nftTable
	err := n.list(unix.NFT_MSG_GETTABLE, func(family uint8, a map[uint16][][]byte) {
		out = append(out, nftTable{family, attrText(a, unix.NFTA_TABLE_NAME)})
	})
	return out, err
}

func (n nft) chains() ([]nftChain, error) {
	var out []nftChain
	err := n.list(unix.NFT_MSG_GETCHAIN, func(family uint8, a map[uint16][][]byte) {
		c := nftChain{table: nftTable{family, attrText(a, unix.NFTA_CHAIN_TABLE)}, name: attrText(a, unix.NFTA_CHAIN_NAME)}
		c.base = first(a, unix.NFTA_CHAIN_HOOK) != nil
		if p := first(a, unix.NFTA_CHAIN_POLICY); len(p) == 4 {
			c.policy = binary.BigEndian.Uint32(p)
		}
		out = append(out, c)
	})
	return out, err
}

func (n nft) rules() ([]nftRule, error) {
	var out []nftRule
	err := n.list(unix.NFT_MSG_GETRULE, func(family uint8, a map[uint16][][]byte) {
		r := nftRule{table: nftTable{family, attrText(a, unix.NFTA_RULE_TABLE)}, chain: attrText(a, unix.NFTA_RULE_CHAIN)}
		if h := first(a, unix.NFTA_RULE_HANDLE); len(h) == 8 {
			r.handle = binary.BigEndian.Uint64(h)
		}
		r.jumps = ruleJumps(first(a, unix.NFTA_RULE_EXPRESSIONS))
		out = append(out, r)
	})
	return out, err
}

// ruleJumps finds the chains that a rule's expressions jump or go to.
func ruleJumps(expressions []byte) []string {
	var out []string
	for _, e := range attrs(expressions)[unix.NFTA_LIST_ELEM] {
		expr := attrs(e)
		if attrText(expr, unix.NFTA_EXPR_NAME) != "immediate" {
			continue
		}
		data := attrs(first(attrs(first(expr, unix.NFTA_EXPR_DATA)), unix.NFTA_IMMEDIATE_DATA))
		verdict := attrs(first(data, unix.NFTA_DATA_VERDICT))
		if chain := attrText(verdict, unix.NFTA_VERDICT_CHAIN); chain != "" {
			out = append(out, chain)
		}
	}
	return out
}

// commit sends changes as one transaction: all of them are made, or none.
// Only the last is acknowledged, which is enough: a failure is always told,
// and thousands of acknowledgements would not fit the socket.
func (n nft) commit(changes [][]byte) error {
	batch := n.message(unix.NFNL_MSG_BATCH_BEGIN, 0, nfgenmsg(unix.NFPROTO_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	last := changes[len(changes)-1]
	binary.NativeEndian.PutUint16(last[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	seq := binary.NativeEndian.Uint32(last[8:])
	for _, c := range changes {
		batch = append(batch, c...)
	}
	batch = append(batch, n.message(unix.NFNL_MSG_BATCH_END, 0, nfgenmsg(unix.NFPROTO_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))...)
	if err := unix.SetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*len(batch)+1<<16); err != nil {
		return fmt.Errorf("making room for a transaction: %w", err)
	}
	if err := n.send(batch); err != nil {
		return err
	}
	return n.receive(func(m syscall.NetlinkMessage) bool {
		return m.Header.Type == unix.NLMSG_ERROR && m.Header.Seq == seq
	})
}

// change is one request of a transaction.
func (n nft) change(message uint16, family uint8, attributes ...[]byte) []byte {
	return n.message(nftType(message), 0, append([][]byte{nfgenmsg(family, 0)}, attributes...)...)
}

func (n nft) deleteTable(t nftTable) []byte {
	return n.change(unix.NFT_MSG_DELTABLE, t.family, attr(unix.NFTA_TABLE_NAME, cstring(t.name)))
}

// packetFilter is what a Reset finds in nftables.
type packetFilter struct {
	tables []nftTable // to be removed whole
	chains []nftChain // owned chains in tables of others
	jumps  []nftRule  // rules elsewhere that lead to those
	empty  []nftTable // tables of others that nothing would be left in
}

func (p packetFilter) none() bool { return len(p.tables)+len(p.chains)+len(p.jumps) == 0 }

// findFilter looks for owned tables ("ip kube-proxy") and for chains whose
// names start with owned prefixes in the tables of iptables.
func (n nft) findFilter(owned, prefixes []string) (packetFilter, error) {
	var p packetFilter
	tables, err := n.tables()
	if err != nil {
		return p, err
	}
	for _, t := range tables {
		if slices.ContainsFunc(owned, func(o string) bool { return isTable(o, t) }) {
			p.tables = append(p.tables, t)
		}
	}
	if len(prefixes) == 0 {
		return p, nil
	}
	chains, err := n.chains()
	if err != nil {
		return p, err
	}
	rules, err := n.rules()
	if err != nil {
		return p, err
	}
	ours := func(t nftTable, chain string) bool {
		return isIPTables(t) && !slices.Contains(p.tables, t) && slices.ContainsFunc(prefixes, func(x string) bool { return strings.HasPrefix(chain, x) })
	}
	busy := map[nftTable]bool{}
	touched := map[nftTable]bool{}
	for _, c := range chains {
		switch {
		case ours(c.table, c.name):
			p.chains = append(p.chains, c)
			touched[c.table] = true
		case !c.base || c.policy != nfAccept:
			busy[c.table] = true
		}
	}
	for _, r := range rules {
		switch {
		case ours(r.table, r.chain):
		case slices.ContainsFunc(r.jumps, func(c string) bool { return ours(r.table, c) }):
			p.jumps = append(p.jumps, r)
			touched[r.table] = true
		default:
			busy[r.table] = true
		}
	}
	for _, t := range tables {
		if touched[t] && !busy[t] {
			p.empty = append(p.empty, t)
		}
	}
	return p, nil
}

// isIPTables says that a table is one of those that iptables keeps its chains
// in.
func isIPTables(t nftTable) bool {
	return (t.family == unix.NFPROTO_IPV4 || t.family == unix.NFPROTO_IPV6) &&
		slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, t.name)
}

func isTable(owned string, t nftTable) bool {
	f := strings.Fields(owned)
	family, name := "ip", ""
	switch len(f) {
	case 1:
		name = f[0] // nft's default family
	case 2:
		family, name = f[0], f[1]
	}
	number, ok := nftFamilies[family]
	return ok && t.family == number && t.name == name
}

// removeFilter removes what was found, in one transaction. A table of
// iptables in which nothing but empty base chains would be left is what
// iptables makes on first use: it goes as well.
func (n nft) removeFilter(p packetFilter) error {
	if p.none() {
		return nil
	}
	var changes [][]byte
	for _, t := range slices.Concat(p.tables, p.empty) {
		changes = append(changes, n.deleteTable(t))
	}
	stays := func(t nftTable) bool { return !slices.Contains(p.empty, t) }
	for _, r := range p.jumps {
		if stays(r.table) {
			changes = append(changes, n.change(unix.NFT_MSG_DELRULE, r.table.family, attr(unix.NFTA_RULE_TABLE, cstring(r.table.name)),
				attr(unix.NFTA_RULE_CHAIN, cstring(r.chain)), attr(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, r.handle))))
		}
	}
	// All rules of owned chains before any chain: they lead to each other.
	for _, c := range p.chains {
		if stays(c.table) {
			changes = append(changes, n.change(unix.NFT_MSG_DELRULE, c.table.family,
				attr(unix.NFTA_RULE_TABLE, cstring(c.table.name)), attr(unix.NFTA_RULE_CHAIN, cstring(c.name))))
		}
	}
	for _, c := range p.chains {
		if stays(c.table) {
			changes = append(changes, n.change(unix.NFT_MSG_DELCHAIN, c.table.family,
				attr(unix.NFTA_CHAIN_TABLE, cstring(c.table.name)), attr(unix.NFTA_CHAIN_NAME, cstring(c.name))))
		}
	}
	if err := n.commit(changes); err != nil {
		return fmt.Errorf("removing packet filter rules: %w", err)
	}
	return nil
}
