package hostclaims

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
)

var created = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// newCluster returns a Cluster of an age in seconds, with hosts at these addresses.
func newCluster(name string, age int, addresses ...string) *v1alpha1.Cluster {
	c := new(v1alpha1.Cluster)
	c.Namespace, c.Name, c.UID = "team", name, types.UID("uid-"+name)
	c.CreationTimestamp = metav1.NewTime(created.Add(-time.Duration(age) * time.Second))
	for _, a := range addresses {
		c.Spec.Hosts = append(c.Spec.Hosts, v1alpha1.Host{Name: "host-" + a, Address: a})
	}
	return c
}

func TestFindShared_ComparesDestinations(t *testing.T) {
	port, bastion := newCluster("port", 0, "10.0.0.1"), newCluster("bastion", 0, "10.0.0.1")
	port.Spec.SSH.Port = 2222
	bastion.Spec.SSH.Bastion = &v1alpha1.Bastion{Address: "b"}
	standard := newCluster("standard", 0, "10.0.0.1")
	standard.Spec.Hosts[0].SSH.Port = 22
	for _, tc := range []struct {
		name, reason string
		other        *v1alpha1.Cluster
		shared       bool
	}{
		{"same address", "it is one machine", newCluster("same", 0, "10.0.0.2", "10.0.0.1"), true},
		{"other address", "these are two machines", newCluster("other", 0, "10.0.0.2"), false},
		{"mapped address", "it is another form of the address", newCluster("mapped", 0, "::ffff:10.0.0.1"), true},
		{"standard port", "it is the default", standard, true},
		{"other port", "another machine can have it", port, false},
		{"bastion", "the address belongs to another network", bastion, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := NewIndex(time.Now)
			x.Set(New(tc.other))
			if got := x.FindShared(New(newCluster("prod", 0, "10.0.0.1"))); (len(got) > 0) != tc.shared {
				t.Errorf("%s: %+v", tc.reason, got)
			}
		})
	}
	if got := New(newCluster("names", 0, "W1.Example.com")).Hosts; got["w1.example.com 22"] != 0 || len(got) != 1 {
		t.Errorf("names of hosts: %v", got)
	}
}

func TestFindShared_OldestFirst(t *testing.T) {
	x := NewIndex(time.Now)
	for _, c := range []*v1alpha1.Cluster{newCluster("b", 5, "1.1.1.1"), newCluster("a", 5, "1.1.1.1"), newCluster("old", 9, "1.1.1.1")} {
		x.Set(New(c))
	}
	var got []string
	for _, s := range x.FindShared(New(newCluster("new", 0, "1.1.1.1"))) {
		got = append(got, s.Other.Name)
	}
	if d := cmp.Diff([]string{"old", "a", "b"}, got); d != "" {
		t.Error(d)
	}
}

// TestSet_ReturnsAffectedClusters changes the hosts of a Cluster. The Clusters that share a host with it, or did, are
// looked at again.
func TestSet_ReturnsAffectedClusters(t *testing.T) {
	x := NewIndex(time.Now)
	x.Set(New(newCluster("one", 3, "1.1.1.1")))
	x.Set(New(newCluster("two", 2, "2.2.2.2")))
	names := func(list []types.NamespacedName) (out []string) {
		for _, n := range list {
			out = append(out, n.Name)
		}
		slices.Sort(out)
		return out
	}
	for _, tc := range []struct {
		reason string
		got    []types.NamespacedName
		want   []string
	}{
		{"it shares one host", x.Set(New(newCluster("new", 0, "1.1.1.1"))), []string{"one"}},
		{"it has moved", x.Set(New(newCluster("new", 0, "2.2.2.2"))), []string{"one", "two"}},
		{"nothing is shared", x.Set(New(newCluster("alone", 0, "3.3.3.3"))), nil},
		{"it is gone", x.Remove("uid-new"), []string{"two"}},
		{"it was gone already", x.Remove("uid-new"), nil},
	} {
		if d := cmp.Diff(tc.want, names(tc.got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, d)
		}
	}
	if got := x.FindShared(New(newCluster("other", 0, "2.2.2.2"))); len(got) != 1 || got[0].Other.Name != "two" {
		t.Errorf("after the removal: %+v", got)
	}
}

func TestSettling_CountsFromFirstSight(t *testing.T) {
	now := created
	x := NewIndex(func() time.Time { return now })
	c := newCluster("prod", 0, "1.1.1.1")
	if left := x.Settling(New(c)); left != SettleTime {
		t.Errorf("an unknown Cluster has settled in %s", left)
	}
	x.Set(New(c))
	now = now.Add(SettleTime / 2)
	x.Set(New(c)) // a change of its status
	if left := x.Settling(New(c)); left != SettleTime/2 {
		t.Errorf("%s left after a half of the time", left)
	}
	now = now.Add(SettleTime / 2)
	if left := x.Settling(New(c)); left != 0 {
		t.Errorf("%s left after the whole time", left)
	}
	if left := x.Settling(New(newCluster("prod", 0, "1.1.1.1", "2.2.2.2"))); left != SettleTime {
		t.Errorf("%s left for a host that the index does not have", left)
	}
}

func TestDescribe_NamesBothClusters(t *testing.T) {
	gone := newCluster("gone", 0, "1.1.1.1")
	gone.DeletionTimestamp = &gone.CreationTimestamp
	for _, tc := range []struct {
		other         *v1alpha1.Cluster
		message, hint string
	}{
		{
			newCluster("prod", 0, "1.1.1.1"), "host host-1.1.1.1 (1.1.1.1) is in Cluster team/prod already",
			"remove the host from one of the two Clusters",
		},
		{
			gone, "host host-1.1.1.1 (1.1.1.1) is in Cluster team/gone already, which is being deleted",
			"wait until that Cluster is deleted",
		},
	} {
		x, c := NewIndex(time.Now), newCluster("new", 0, "1.1.1.1")
		x.Set(New(tc.other))
		d := x.FindShared(New(c))[0].Describe(c)
		if d.Message != tc.message || d.Hint != tc.hint || d.Path != "spec.hosts[0].address" {
			t.Errorf("got %+v", d)
		}
	}
}
