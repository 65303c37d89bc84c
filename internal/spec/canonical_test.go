package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestCanonical_WritesAddressesOneWay(t *testing.T) {
	for _, tc := range []struct{ is, reason, want string }{
		{"192.0.2.1", "IPv4 has one spelling", "192.0.2.1"},
		{"::ffff:192.0.2.1", "but for IPv4 in IPv6", "192.0.2.1"},
		{"FD00:0::12", "etcd and Kubernetes write it so", "fd00::12"},
		{"fd00:0:0:0:0:0:0:0012", "zeros are left out", "fd00::12"},
		{"fe80::A%eth0", "a link belongs to the address", "fe80::a%eth0"},
		{"Node-1.LAN", "names stay as they are", "Node-1.LAN"},
		{"", "nothing is no address", ""},
		{"10.0.0.300", "what is wrong is said about the words of the file", "10.0.0.300"},
	} {
		t.Run(tc.is, func(t *testing.T) {
			in := func(address string) *v1alpha1.Cluster {
				ssh := v1alpha1.SSH{Bastion: &v1alpha1.Bastion{Address: address}}
				c := &v1alpha1.Cluster{}
				c.Spec.SSH = ssh
				c.Spec.Hosts = []v1alpha1.Host{{Address: address, InternalAddress: address, SSH: ssh}}
				c.Spec.ControlPlaneEndpoint.Address = address
				SetDefaults(c, DefaultOptions{})
				return c
			}
			got, want := in(tc.is), in(tc.want)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if h := got.Spec.Hosts[0]; h.Address != tc.want || h.InternalAddress != tc.want || h.SSH.Bastion.Address != tc.want ||
				got.Spec.ControlPlaneEndpoint.Address != tc.want {
				t.Errorf("got %+v and the endpoint %q, want %q: %s", h, got.Spec.ControlPlaneEndpoint.Address, tc.want, tc.reason)
			}
		})
	}
}

func TestCanonical_WritesEtcdEndpointsOneWay(t *testing.T) {
	for _, tc := range []struct{ is, reason, want string }{
		{"https://[FD00:0::21]:2379", "one member, one URL", "https://[fd00::21]:2379"},
		{"https://[::ffff:10.0.0.21]:2379", "IPv4 in IPv6", "https://10.0.0.21:2379"},
		{"https://10.0.0.21:2379/", "what needs no other spelling is left alone", "https://10.0.0.21:2379/"},
		{"https://Etcd-1.LAN:2379", "a name", "https://Etcd-1.LAN:2379"},
		{"https://[FD00::21]", "no port: what is wrong is said about the words of the file", "https://[FD00::21]"},
		{"[FD00::21", "no URL", "[FD00::21"},
	} {
		t.Run(tc.is, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.Etcd.External = &v1alpha1.ExternalEtcd{Endpoints: []string{tc.is}}
			SetDefaults(c, DefaultOptions{})
			if got := c.Spec.Etcd.External.Endpoints[0]; got != tc.want {
				t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}
