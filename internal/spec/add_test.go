package spec

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

func TestAddHosts(t *testing.T) {
	worker := []v1alpha1.Role{v1alpha1.RoleWorker}
	for _, tc := range []struct {
		name, reason string
		flags        []string
		want         []string // names
		address      map[string]string
		refused      string
	}{
		{"one", "it gets the next name of its role", []string{"root@10.0.0.13=worker"}, []string{"worker-2"}, map[string]string{"worker-2": "10.0.0.13"}, ""},
		{
			"several", "each gets a name of its own",
			[]string{"10.0.0.13=worker", "10.0.0.14=worker,name=big", "10.0.0.15=worker"},
			[]string{"worker-2", "big", "worker-3"},
			map[string]string{"worker-3": "10.0.0.15"},
			"",
		},
		{"again", "a command that was cut off can be repeated", []string{"root@10.0.0.12=worker"}, []string{"worker-1"}, map[string]string{"worker-1": "10.0.0.12"}, ""},
		{"in place", "another machine takes a name over", []string{"10.0.0.99=worker,name=worker-1"}, []string{"worker-1"}, map[string]string{"worker-1": "10.0.0.99"}, ""},
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
			Default(c, DefaultOptions{})
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

func hasID(err error, id string) bool {
	var list diag.List
	return errors.As(err, &list) && len(list) == 1 && list[0].ID == id
}
