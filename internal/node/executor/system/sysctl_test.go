//go:build linux

package system

import (
	"testing"
)

func TestSysctlPath_AcceptsBothSeparators(t *testing.T) {
	for key, want := range map[string]string{
		"net.ipv4.ip_forward":            "/proc/sys/net/ipv4/ip_forward",
		"net/ipv4/conf/eth0.1/rp_filter": "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
		"net.ipv4.conf.eth0/1.rp_filter": "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
		"kernel.panic":                   "/proc/sys/kernel/panic",
		"":                               "",
		"../../etc/passwd":               "",
		"/etc/passwd":                    "",
		"net.ipv4.ip_forward=1":          "",
	} {
		got, err := SysctlPath(key)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("sysctlPath(%q) = %q, %v; want %q", key, got, err, want)
		}
	}
}
