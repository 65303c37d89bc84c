package sandbox

import (
	"strings"
)

// moduleOption maps modules that clusters need to the kernel configuration options with
// which they are built in.
var moduleOption = map[string]string{
	"kernel/fs/overlayfs/overlay.ko":              "OVERLAY_FS",
	"kernel/net/bridge/bridge.ko":                 "BRIDGE",
	"kernel/net/bridge/br_netfilter.ko":           "BRIDGE_NETFILTER",
	"kernel/net/netfilter/nf_conntrack.ko":        "NF_CONNTRACK",
	"kernel/net/netfilter/nf_nat.ko":              "NF_NAT",
	"kernel/net/netfilter/nf_tables.ko":           "NF_TABLES",
	"kernel/net/netfilter/nft_compat.ko":          "NFT_COMPAT",
	"kernel/net/netfilter/x_tables.ko":            "NETFILTER_XTABLES",
	"kernel/net/netfilter/xt_comment.ko":          "NETFILTER_XT_MATCH_COMMENT",
	"kernel/net/netfilter/xt_conntrack.ko":        "NETFILTER_XT_MATCH_CONNTRACK",
	"kernel/net/netfilter/xt_mark.ko":             "NETFILTER_XT_MARK",
	"kernel/net/netfilter/xt_set.ko":              "NETFILTER_XT_SET",
	"kernel/net/netfilter/ipset/ip_set.ko":        "IP_SET",
	"kernel/net/netfilter/ipvs/ip_vs.ko":          "IP_VS",
	"kernel/net/netfilter/ipvs/ip_vs_rr.ko":       "IP_VS_RR",
	"kernel/net/netfilter/ipvs/ip_vs_wrr.ko":      "IP_VS_WRR",
	"kernel/net/netfilter/ipvs/ip_vs_sh.ko":       "IP_VS_SH",
	"kernel/net/ipv4/netfilter/ip_tables.ko":      "IP_NF_IPTABLES",
	"kernel/net/ipv4/netfilter/iptable_filter.ko": "IP_NF_FILTER",
	"kernel/net/ipv4/netfilter/iptable_nat.ko":    "IP_NF_NAT",
	"kernel/net/ipv6/netfilter/ip6_tables.ko":     "IP6_NF_IPTABLES",
	"kernel/drivers/net/dummy.ko":                 "DUMMY",
	"kernel/drivers/net/veth.ko":                  "VETH",
	"kernel/drivers/net/vxlan/vxlan.ko":           "VXLAN",
	"kernel/drivers/net/tun.ko":                   "TUN",
	"kernel/drivers/net/wireguard/wireguard.ko":   "WIREGUARD",
	"kernel/net/ipv4/ipip.ko":                     "NET_IPIP",
}

// builtIn lists the modules of moduleOption that are built in according to a kernel
// configuration.
func builtIn(config string) []string {
	var out []string
	for module, option := range moduleOption {
		if strings.Contains(config, "\nCONFIG_"+option+"=y\n") {
			out = append(out, module)
		}
	}
	return out
}
