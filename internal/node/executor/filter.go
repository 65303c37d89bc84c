//go:build linux

package executor

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// owned describes which parts of the packet filter belong to the cluster.
type owned struct {
	tables   []string // "ip kube-proxy"
	prefixes []string // prefixes of chains in the iptables tables
	cni      attachments
}

// packetFilter has the findings of a Reset in nftables.
type packetFilter struct {
	tables []nftTable // to be removed completely
	chains []nftChain // owned chains in other software's tables
	rules  []nftRule  // owned rules in other software's chains, and rules that jump to owned chains
	empty  []nftTable // other software's tables that would become empty
}

func (p packetFilter) none() bool { return len(p.tables)+len(p.chains)+len(p.rules) == 0 }

// found has all objects in nftables.
type found struct {
	tables []nftTable
	chains []nftChain
	rules  []nftRule
}

func (n nft) all() (f found, err error) {
	if f.tables, err = n.tables(); err != nil {
		return f, err
	}
	if f.chains, err = n.chains(); err != nil {
		return f, err
	}
	f.rules, err = n.rules()
	return f, err
}

func (n nft) findFilter(o owned) (packetFilter, error) {
	f, err := n.all()
	if err != nil {
		return packetFilter{}, err
	}
	return f.filter(o), nil
}

// filter selects the owned objects: whole tables, chains in the iptables tables, rules
// with the name of a container.
func (f found) filter(o owned) packetFilter {
	var p packetFilter
	for _, t := range f.tables {
		if slices.ContainsFunc(o.tables, func(name string) bool { return isTable(name, t) }) ||
			o.cni.asked && isCNITable(t) && !f.foreign(o, t, "") {
			p.tables = append(p.tables, t)
		}
	}
	busy, touched := map[nftTable]bool{}, map[nftTable]bool{}
	ours := map[[2]string]bool{}
	key := func(t nftTable, chain string) [2]string { return [2]string{fmt.Sprint(t), chain} }
	for _, c := range f.chains {
		switch {
		case slices.Contains(p.tables, c.table):
		case isIPTables(c.table) && f.ourChain(o, c):
			p.chains = append(p.chains, c)
			ours[key(c.table, c.name)], touched[c.table] = true, true
		case !c.base || c.policy != nfAccept:
			busy[c.table] = true
		}
	}
	for _, r := range f.rules {
		leads := slices.ContainsFunc(r.jumps, func(c string) bool { return ours[key(r.table, c)] })
		switch {
		case slices.Contains(p.tables, r.table), ours[key(r.table, r.chain)]:
		case leads, isCNITable(r.table) && o.cni.own(r.comment):
			p.rules = append(p.rules, r)
			touched[r.table] = true
		default:
			busy[r.table] = true
		}
	}
	for _, t := range f.tables {
		if touched[t] && !busy[t] {
			p.empty = append(p.empty, t)
		}
	}
	return p
}

// Chains that the CNI plugin portmap creates for all its users.
const (
	cniPrefix   = "CNI-"
	cniShared   = "CNI-HOSTPORT-"
	cniPortMaps = "CNI-HOSTPORT-DNAT" // has a rule for each container
)

// ourChain reports whether an iptables chain belongs to the cluster: by its prefix, or as
// the chain of one of its containers. Chains shared by all containers are removed with
// the last container.
func (f found) ourChain(o owned, c nftChain) bool {
	if slices.ContainsFunc(o.prefixes, func(x string) bool { return strings.HasPrefix(c.name, x) }) {
		return true
	}
	if !o.cni.asked || !strings.HasPrefix(c.name, cniPrefix) {
		return false
	}
	if strings.HasPrefix(c.name, cniShared) {
		return !f.foreign(o, c.table, cniPortMaps)
	}
	return slices.ContainsFunc(f.rules, func(r nftRule) bool {
		return r.table == c.table && (r.chain == c.name || slices.Contains(r.jumps, c.name)) && o.cni.own(r.comment)
	})
}

// foreign reports whether a table, or one of its chains, has a rule for a container that
// does not belong to the cluster.
func (f found) foreign(o owned, t nftTable, chain string) bool {
	return slices.ContainsFunc(f.rules, func(r nftRule) bool {
		return r.table == t && (chain == "" || r.chain == chain) && r.comment != "" && !o.cni.own(r.comment)
	})
}

// isCNITable reports whether CNI plugins created a table for all their users, with a rule
// for each container that names its owner.
func isCNITable(t nftTable) bool {
	return t.name == "cni_hostport" || t.name == "cni_plugins_masquerade"
}

// isIPTables reports whether a table belongs to iptables.
func isIPTables(t nftTable) bool {
	return (t.family == unix.NFPROTO_IPV4 || t.family == unix.NFPROTO_IPV6) &&
		slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, t.name)
}

func isTable(owned string, t nftTable) bool {
	f := strings.Fields(owned)
	family, name := "ip", ""
	switch len(f) {
	case 1:
		name = f[0] // the default family of nft
	case 2:
		family, name = f[0], f[1]
	}
	number, ok := nftFamilies[family]
	return ok && t.family == number && t.name == name
}

// removeFilter removes the findings in one transaction. An iptables table that would only
// have empty base chains, which iptables creates on first use, is removed as well.
func (n nft) removeFilter(p packetFilter) error {
	if p.none() {
		return nil
	}
	var changes [][]byte
	for _, t := range slices.Concat(p.tables, p.empty) {
		changes = append(changes, n.deleteTable(t))
	}
	stays := func(t nftTable) bool { return !slices.Contains(p.empty, t) }
	for _, r := range p.rules {
		if stays(r.table) {
			changes = append(changes, n.change(unix.NFT_MSG_DELRULE, r.table.family, attr(unix.NFTA_RULE_TABLE, cstring(r.table.name)),
				attr(unix.NFTA_RULE_CHAIN, cstring(r.chain)), attr(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, r.handle))))
		}
	}
	// All rules of owned chains before any chain, because they jump to each other.
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
