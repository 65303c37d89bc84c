package spec

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestEndpointAddress(t *testing.T) {
	cp, both, worker := []v1alpha1.Role{v1alpha1.RoleControlPlane}, []v1alpha1.Role{v1alpha1.RoleWorker, v1alpha1.RoleControlPlane}, []v1alpha1.Role{v1alpha1.RoleWorker}
	c := &v1alpha1.Cluster{}
	c.Spec.Hosts = []v1alpha1.Host{
		{Name: "cp1", Address: "203.0.113.1", InternalAddress: "192.0.2.1", Roles: cp},
		{Name: "cp2", Address: "192.0.2.2", Roles: both},
		{Name: "w", Address: "192.0.2.3", Roles: worker},
		{Name: "w6", Address: "2001:db8::4", Roles: worker},
	}
	for _, tc := range []struct {
		reason        string
		mode          v1alpha1.EndpointMode
		address, host string
		want          string
	}{
		{"the one there is, where nodes reach it", v1alpha1.EndpointNone, "", "w", "192.0.2.1"},
		{"itself", v1alpha1.EndpointNone, "", "cp1", "192.0.2.1"},
		{"the balancer on the node", v1alpha1.EndpointHAProxy, "", "w", "127.0.0.1"},
		{"the balancer on a node of the other IP version", v1alpha1.EndpointHAProxy, "", "w6", "::1"},
		{"itself, though it is a worker, too", v1alpha1.EndpointHAProxy, "", "cp2", "192.0.2.2"},
		{"the user's balancer", v1alpha1.EndpointExternal, "192.0.2.9", "w", "192.0.2.9"},
		{"itself: it works without the balancer", v1alpha1.EndpointExternal, "192.0.2.9", "cp2", "192.0.2.2"},
		{"what the host resolves", v1alpha1.EndpointExternal, "", "w", ""},
	} {
		c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Mode: tc.mode, Address: tc.address}
		for _, h := range c.Spec.Hosts {
			if got := EndpointAddress(c, h); h.Name == tc.host && got != tc.want {
				t.Errorf("mode %s on %s: %q, want %q: %s", tc.mode, tc.host, got, tc.want, tc.reason)
			}
		}
	}
}
