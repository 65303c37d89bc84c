// Package hostaddress checks the addresses of hosts in a cluster file.
package hostaddress

import (
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Check accepts IP addresses and DNS names. The hint is for a text that other programs accept.
func Check(address string) (hint string, ok bool) {
	if ip, err := netip.ParseAddr(address); err == nil {
		return "write the address of the host itself", !ip.IsUnspecified() && !ip.IsMulticast()
	}
	switch {
	case strings.Contains(address, "@"):
		return "move the user to ssh.user", false
	case strings.Contains(address, "://"):
		return "write only the name or address", false
	case looksLikeHostPort(address):
		return "move the port to ssh.port", false
	case strings.Trim(address, "0123456789.") == "":
		if plain := withoutLeadingZeros(address); plain != "" {
			return "write " + plain + ": the numbers of an IPv4 address have no leading zeros", false
		}
		return "write four numbers from 0 to 255 for an IPv4 address", false
	}
	return "", len(validation.IsDNS1123Subdomain(strings.ToLower(address))) == 0
}

// withoutLeadingZeros returns an IPv4 address without leading zeros, "" for another text.
func withoutLeadingZeros(address string) string {
	parts := strings.Split(address, ".")
	for i, p := range parts {
		if parts[i] = strings.TrimLeft(p, "0"); parts[i] == "" && p != "" {
			parts[i] = "0"
		}
	}
	ip, err := netip.ParseAddr(strings.Join(parts, "."))
	if err != nil {
		return ""
	}
	return ip.String()
}

func looksLikeHostPort(address string) bool {
	if _, err := netip.ParseAddrPort(address); err == nil {
		return true
	}
	_, port, ok := strings.Cut(address, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	return ok && err == nil
}
