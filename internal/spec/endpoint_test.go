package spec

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

func TestEndpointAddress_DependsOnMode(t *testing.T) {
	cp, both, worker := []v1alpha1.Role{v1alpha1.RoleControlPlane}, []v1alpha1.Role{
		v1alpha1.RoleWorker,
		v1alpha1.RoleControlPlane,
	}, []v1alpha1.Role{v1alpha1.RoleWorker}
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
		{"what control planes hold", v1alpha1.EndpointKeepalived, "192.0.2.9", "w", "192.0.2.9"},
		{"itself: it works whoever holds it", v1alpha1.EndpointKeepalived, "192.0.2.9", "cp1", "192.0.2.1"},
		{"the Service", v1alpha1.EndpointUpdater, "10.96.0.2", "w", "10.96.0.2"},
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

func TestEndpointDefaults_UseTheSameIPVersion(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		is      v1alpha1.ControlPlaneEndpoint
		service string
		want    v1alpha1.ControlPlaneEndpoint
	}{
		{
			"the second of the services' addresses",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater},
			"10.96.0.0/16",
			v1alpha1.ControlPlaneEndpoint{Address: "10.96.0.2"},
		},
		{
			"of the other IP version",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater},
			"fd00:96::/112",
			v1alpha1.ControlPlaneEndpoint{Address: "fd00:96::2"},
		},
		{
			"the user's stays",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater, Address: "10.96.0.7"},
			"10.96.0.0/16",
			v1alpha1.ControlPlaneEndpoint{Address: "10.96.0.7"},
		},
		{
			"a damaged range is told elsewhere",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater},
			"10.96",
			v1alpha1.ControlPlaneEndpoint{},
		},
		{
			"the address tells routers apart",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "192.0.2.100"},
			"10.96.0.0/16",
			v1alpha1.ControlPlaneEndpoint{Address: "192.0.2.100", RouterID: 100},
		},
		{
			"0 is no router id",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "10.0.1.0"},
			"10.96.0.0/16",
			v1alpha1.ControlPlaneEndpoint{Address: "10.0.1.0", RouterID: 255},
		},
		{
			"ARP is the usual",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.100"},
			"10.96.0.0/16",
			v1alpha1.ControlPlaneEndpoint{Address: "192.0.2.100", KubeVIP: &v1alpha1.KubeVIP{Announce: AnnounceARP}},
		},
	} {
		c := &v1alpha1.Cluster{}
		c.Spec.ControlPlaneEndpoint = tc.is
		c.Spec.Network.ServiceCIDR = []string{tc.service}
		SetDefaults(c, DefaultOptions{})
		tc.want.Mode, tc.want.Port = tc.is.Mode, DefaultAPIPort
		if d := cmp.Diff(tc.want, c.Spec.ControlPlaneEndpoint); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, d)
		}
	}
}

// TestEndpoint_RefusesUnusableSettings requires that endpoints which cannot work are rejected,
// each with the wrong field.
func TestEndpoint_RefusesUnusableSettings(t *testing.T) {
	bgp := func(as int, peers ...v1alpha1.BGPPeer) *v1alpha1.KubeVIP {
		return &v1alpha1.KubeVIP{Announce: AnnounceBGP, BGP: &v1alpha1.BGP{AS: as, Peers: peers}}
	}
	router := v1alpha1.BGPPeer{Address: "192.0.2.254", AS: 64513}
	for _, tc := range []struct {
		reason string
		is     v1alpha1.ControlPlaneEndpoint
		want   string // path and id, "" if it is fine
	}{
		{"nothing to hold", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived}, "address missing-field"},
		{"nothing to hold", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP}, "address missing-field"},
		{"a host's own", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "192.0.2.1"}, "address duplicate-address"},
		{"every host's own", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "127.0.0.9"}, "address invalid-address"},
		{"no address", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "vip.example.com"}, "address invalid-address"},
		{
			"fine",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "192.0.2.100", Interface: "bond0.7", RouterID: 255},
			"",
		},
		{
			"too many routers",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "192.0.2.100", RouterID: 256},
			"routerID invalid-value",
		},
		{"VRRP is keepalived's", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointHAProxy, RouterID: 7}, "routerID conflicting-fields"},
		{"nothing is held", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointHAProxy, Interface: "eth0"}, "interface conflicting-fields"},
		{
			"what a configuration could not hold",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "192.0.2.100", Interface: "eth0 }"},
			"interface invalid-name",
		},
		{
			"itself on every worker: nobody's balancer, or Slipway's own of before",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Address: "127.0.0.1"},
			"address invalid-address",
		},
		{
			"the same in another spelling",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Address: "::ffff:127.0.0.1"},
			"address invalid-address",
		},
		{"no address", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Address: "0.0.0.0"}, "address invalid-address"},
		{"no load balancer's", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Address: "ff02::1"}, "address invalid-address"},
		{"a machine of one's own", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Address: "192.0.2.200"}, ""},
		{"the Service's own choice", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater}, ""},
		{"the API's own Service", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater, Address: "10.96.0.1"}, "address invalid-address"},
		{"that of DNS", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater, Address: "10.96.0.10"}, "address invalid-address"},
		{"the last that is given out last", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater, Address: "10.96.1.0"}, ""},
		{
			"it may be given to any Service",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater, Address: "10.96.1.1"},
			"address invalid-address",
		},
		{"no Service has it", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater, Address: "192.0.2.100"}, "address invalid-address"},
		{"of no range's version", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater, Address: "fd00::2"}, "address invalid-address"},
		{"fine", v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.100", KubeVIP: bgp(64512, router)}, ""},
		{
			"nobody to tell",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.100", KubeVIP: bgp(64512)},
			"kubeVIP.bgp missing-field",
		},
		{
			"no number",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.100", KubeVIP: bgp(0, router)},
			"kubeVIP.bgp.as invalid-value",
		},
		{
			"no address",
			v1alpha1.ControlPlaneEndpoint{
				Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.100",
				KubeVIP: bgp(1, v1alpha1.BGPPeer{Address: "router", AS: 1}),
			},
			"kubeVIP.bgp.peers[0].address invalid-address",
		},
		{
			"it is told by ARP",
			v1alpha1.ControlPlaneEndpoint{
				Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.100",
				KubeVIP: &v1alpha1.KubeVIP{BGP: &v1alpha1.BGP{AS: 1}},
			},
			"kubeVIP.bgp conflicting-fields",
		},
		{
			"neither",
			v1alpha1.ControlPlaneEndpoint{
				Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.100",
				KubeVIP: &v1alpha1.KubeVIP{Announce: "ospf"},
			},
			"kubeVIP.announce unknown-value",
		},
		{
			"another program's",
			v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointHAProxy, KubeVIP: &v1alpha1.KubeVIP{}},
			"kubeVIP conflicting-fields",
		},
	} {
		c := &v1alpha1.Cluster{}
		c.Name = "prod"
		c.Spec.ControlPlaneEndpoint = tc.is
		c.Spec.Hosts = []v1alpha1.Host{{
			Name: "cp1", Address: "203.0.113.1", InternalAddress: "192.0.2.1",
			Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane},
		}}
		SetDefaults(c, DefaultOptions{KubernetesVersion: "v1.37.1"})
		got := ""
		for _, d := range Validate(c, ValidateOptions{}) {
			if rest, ok := strings.CutPrefix(d.Path, "spec.controlPlaneEndpoint."); ok && got == "" {
				got = rest + " " + d.ID
			}
		}
		if got != tc.want {
			t.Errorf("%s: %+v: %q, want %q", tc.reason, tc.is, got, tc.want)
		}
	}
}

func TestEndpointChange_KeepsOldAddress(t *testing.T) {
	ep := func(mode v1alpha1.EndpointMode, address string, routerID int) v1alpha1.ControlPlaneEndpoint {
		return v1alpha1.ControlPlaneEndpoint{Mode: mode, Address: address, RouterID: routerID}
	}
	for _, tc := range []struct {
		reason   string
		old, new v1alpha1.ControlPlaneEndpoint
		refused  string // the field
	}{
		{"the old one would be gone first", ep("keepalived", "192.0.2.8", 8), ep("keepalived", "192.0.2.9", 9), "address"},
		{"the old one would be gone first", ep("kube-vip", "192.0.2.8", 0), ep("kube-vip", "192.0.2.9", 0), "address"},
		{
			"whether nobody has the new one is not asked of those that hold one", ep("keepalived", "192.0.2.8", 8),
			ep("kube-vip", "192.0.2.9", 0), "mode",
		},
		{"both would hold it until the old way is ended", ep("keepalived", "192.0.2.8", 8), ep("kube-vip", "192.0.2.8", 0), "mode"},
		{"both would hold it until the old way is ended", ep("kube-vip", "192.0.2.8", 0), ep("keepalived", "192.0.2.8", 8), "mode"},
		{"the old one is ended when nodes go by haproxy", ep("kube-vip", "192.0.2.8", 0), ep("haproxy", "", 0), ""},
		{"the Service has one address", ep("updater", "10.96.0.2", 0), ep("updater", "10.96.0.3", 0), "address"},
		{"both would hold the address", ep("keepalived", "192.0.2.8", 8), ep("keepalived", "192.0.2.8", 9), "routerID"},
		{"nothing changes", ep("keepalived", "192.0.2.8", 8), ep("keepalived", "192.0.2.8", 8), ""},
		{"each is there while the other is made", ep("keepalived", "192.0.2.8", 8), ep("haproxy", "", 0), ""},
		{"each is there while the other is made", ep("haproxy", "", 0), ep("keepalived", "192.0.2.9", 9), ""},
		{"the new way is the old one, which is taken away", ep("keepalived", "192.0.2.8", 8), ep("external", "192.0.2.8", 0), "address"},
		{"the new way is the old one, which is taken away", ep("kube-vip", "2001:db8::8", 0), ep("external", "2001:DB8:0::8", 0), "address"},
		{"the new way is the old one, which is taken away", ep("updater", "10.96.0.2", 0), ep("external", "10.96.0.2", 0), "address"},
		{"both load balancers are there", ep("external", "192.0.2.8", 0), ep("external", "192.0.2.9", 0), ""},
		{"the hosts file hides the new way", ep("haproxy", "", 0), ep("external", "", 0), "address"},
		{"the hosts file hides the new way", ep("external", "192.0.2.8", 0), ep("external", "", 0), "address"},
		{"nothing changes", ep("external", "", 0), ep("external", "", 0), ""},
		{"it is tried by its address", ep("external", "", 0), ep("external", "192.0.2.8", 0), ""},
	} {
		old, new := &v1alpha1.Cluster{}, &v1alpha1.Cluster{}
		old.Spec.ControlPlaneEndpoint, new.Spec.ControlPlaneEndpoint = tc.old, tc.new
		var got string
		for _, d := range FindForbiddenChanges(old, new) {
			got += strings.TrimPrefix(d.Path, "spec.controlPlaneEndpoint.")
			if d.ID != idEndpointChange || d.Hint == "" {
				t.Errorf("unfinished: %+v", d)
			}
		}
		if got != tc.refused {
			t.Errorf("from %+v to %+v refused is %q, want %q: %s", tc.old, tc.new, got, tc.refused, tc.reason)
		}
	}
}

// TestEndpointChange_CompletesHalfwayChange: the difference between two states shows which change is
// incomplete. A file can complete it, independent of the latest operation.
func TestEndpointChange_CompletesHalfwayChange(t *testing.T) {
	ep := func(mode v1alpha1.EndpointMode, address string) v1alpha1.ControlPlaneEndpoint {
		return v1alpha1.ControlPlaneEndpoint{Mode: mode, Address: address}
	}
	for _, tc := range []struct {
		reason        string
		was, is, want v1alpha1.ControlPlaneEndpoint
		message, hint string
	}{
		{
			"the mode differs", ep("updater", "10.96.0.2"), ep("haproxy", ""), ep("updater", "10.96.0.3"),
			"the change from mode updater to haproxy is not complete",
			"complete the first change: write mode: haproxy without an address, and apply it",
		},
		{
			"the address alone differs", ep("updater", "10.96.0.2"), ep("updater", "10.96.0.4"), ep("external", "10.96.0.2"),
			"the change from address 10.96.0.2 to 10.96.0.4 is not complete",
			"complete the first change: write mode: updater with address: 10.96.0.4, and apply it",
		},
	} {
		old, new := &v1alpha1.Cluster{}, &v1alpha1.Cluster{}
		old.Spec.ControlPlaneEndpoint, new.Spec.ControlPlaneEndpoint = tc.is, tc.want
		text := ""
		was := old.DeepCopy()
		was.Spec.ControlPlaneEndpoint = tc.was
		for _, d := range FindForbiddenChanges(old, new, was, old) {
			text += d.Message + "\n" + d.Hint
		}
		if !strings.Contains(text, tc.message) || !strings.Contains(text, tc.hint) || strings.Contains(text, "slipway resume") {
			t.Errorf("%s: %q, want %q and %q", tc.reason, text, tc.message, tc.hint)
		}
	}
}

// TestBalancer_CannotLeaveWhileInUse: a control plane cannot leave while workers reach the API through
// it.
func TestBalancer_CannotLeaveWhileInUse(t *testing.T) {
	host := func(name, address, internal string, role v1alpha1.Role) v1alpha1.Host {
		return v1alpha1.Host{Name: name, Address: address, InternalAddress: internal, Roles: []v1alpha1.Role{role}}
	}
	cp1 := host("cp1", "203.0.113.1", "192.0.2.1", v1alpha1.RoleControlPlane)
	cp2 := host("cp2", "192.0.2.2", "", v1alpha1.RoleControlPlane)
	w1 := host("w1", "192.0.2.3", "", v1alpha1.RoleWorker)
	ep := func(mode v1alpha1.EndpointMode, address string) v1alpha1.ControlPlaneEndpoint {
		return v1alpha1.ControlPlaneEndpoint{Mode: mode, Address: address}
	}
	for _, tc := range []struct {
		reason  string
		ep      v1alpha1.ControlPlaneEndpoint
		left    []v1alpha1.Host
		refused string
	}{
		{"workers go to it alone", ep("external", "203.0.113.1"), []v1alpha1.Host{cp2, w1}, "spec.controlPlaneEndpoint.address"},
		{
			"workers go to it alone, by its other address", ep("external", "192.0.2.1"),
			[]v1alpha1.Host{cp2, w1},
			"spec.controlPlaneEndpoint.address",
		},
		{
			"the one that has its place is another machine", ep("external", "203.0.113.1"),
			[]v1alpha1.Host{host("cp1", "192.0.2.9", "", v1alpha1.RoleControlPlane), cp2},
			"spec.controlPlaneEndpoint.address",
		},
		{"another one leaves", ep("external", "203.0.113.1"), []v1alpha1.Host{cp1, w1}, ""},
		{"a balancer of the user's stays on a worker", ep("external", "192.0.2.3"), []v1alpha1.Host{cp1, cp2}, ""},
		{"the way changes with it", ep("haproxy", ""), []v1alpha1.Host{cp2, w1}, ""},
	} {
		old, new := &v1alpha1.Cluster{}, &v1alpha1.Cluster{}
		old.Spec.Hosts, new.Spec.Hosts = []v1alpha1.Host{cp1, cp2, w1}, tc.left
		old.Spec.ControlPlaneEndpoint, new.Spec.ControlPlaneEndpoint = ep("external", tc.ep.Address), tc.ep
		got := ""
		for _, d := range FindForbiddenChanges(old, new) {
			if d.ID == idEndpointChange {
				got += d.Path
			}
		}
		if got != tc.refused {
			t.Errorf("%s: refused is %q, want %q", tc.reason, got, tc.refused)
		}
	}
}

// TestDomain_RefusesAddressForNewCluster: an address is not a valid domain for a new cluster. An existing cluster
// with such a domain is accepted, with a warning.
func TestDomain_RefusesAddressForNewCluster(t *testing.T) {
	cluster := func(domain string) *v1alpha1.Cluster {
		c := &v1alpha1.Cluster{}
		c.Name = "prod"
		c.Spec.ControlPlaneEndpoint.Domain = domain
		c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1", Address: "192.0.2.1", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}}}
		SetDefaults(c, DefaultOptions{KubernetesVersion: "v1.37.1"})
		return c
	}
	text := []byte("apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n" +
		"  controlPlaneEndpoint: {domain: 192.0.2.9}\n  kubernetes: {version: v1.37.1}\n" +
		"  hosts:\n  - {name: cp1, address: 192.0.2.1, roles: [control-plane]}\n")
	for _, tc := range []struct {
		name     string
		recorded *v1alpha1.Cluster
		want     diag.Severity
	}{
		{"a new cluster", nil, diag.Error},
		{"one that exists with it", cluster("192.0.2.9"), diag.Warning},
		{"one that exists with another", cluster("192.0.2.8"), diag.Error},
		{"one that exists with a name", cluster("api.example.com"), diag.Error},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := Validate(cluster("192.0.2.9"), ValidateOptions{Recorded: tc.recorded})
			if i := slices.IndexFunc(found, func(d diag.Diagnostic) bool { return d.Path == "spec.controlPlaneEndpoint.domain" }); i < 0 ||
				found[i].Severity != tc.want {
				t.Errorf("%+v", found)
			}
			loaded, err := Loader{Recorded: func(string) *v1alpha1.Cluster { return tc.recorded }}.Load("prod.yaml", text)
			if (err != nil) != (tc.want == diag.Error) || err == nil && len(loaded.Warnings) != 1 {
				t.Errorf("%+v, %v", loaded, err)
			}
		})
	}
}
