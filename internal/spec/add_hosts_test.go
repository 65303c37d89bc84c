package spec

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

func TestAddHosts_NamesNewHosts(t *testing.T) {
	worker := []v1alpha1.Role{v1alpha1.RoleWorker}
	for _, tc := range []struct {
		name, reason string
		flags        []string
		want         []string // names
		address      map[string]string
		refused      string
	}{
		{
			"one", "it gets the next name of its role",
			[]string{"root@10.0.0.13=worker"},
			[]string{"worker-2"},
			map[string]string{"worker-2": "10.0.0.13"},
			"",
		},
		{
			"several", "each gets a name of its own",
			[]string{"10.0.0.13=worker", "10.0.0.14=worker,name=big", "10.0.0.15=worker"},
			[]string{"worker-2", "big", "worker-3"},
			map[string]string{"worker-3": "10.0.0.15"},
			"",
		},
		{
			"again", "a command that was cut off can be repeated",
			[]string{"root@10.0.0.12=worker"},
			[]string{"worker-1"},
			map[string]string{"worker-1": "10.0.0.12"},
			"",
		},
		{
			"in place", "another machine takes a name over",
			[]string{"10.0.0.99=worker,name=worker-1"},
			[]string{"worker-1"},
			map[string]string{"worker-1": "10.0.0.99"},
			"",
		},
		{
			"a name to come", "one that a flag gives is not taken for another",
			[]string{"10.0.0.13=worker", "10.0.0.14=worker,name=worker-2"},
			[]string{"worker-3", "worker-2"},
			map[string]string{"worker-3": "10.0.0.13", "worker-2": "10.0.0.14"},
			"",
		},
		{
			"one address, two ports", "a gateway has machines behind it",
			[]string{"10.0.0.13:2201=worker", "10.0.0.13:2202=worker"},
			[]string{"worker-2", "worker-3"},
			nil,
			"",
		},
		{
			"one name twice", "the first machine would be dropped",
			[]string{"10.0.0.13=worker,name=w9", "10.0.0.14=worker,name=w9"},
			[]string{"w9"},
			nil, idDuplicateName,
		},
		{
			"one place for two", "so would it of two for a host on record",
			[]string{"10.0.0.13=worker,name=worker-1", "10.0.0.14=worker,name=worker-1"},
			[]string{"worker-1"},
			nil, idDuplicateName,
		},
		{
			"itself and another", "it cannot stay and be replaced",
			[]string{"10.0.0.12=worker", "10.0.0.14=worker,name=worker-1"},
			[]string{"worker-1"},
			nil, idDuplicateName,
		},
		{
			"one address twice", "it is one machine",
			[]string{"10.0.0.13=worker,name=a", "10.0.0.13=worker,name=b"},
			[]string{"a"},
			nil, idDuplicateAddress,
		},
		{
			"one flag twice", "the second is a copy that was not edited",
			[]string{"10.0.0.13=worker", "root@10.0.0.13:22=worker"},
			[]string{"worker-2"},
			nil, idDuplicateAddress,
		},
		{"for etcd", "it is named by what it is", []string{"10.0.0.21=etcd", "10.0.0.22=etcd,worker"}, []string{"etcd-1", "worker-2"}, nil, ""},
		{"other roles", "the roles of a host are fixed", []string{"10.0.0.12=control-plane"}, nil, nil, idHostKnown},
		{"other name", "one machine is one node", []string{"10.0.0.12=worker,name=other"}, nil, nil, idHostKnown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Name = "prod"
			c.Spec.Hosts = []v1alpha1.Host{
				{Name: "cp-1", Address: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
				{Name: "worker-1", Address: "10.0.0.12", Roles: worker},
			}
			SetDefaults(c, DefaultOptions{})
			var flags []HostFlag
			for _, text := range tc.flags {
				f, err := ParseHostFlag(text)
				if err != nil {
					t.Fatal(err)
				}
				flags = append(flags, f)
			}
			names, err := AddHosts(c, flags)
			if (err != nil) != (tc.refused != "") || err != nil && !hasID(err, tc.refused) {
				t.Fatalf("got %v, want %q: %s", err, tc.refused, tc.reason)
			}
			if d := cmp.Diff(tc.want, names); d != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, d)
			}
			for _, h := range c.Spec.Hosts {
				if want := tc.address[h.Name]; want != "" && (h.Address != want || h.InternalAddress != want) {
					t.Errorf("%s is at %s (%s), want %s: %s", h.Name, h.Address, h.InternalAddress, want, tc.reason)
				}
			}
		})
	}
}

// TestAddHosts_KeepsSettings: a record from before a default is no less a record.
func TestAddHosts_KeepsSettings(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Spec.Hosts = []v1alpha1.Host{{Name: "cp-1", Address: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}}}
	SetDefaults(c, DefaultOptions{KubernetesVersion: "v1.37.1"})
	c.Spec.Kubernetes.Kubelet.Config = nil
	was := c.DeepCopy().Spec.Kubernetes
	f, err := ParseHostFlag("10.0.0.12=worker")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AddHosts(c, []HostFlag{f}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(was, c.Spec.Kubernetes); d != "" {
		t.Errorf("settings of Kubernetes (-want +got):\n%s", d)
	}
}

// TestAddHosts_RefusesKnownHosts names the part of the flag that is in use: the name, or the address.
func TestAddHosts_RefusesKnownHosts(t *testing.T) {
	for _, tc := range []struct{ flag, reason, want string }{
		{
			"10.0.0.50=worker,name=cp-1", "the address is new",
			`the name cp-1 is already in the cluster: cp-1 at 10.0.0.11 as control-plane [host-known]
    hint: remove the existing node first: slipway delete node cp-1, or use a different name for the new host`,
		},
		{
			"10.0.0.11=worker,name=cp-1", "it is that host, in another role",
			`10.0.0.11 is already in the cluster: cp-1 at 10.0.0.11 as control-plane [host-known]
    hint: remove the existing node first: slipway delete node cp-1`,
		},
		{
			"10.0.0.11=control-plane,name=other", "the name is new",
			`10.0.0.11 is already in the cluster: cp-1 at 10.0.0.11 as control-plane [host-known]
    hint: remove the existing node first: slipway delete node cp-1`,
		},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.Hosts = []v1alpha1.Host{{Name: "cp-1", Address: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}}}
			f, err := ParseHostFlag(tc.flag)
			if err != nil {
				t.Fatal(err)
			}
			_, err = AddHosts(c, []HostFlag{f})
			if d := cmp.Diff("--host: "+tc.want, fmt.Sprint(err)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestAddHosts_ReplacesMachines(t *testing.T) {
	was := v1alpha1.Host{
		Name: "w3", Address: "10.0.0.13", InternalAddress: "10.1.0.13", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}, Arch: "arm64",
		Labels: map[string]string{"disk": "ssd"},
		SSH: v1alpha1.SSH{
			User: "admin", Port: 2222, HostKey: "SHA256:old", PrivateKeyFile: "/key",
			Bastion: &v1alpha1.Bastion{Address: "10.0.0.1"},
		},
	}
	for _, tc := range []struct {
		name, reason, flag string
		change             func(*v1alpha1.Host)
	}{
		{"the same", "nothing of it is asked to change", "admin@10.0.0.13:2222=worker,name=w3", func(*v1alpha1.Host) {}},
		{
			"another machine", "it has other keys, and may be of another kind; what is the node's stays", "admin@10.0.0.99:2222=worker,name=w3",
			func(h *v1alpha1.Host) {
				h.Address, h.InternalAddress, h.Arch, h.SSH.HostKey = "10.0.0.99", "10.0.0.99", "", ""
			},
		},
		{
			"another port", "so does one behind the same gateway", "10.0.0.13:2223=worker,name=w3",
			func(h *v1alpha1.Host) {
				h.InternalAddress, h.Arch, h.SSH.HostKey, h.SSH.User, h.SSH.Port = "10.0.0.13", "", "", "", 2223
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Name = "prod"
			c.Spec.Hosts = []v1alpha1.Host{was}
			c = c.DeepCopy()
			SetDefaults(c, DefaultOptions{})
			want := c.DeepCopy()
			tc.change(&want.Spec.Hosts[0])
			f, err := ParseHostFlag(tc.flag)
			if err != nil {
				t.Fatal(err)
			}
			_, err = AddHosts(c, []HostFlag{f})
			if d := cmp.Diff(want, c); err != nil || d != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, d)
			}
		})
	}
}

func hasID(err error, id string) bool {
	var list diag.List
	return errors.As(err, &list) && len(list) == 1 && list[0].ID == id
}
