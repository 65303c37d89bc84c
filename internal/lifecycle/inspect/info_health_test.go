package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
)

// respondingMembers returns members that respond.
func respondingMembers(members ...EtcdMember) []EtcdMember {
	for i := range members {
		members[i].Answers, members[i].leader = true, 10
	}
	assignAlarms(members)
	return members
}

func TestEvaluate_WarnsOncePerProblem(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	in := New(Config{Now: func() time.Time { return now }})
	c := &v1alpha1.Cluster{}
	spec.SetDefaults(c, spec.DefaultOptions{})
	day := func(n int) time.Time { return now.AddDate(0, 0, n) }
	ca := func(host string, end time.Time) Certificate {
		return Certificate{Host: host, Path: "/etc/kubernetes/pki/ca.crt", Subject: "kubernetes", CA: true, Expires: end}
	}
	end := day(60)
	for _, tc := range []struct {
		name, reason string
		in           Info
		want         []string // id, host, a part of the message
	}{
		{
			"no DNS", "nothing finds anything",
			Info{AddOns: []AddOn{{Name: "coredns", Namespace: "kube-system", Ready: 0, Wanted: 2}}},
			[]string{"add-on-not-ready  coredns: 0 of 2"},
		},
		{
			"half of it", "one more loss is too many",
			Info{AddOns: []AddOn{{Name: "coredns", Ready: 1, Wanted: 2}}},
			[]string{"add-on-not-ready  coredns: 1 of 2"},
		},
		{
			"whole, unwanted or unknown", "nothing is wrong",
			Info{AddOns: []AddOn{{Name: "a", Ready: 2, Wanted: 2}, {Name: "b"}, {Name: "c", Ready: -1, Wanted: -1}}},
			nil,
		},
		{
			"gone", "somebody deleted it",
			Info{AddOns: []AddOn{{Name: "kube-proxy", Ready: -1, Wanted: -1, Missing: true}}},
			[]string{"add-on-not-ready  kube-proxy: missing in the cluster"},
		},
		{
			"on nodes that are down", "the node is told of",
			Info{
				Nodes:  []NodeInfo{{Name: "w1", Ready: "NotReady"}, {Name: "w2", Ready: "Ready"}},
				AddOns: []AddOn{{Name: "kube-proxy", Ready: 1, Wanted: 2}},
			},
			[]string{"node-not-ready w1 the node"},
		},
		{
			"none left", "a node that is down is no excuse",
			Info{Nodes: []NodeInfo{{Name: "w1", Ready: "NotReady"}}, AddOns: []AddOn{{Name: "coredns", Ready: 0, Wanted: 1}}},
			[]string{"node-not-ready w1 the node", "add-on-not-ready  coredns: 0 of 1"},
		},
		{
			"an authority", "it is on all hosts, and one",
			Info{Certificates: []Certificate{ca("cp1", end), ca("w1", end)}},
			[]string{"certificate-expires cp1 all certificates of this CA"},
		},
		{
			"another authority", "they are two",
			Info{Certificates: []Certificate{ca("cp1", end), ca("w1", day(-1))}},
			[]string{"certificate-expires cp1 ca.crt expires", "certificate-expires w1 ca.crt expired"},
		},
		{"an authority with years to go", "nothing is wrong", Info{Certificates: []Certificate{ca("cp1", day(400))}}, nil},
		{
			"alarm", "each member tells of it",
			Info{Etcd: EtcdInfo{Members: respondingMembers(
				EtcdMember{Name: "cp1", ID: "a", Errors: []string{"memberID:11 alarm:NOSPACE "}},
				EtcdMember{Name: "cp2", ID: "b", Errors: []string{"memberID:11 alarm:NOSPACE "}},
				EtcdMember{Name: "cp3", ID: "c"},
			)}},
			[]string{"etcd-member cp2 etcd reports alarm NOSPACE"},
		},
		{
			"other words", "they are etcd's own",
			Info{Etcd: EtcdInfo{Members: append(respondingMembers(EtcdMember{Name: "cp1", ID: "a", Errors: []string{"etcdserver: no leader"}},
				EtcdMember{Name: "cp3", ID: "c"}), EtcdMember{Name: "cp2", ID: "b"})}},
			[]string{"etcd-member cp1 etcd reports: etcdserver: no leader", "etcd-member cp2 does not respond"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.in
			got.Endpoint.Answers = true
			(&Session{in: in, Admin: []byte("x")}).evaluate(&got, c, nil)
			var short []string
			for i, d := range got.Warnings {
				line := d.ID + " " + d.Host + " " + d.Message
				if i < len(tc.want) {
					id, rest, _ := strings.Cut(tc.want[i], " ")
					host, part, _ := strings.Cut(rest, " ")
					if d.ID == id && d.Host == host && strings.Contains(d.Message, part) {
						line = tc.want[i]
					}
				}
				short = append(short, line)
			}
			if diff := cmp.Diff(tc.want, short); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if healthy := got.Verdict == Healthy; healthy != (len(tc.want) == 0) {
				t.Errorf("the verdict is %s", got.Verdict)
			}
			if got.Warnings.Errors() != nil {
				t.Errorf("they are %s", diag.Error)
			}
		})
	}
}

func TestImageTag_ReturnsTagOrDash(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/coredns/coredns:v1.14.2": "v1.14.2", "localhost:5000/flannel": "-",
		"registry:5000/a/b:v1@sha256:00": "v1", "pause": "-",
	} {
		if got := imageTag(image); got != want {
			t.Errorf("%s has the version %s, want %s", image, got, want)
		}
	}
}

// An external etcd may have several CAs, and Slipway rotates none of them.
func TestEvaluate_AcceptsSeveralCAsOfExternalEtcd(t *testing.T) {
	for _, theirs := range []bool{false, true} {
		var told []string
		list := []Certificate{{
			Path: "/etc/kubernetes/pki/etcd/ca.crt", CA: true, External: theirs, Beside: 1,
			Expires: time.Now().Add(9 * 365 * 24 * time.Hour),
		}}
		certificateCheck{cluster: "prod", now: time.Now()}.evaluate(list, func(id string, _, _, _ string, _ ...any) { told = append(told, id) })
		if (len(told) == 0) != theirs || list[0].Due == theirs {
			t.Errorf("theirs: %v: %q, %+v", theirs, told, list[0])
		}
	}
}
