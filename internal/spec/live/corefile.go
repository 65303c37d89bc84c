package live

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
)

// A serverBlock holds the directives of CoreDNS for some zones.
type serverBlock struct {
	zones      []string
	directives []directive
}

// A directive is one plugin of CoreDNS with its arguments, and the lines of its block.
type directive struct {
	words []string
	lines [][]string
}

// parseCorefile returns the server blocks of a Corefile. Any text is accepted: others have
// written it.
func parseCorefile(text string) []serverBlock {
	var blocks []serverBlock
	depth := 0
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		opens := words[len(words)-1] == "{"
		if opens {
			words = words[:len(words)-1]
		}
		switch {
		case len(words) == 0: // the block of the line before
		case words[0] == "}":
			depth = max(depth-1, 0)
		case depth == 0:
			blocks = append(blocks, serverBlock{zones: words})
		case len(blocks) > 0:
			blocks[len(blocks)-1].add(depth, words)
		}
		if opens {
			depth++
		}
	}
	return blocks
}

// add adds a line: a directive, or a line of the block of the last directive.
func (b *serverBlock) add(depth int, words []string) {
	if depth == 1 {
		b.directives = append(b.directives, directive{words: words})
	} else if n := len(b.directives); n > 0 {
		b.directives[n-1].lines = append(b.directives[n-1].lines, words)
	}
}

// describeDNS converts CoreDNS's entries, servers and zones; the rest of its configuration
// is not compared.
func (d *describer) describeDNS() {
	out := &d.out.Spec.DNS
	var unsaid []string
	for _, b := range parseCorefile(d.s.Corefile) {
		zone, ok := b.zone()
		switch {
		case slices.Contains(zone.Names, "."):
			out.Hosts, out.Upstream = b.hosts(), b.upstream()
		case ok:
			out.Zones = append(out.Zones, zone)
		default:
			unsaid = append(unsaid, strconv.Quote(strings.Join(b.zones, " ")))
		}
	}
	if len(unsaid) > 0 {
		d.noteDifference("spec.dns", "CoreDNS has custom zones that a cluster file cannot express: "+strings.Join(unsaid, ", "),
			"see the ConfigMap kube-system/coredns")
	}
}

// zoneName returns the name of a zone without the scheme and port that are the default.
func zoneName(zone string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(zone, ","), "dns://"), ":53")
	if name == "." {
		return name
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

func (b serverBlock) find(plugin string) (directive, bool) {
	i := slices.IndexFunc(b.directives, func(d directive) bool { return d.words[0] == plugin })
	if i < 0 {
		return directive{}, false
	}
	return b.directives[i], true
}

// hosts returns the entries of the hosts plugin, without its settings.
func (b serverBlock) hosts() map[string][]string {
	var out map[string][]string
	d, _ := b.find("hosts")
	for _, words := range d.lines {
		if _, err := netip.ParseAddr(words[0]); err != nil || len(words) < 2 {
			continue
		}
		if out == nil {
			out = map[string][]string{}
		}
		out[words[0]] = append(out[words[0]], words[1:]...)
	}
	return out
}

// upstream returns the servers for all names; none if CoreDNS uses the servers of each host.
func (b serverBlock) upstream() (out []string) {
	d, ok := b.find("forward")
	if !ok || len(d.words) < 2 || d.words[1] != "." {
		return nil
	}
	for _, server := range d.words[2:] {
		if strings.HasPrefix(server, "/") {
			return nil
		}
		out = append(out, strings.TrimPrefix(server, "dns://"))
	}
	return out
}

// zone returns the zone that a block describes; false if a cluster file cannot express it.
func (b serverBlock) zone() (v1alpha1.DNSZone, bool) {
	out := v1alpha1.DNSZone{Servers: b.upstream()}
	for _, zone := range b.zones {
		out.Names = append(out.Names, zoneName(zone))
	}
	if d, ok := b.find("cache"); ok && len(d.words) == 2 {
		out.CacheSeconds, _ = strconv.Atoi(d.words[1]) // the cluster file has a number or the default
	}
	otherPort := func(name string) bool { return strings.Contains(name, ":") }
	return out, len(out.Servers) > 0 && !slices.ContainsFunc(out.Names, otherPort) &&
		!slices.ContainsFunc(out.Servers, isNotServer) && !slices.ContainsFunc(b.directives, directive.isUnsaid)
}

// isNotServer reports whether a server is not an address, with or without a port.
func isNotServer(server string) bool {
	_, addrErr := netip.ParseAddr(server)
	_, portErr := netip.ParseAddrPort(server)
	return addrErr != nil && portErr != nil
}

// isUnsaid reports whether a cluster file cannot express a directive of a zone. Slipway
// writes the entries of hosts into every block.
func (d directive) isUnsaid() bool {
	switch d.words[0] {
	case "errors", "hosts", "log", "loadbalance", "loop", "prometheus", "reload":
		return false
	case "forward":
		return slices.ContainsFunc(d.lines, func(words []string) bool { return words[0] != "max_concurrent" })
	case "cache":
		return len(d.words) > 2 || len(d.lines) > 0
	}
	return true
}
