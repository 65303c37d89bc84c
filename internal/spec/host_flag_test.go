package spec

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

func TestParseHostFlag_ReadsEveryPart(t *testing.T) {
	cp, worker, etcd := v1alpha1.RoleControlPlane, v1alpha1.RoleWorker, v1alpha1.RoleEtcd
	for _, tc := range []struct {
		flag, reason string
		want         HostFlag
		id           string
	}{
		{"root@10.0.0.11=control-plane", "the common form", HostFlag{User: "root", Address: "10.0.0.11", Roles: []v1alpha1.Role{cp}}, ""},
		{
			"10.0.0.11:2222=worker,control-plane,name=a", "all parts",
			HostFlag{Address: "10.0.0.11", Port: 2222, Name: "a", Roles: []v1alpha1.Role{worker, cp}},
			"",
		},
		{"fd00::1=worker", "IPv6 alone needs no brackets", HostFlag{Address: "fd00::1", Roles: []v1alpha1.Role{worker}}, ""},
		{
			"root@[fd00::1]:22=worker", "with a port it does",
			HostFlag{User: "root", Address: "fd00::1", Port: 22, Roles: []v1alpha1.Role{worker}},
			"",
		},
		{"[fd00::1]=worker", "and may have them without", HostFlag{Address: "fd00::1", Roles: []v1alpha1.Role{worker}}, ""},
		{
			"[FD00:0::1]:22=worker", "in another spelling it is the same",
			HostFlag{Address: "fd00::1", Port: 22, Roles: []v1alpha1.Role{worker}},
			"",
		},
		{"localhost=control-plane", "this machine", HostFlag{Address: "localhost", Roles: []v1alpha1.Role{cp}}, ""},
		{"10.0.0.21=etcd", "etcd on a host of its own", HostFlag{Address: "10.0.0.21", Roles: []v1alpha1.Role{etcd}}, ""},
		{"10.0.0.21=control-plane,etcd", "or beside another role", HostFlag{Address: "10.0.0.21", Roles: []v1alpha1.Role{cp, etcd}}, ""},
		{
			"10.0.0.11=registry", "a registry on a host of its own",
			HostFlag{Address: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleRegistry}},
			"",
		},
		{"10.0.0.11", "a host without a role would be nothing", HostFlag{}, idMissingRole},
		{"10.0.0.11=", "nor is an empty one", HostFlag{}, idMissingRole},
		{"10.0.0.11=name=a", "nor a name alone", HostFlag{}, idMissingRole},
		{"10.0.0.11=wroker", "misspelt", HostFlag{}, idUnknownRole},
		{"10.0.0.11=worker,worker", "twice", HostFlag{}, idInvalidHostFlag},
		{"10.0.0.11=worker,nmae=a", "unknown part", HostFlag{}, idInvalidHostFlag},
		{"@10.0.0.11=worker", "a user is missing", HostFlag{}, idInvalidHostFlag},
		{"=worker", "an address is missing", HostFlag{}, idInvalidHostFlag},
		{"10.0.0.11:0=worker", "no port", HostFlag{}, idInvalidHostFlag},
		{"10.0.0.11:ssh=worker", "no port either", HostFlag{}, idInvalidHostFlag},
		{"10.0.0.300=worker", "no address", HostFlag{}, idInvalidHostFlag},
		{"a b=worker", "no name", HostFlag{}, idInvalidHostFlag},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			got, err := ParseHostFlag(tc.flag)
			if tc.id != "" {
				var list diag.List
				if !errors.As(err, &list) || list[0].ID != tc.id || list[0].Hint == "" {
					t.Fatalf("%v, want %s: %s", err, tc.id, tc.reason)
				}
				return
			}
			if d := cmp.Diff(tc.want, got); err != nil || d != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, d)
			}
		})
	}
}

func FuzzParseHostFlag(f *testing.F) {
	f.Add("root@[fd00::1]:22=worker,name=a")
	f.Add("10.0.0.11=control-plane")
	f.Fuzz(func(t *testing.T, flag string) {
		h, err := ParseHostFlag(flag)
		if err == nil && (h.Address == "" || len(h.Roles) == 0) {
			t.Errorf("%q gives half a host: %+v", flag, h)
		}
	})
}
