package hostaddress

import "testing"

func TestCheck_AcceptsAddressesAndNames(t *testing.T) {
	for _, tc := range []struct {
		address string
		hint    string
		ok      bool
	}{
		{"192.0.2.1", "write the address of the host itself", true},
		{"2001:db8::1", "write the address of the host itself", true},
		{"Node-1.example.com", "", true},
		{"0.0.0.0", "write the address of the host itself", false},
		{"root@node-1", "move the user to ssh.user", false},
		{"ssh://node-1", "write only the name or address", false},
		{"node-1:22", "move the port to ssh.port", false},
		{"10.77.200.02", "write 10.77.200.2: the numbers of an IPv4 address have no leading zeros", false},
		{"10.077.200.00", "write 10.77.200.0: the numbers of an IPv4 address have no leading zeros", false},
		{"10.77.200", "write four numbers from 0 to 255 for an IPv4 address", false},
		{"10.77.200.0300", "write four numbers from 0 to 255 for an IPv4 address", false},
		{"node_1", "", false},
	} {
		if hint, ok := Check(tc.address); hint != tc.hint || ok != tc.ok {
			t.Errorf("%s: %t, %q; want %t, %q", tc.address, ok, hint, tc.ok, tc.hint)
		}
	}
}
