package spec

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // whether a zone name is valid does not depend on this machine

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

func (v *validator) checkDNS() {
	d, path := v.c.Spec.DNS, "spec.dns"
	for i, server := range d.Upstream {
		_, addrErr := netip.ParseAddr(server)
		_, portErr := netip.ParseAddrPort(server)
		if addrErr != nil && portErr != nil {
			v.refuse(idInvalidAddress, yamlfile.IndexPath(path+".upstream", i),
				strconv.Quote(server)+" is not the address of a server", "write an IP address, with :port if it is not 53")
		}
	}
	v.warnRepeated(path+".upstream", d.Upstream, serverMeaning)
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

var sysctlName = regexp.MustCompile(`^[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)+$`)

func (v *validator) checkSystem() {
	s, path := v.c.Spec.System, "spec.system"
	for i, server := range s.NTPServers {
		if hint, ok := hostAddress(server); !ok {
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
		if _, err := time.LoadLocation(s.Timezone); err != nil || s.Timezone == "Local" {
			v.refuse(idInvalidValue, path+".timezone", "there is no time zone "+strconv.Quote(s.Timezone),
				"write a time zone such as Europe/Berlin or UTC")
		}
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
