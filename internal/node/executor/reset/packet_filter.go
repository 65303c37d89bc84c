//go:build linux

package reset

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/netfilter"
)

// owned describes which parts of the packet filter belong to the cluster.
type owned struct {
	tables   []string // "ip kube-proxy"
	prefixes []string // prefixes of chains in the iptables tables
	cni      attachments
}

// packetFilter has the findings of a Reset in nftables.
type packetFilter struct {
	tables []netfilter.Table // to be removed completely
	chains []netfilter.Chain // owned chains in other software's tables
	rules  []netfilter.Rule  // owned rules in other software's chains, and rules that jump to owned chains
	empty  []netfilter.Table // other software's tables that would become empty
}

func (p packetFilter) isEmpty() bool { return len(p.tables)+len(p.chains)+len(p.rules) == 0 }

// found has all objects in nftables.
type found struct {
	tables []netfilter.Table
	chains []netfilter.Chain
	rules  []netfilter.Rule
}

func readAllRules(n netfilter.NFT) (f found, err error) {
	if f.tables, err = n.ListTables(); err != nil {
		return f, err
	}
	if f.chains, err = n.ListChains(); err != nil {
		return f, err
	}
	f.rules, err = n.ListRules()
	return f, err
}

func findOwnedRules(n netfilter.NFT, o owned) (packetFilter, error) {
	f, err := readAllRules(n)
	if err != nil {
		return packetFilter{}, err
	}
	return f.selectOwned(o), nil
}

// selectOwned selects the owned objects: whole tables, chains in the iptables tables,
// rules with the name of a container.
func (f found) selectOwned(o owned) packetFilter {
	var p packetFilter
	for _, t := range f.tables {
		if slices.ContainsFunc(o.tables, func(name string) bool { return isTable(name, t) }) ||
			o.cni.asked && isCNITable(t) && !f.hasForeignRule(o, t, "") {
			p.tables = append(p.tables, t)
		}
	}
	busy, touched := map[netfilter.Table]bool{}, map[netfilter.Table]bool{}
	ours := map[[2]string]bool{}
	key := func(t netfilter.Table, chain string) [2]string { return [2]string{fmt.Sprint(t), chain} }
	for _, c := range f.chains {
		switch {
		case slices.Contains(p.tables, c.Table):
		case isIPTables(c.Table) && f.isOwnChain(o, c):
			p.chains = append(p.chains, c)
			ours[key(c.Table, c.Name)], touched[c.Table] = true, true
		case !c.Base || c.Policy != netfilter.PolicyAccept:
			busy[c.Table] = true
		}
	}
	for _, r := range f.rules {
		leads := slices.ContainsFunc(r.Jumps, func(c string) bool { return ours[key(r.Table, c)] })
		switch {
		case slices.Contains(p.tables, r.Table), ours[key(r.Table, r.Chain)]:
		case leads, isCNITable(r.Table) && o.cni.isOwn(r.Comment):
			p.rules = append(p.rules, r)
			touched[r.Table] = true
		default:
			busy[r.Table] = true
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

// isOwnChain reports whether an iptables chain belongs to the cluster: by its prefix, or
// as the chain of one of its containers. Chains shared by all containers are removed with
// the last container.
func (f found) isOwnChain(o owned, c netfilter.Chain) bool {
	if slices.ContainsFunc(o.prefixes, func(x string) bool { return strings.HasPrefix(c.Name, x) }) {
		return true
	}
	if !o.cni.asked || !strings.HasPrefix(c.Name, cniPrefix) {
		return false
	}
	if strings.HasPrefix(c.Name, cniShared) {
		return !f.hasForeignRule(o, c.Table, cniPortMaps)
	}
	return slices.ContainsFunc(f.rules, func(r netfilter.Rule) bool {
		return r.Table == c.Table && (r.Chain == c.Name || slices.Contains(r.Jumps, c.Name)) && o.cni.isOwn(r.Comment)
	})
}

// hasForeignRule reports whether a table, or one of its chains, has a rule for a
// container that does not belong to the cluster.
func (f found) hasForeignRule(o owned, t netfilter.Table, chain string) bool {
	return slices.ContainsFunc(f.rules, func(r netfilter.Rule) bool {
		return r.Table == t && (chain == "" || r.Chain == chain) && r.Comment != "" && !o.cni.isOwn(r.Comment)
	})
}

// isCNITable reports whether CNI plugins created a table for all their users, with a rule
// for each container that names its owner.
func isCNITable(t netfilter.Table) bool {
	return t.Name == "cni_hostport" || t.Name == "cni_plugins_masquerade"
}

// isIPTables reports whether a table belongs to iptables.
func isIPTables(t netfilter.Table) bool {
	return (t.Family == unix.NFPROTO_IPV4 || t.Family == unix.NFPROTO_IPV6) &&
		slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, t.Name)
}

func isTable(owned string, t netfilter.Table) bool {
	f := strings.Fields(owned)
	family, name := "ip", ""
	switch len(f) {
	case 1:
		name = f[0] // the default family of nft
	case 2:
		family, name = f[0], f[1]
	}
	number, ok := netfilter.Families[family]
	return ok && t.Family == number && t.Name == name
}

// removeOwnedRules removes the findings in one transaction. An iptables table that would
// only have empty base chains, which iptables creates on first use, is removed as well.
func removeOwnedRules(n netfilter.NFT, p packetFilter) error {
	if p.isEmpty() {
		return nil
	}
	var changes [][]byte
	for _, t := range slices.Concat(p.tables, p.empty) {
		changes = append(changes, n.DeleteTable(t))
	}
	stays := func(t netfilter.Table) bool { return !slices.Contains(p.empty, t) }
	for _, r := range p.rules {
		if stays(r.Table) {
			changes = append(changes,
				n.EncodeChange(unix.NFT_MSG_DELRULE, r.Table.Family, netfilter.EncodeAttr(unix.NFTA_RULE_TABLE, netfilter.CString(r.Table.Name)),
					netfilter.EncodeAttr(unix.NFTA_RULE_CHAIN, netfilter.CString(r.Chain)),
					netfilter.EncodeAttr(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, r.Handle))))
		}
	}
	// All rules of owned chains before any chain, because they jump to each other.
	for _, c := range p.chains {
		if stays(c.Table) {
			changes = append(changes, n.EncodeChange(unix.NFT_MSG_DELRULE, c.Table.Family,
				netfilter.EncodeAttr(unix.NFTA_RULE_TABLE, netfilter.CString(c.Table.Name)),
				netfilter.EncodeAttr(unix.NFTA_RULE_CHAIN, netfilter.CString(c.Name))))
		}
	}
	for _, c := range p.chains {
		if stays(c.Table) {
			changes = append(changes, n.EncodeChange(unix.NFT_MSG_DELCHAIN, c.Table.Family,
				netfilter.EncodeAttr(unix.NFTA_CHAIN_TABLE, netfilter.CString(c.Table.Name)),
				netfilter.EncodeAttr(unix.NFTA_CHAIN_NAME, netfilter.CString(c.Name))))
		}
	}
	if err := n.Commit(changes); err != nil {
		return fmt.Errorf("removing packet filter rules: %w", err)
	}
	return nil
}
