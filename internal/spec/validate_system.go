package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // whether a zone name is valid does not depend on this machine

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/hostaddress"
	"slipway.dev/slipway/internal/spec/limits"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

func (v *validator) checkDNS() {
	d, path := v.c.Spec.DNS, "spec.dns"
	v.checkDNSServers(path+".upstream", d.Upstream)
	v.checkDNSZones(path+".zones", d.Zones)
	addresses := entries{}
	for _, address := range sortedKeys(d.Hosts) {
		at := yamlfile.KeyPath(path+".hosts", address)
		v.checkRepeated(diag.Warning, addresses, at, addressMeaning(address), address)
		v.warnRepeated(at, d.Hosts[address], addressMeaning)
		if _, err := netip.ParseAddr(address); err != nil {
			v.refuse(idInvalidAddress, at, strconv.Quote(address)+" is not an IP address", "write entries as address: [name, …]")
		}
		if len(d.Hosts[address]) == 0 {
			v.refuse(idMissingField, at, "no name is given for "+address, "write a list of names, or remove the address")
		}
		for i, name := range d.Hosts[address] {
			v.checkDomain(yamlfile.IndexPath(at, i), name)
		}
	}
}

const (
	// maxDNSServers is how many servers CoreDNS accepts in one list.
	maxDNSServers = 15
	// maxCacheSeconds is one day.
	maxCacheSeconds = 24 * 60 * 60
)

func (v *validator) checkDNSServers(path string, servers []string) {
	for i, server := range servers {
		_, addrErr := netip.ParseAddr(server)
		_, portErr := netip.ParseAddrPort(server)
		if addrErr != nil && portErr != nil {
			v.refuse(idInvalidAddress, yamlfile.IndexPath(path, i),
				strconv.Quote(server)+" is not the address of a server", "write an IP address, with :port if it is not 53")
		}
	}
	if len(servers) > maxDNSServers {
		v.refuse(idInvalidValue, path, fmt.Sprintf("%d servers are too many for CoreDNS", len(servers)),
			fmt.Sprintf("write at most %d", maxDNSServers))
	}
	v.warnRepeated(path, servers, serverMeaning)
}

// checkDNSZones rejects zones with which CoreDNS does not start, or pods do not find Services.
func (v *validator) checkDNSZones(path string, zones []v1alpha1.DNSZone) {
	names := entries{}
	for i, z := range zones {
		at := yamlfile.IndexPath(path, i)
		if len(z.Names) == 0 {
			v.refuse(idMissingField, at+".names", "the zone has no name", "write a list of names, such as [corp.example.com]")
		}
		for n, name := range z.Names {
			v.checkDNSZone(yamlfile.IndexPath(at+".names", n), name, names)
		}
		if len(z.Servers) == 0 {
			v.refuse(idMissingField, at+".servers", "the zone has no server", "write a list of IP addresses")
		}
		v.checkDNSServers(at+".servers", z.Servers)
		if z.CacheSeconds < 0 || z.CacheSeconds > maxCacheSeconds {
			v.refuse(idInvalidValue, at+".cacheSeconds", fmt.Sprintf("%d is not a valid number of seconds", z.CacheSeconds),
				fmt.Sprintf("use 1 to %d, or 0 for the default", maxCacheSeconds))
		}
	}
}

func (v *validator) checkDNSZone(at, name string, before entries) {
	v.checkDomain(at, name)
	v.checkRepeated(diag.Error, before, at, name, name)
	domain := cmp.Or(v.c.Spec.Kubernetes.DNSDomain, DefaultDNSDomain)
	if strings.HasSuffix("."+domain, "."+name) || strings.HasSuffix("."+name, "."+domain) {
		v.refuse(idInvalidValue, at, strconv.Quote(name)+" overlaps with "+domain+", the domain of Services",
			"name only zones outside "+domain)
	}
}

var sysctlName = regexp.MustCompile(`^[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)+$`)

func (v *validator) checkSystem() {
	s, path := v.c.Spec.System, "spec.system"
	for i, server := range s.NTPServers {
		if hint, ok := hostaddress.Check(server); !ok {
			v.refuse(idInvalidAddress, yamlfile.IndexPath(path+".ntpServers", i),
				strconv.Quote(server)+" is neither an IP address nor a host name", hint)
		} else if h, ok := HostCalled(v.c, server); ok {
			v.warn(idTimeServer, yamlfile.IndexPath(path+".ntpServers", i),
				h.Name+" is a host of this cluster, and Slipway does not set up time servers",
				"use an existing time server, or set one up on "+h.Name)
		}
	}
	v.warnRepeated(path+".ntpServers", s.NTPServers, addressMeaning)
	if s.Timezone != "" {
		v.checkTimeZone(path+".timezone", s.Timezone)
	}
	parameters := entries{}
	for _, key := range sortedKeys(s.Sysctls) {
		at := yamlfile.KeyPath(path+".sysctls", key)
		v.checkRepeated(diag.Error, parameters, at, SysctlName(key), key)
		if !sysctlName.MatchString(key) {
			v.refuse(idInvalidName, at, strconv.Quote(key)+" is not the name of a sysctl", "write a name such as net.core.somaxconn")
			continue
		}
		v.checkSysctl(at, key, strings.TrimSpace(s.Sysctls[key]))
	}
	v.checkLimits(path + ".limits")
}

// sysctlNeeds returns the sysctls without which pods cannot reach each other.
func sysctlNeeds() map[string]string {
	return map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv4.conf.all.forwarding": "1",
		"net.bridge.bridge-nf-call-iptables": "1", "net.bridge.bridge-nf-call-ip6tables": "1",
	}
}

// sysctlTrees are the directories below /proc/sys.
var sysctlTrees = []string{"abi", "crypto", "debug", "dev", "fs", "kernel", "net", "sunrpc", "user", "vm"}

// checkSysctl checks a name and its value for errors that every kernel rejects, or with which
// no cluster works.
func (v *validator) checkSysctl(at, key, value string) {
	name := SysctlName(key)
	tree, _, _ := strings.Cut(name, ".")
	switch want := sysctlNeeds()[name]; {
	case value == "" || strings.ContainsAny(value, "\r\n"):
		v.refuse(idInvalidValue, at, "a sysctl value must be one line and not empty", "")
	case !slices.Contains(sysctlTrees, tree):
		v.refuse(idInvalidName, at, "the kernel has no parameters below "+strconv.Quote(tree), SuggestWord(tree, sysctlTrees))
	case want != "" && value != want:
		v.refuse(idInvalidValue, at, "without "+name+"="+want+" pods cannot reach each other", "leave the entry out: Slipway sets it")
	}
}

// OpenFilesMax returns the fs.nr_open of the file, 0 if it has none: no process can open
// more files.
func OpenFilesMax(c *v1alpha1.Cluster) uint64 {
	for key, value := range c.Spec.System.Sysctls {
		if SysctlName(key) == "fs.nr_open" {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64) // the kernel rejects another value
			return n
		}
	}
	return 0
}

func (v *validator) checkLimits(path string) {
	for _, item := range sortedKeys(v.c.Spec.System.Limits) {
		at := yamlfile.KeyPath(path, item)
		if !slices.Contains(limits.Items(), item) {
			v.refuse(idInvalidName, at, strconv.Quote(item)+" is not a limit that Slipway sets", SuggestWord(item, limits.Items()))
		} else if problem, hint := limits.Check(item, v.c.Spec.System.Limits[item], OpenFilesMax(v.c)); problem != "" {
			v.refuse(idInvalidValue, at, problem, hint)
		}
	}
}

func (v *validator) checkTimeZone(path, zone string) {
	if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
		v.refuse(idInvalidValue, path, "there is no time zone "+strconv.Quote(zone), "write a time zone such as Europe/Berlin or UTC")
	}
}
