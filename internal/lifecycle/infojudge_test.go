package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
)

// heard are members that answer.
func heard(members ...EtcdMember) []EtcdMember {
	for i := range members {
		members[i].Answers, members[i].leader = true, 10
	}
	alarms(members)
	return members
}

// TestJudge: what people have to know is told, once, and nothing else.
func TestJudge(t *testing.T) {
	w := newWorld(t, "cp1")
	day := func(n int) time.Time { return w.now().AddDate(0, 0, n) }
	ca := func(host string, end time.Time) Certificate {
		return Certificate{Host: host, Path: "/etc/kubernetes/pki/ca.crt", Subject: "kubernetes", CA: true, Expires: end}
	}
	end := day(60)
	for _, tc := range []struct {
		name, reason string
		in           Info
		want         []string // id, host, a part of the message
	}{
		{"no DNS", "nothing finds anything",
			Info{AddOns: []AddOn{{Name: "coredns", Namespace: "kube-system", Ready: 0, Wanted: 2}}}, []string{"add-on-not-ready  coredns: 0 of 2"}},
		{"half of it", "one more loss is too many", Info{AddOns: []AddOn{{Name: "coredns", Ready: 1, Wanted: 2}}},
			[]string{"add-on-not-ready  coredns: 1 of 2"}},
		{"whole, unwanted or unknown", "nothing is wrong",
			Info{AddOns: []AddOn{{Name: "a", Ready: 2, Wanted: 2}, {Name: "b"}, {Name: "c", Ready: -1, Wanted: -1}}}, nil},
		{"gone", "somebody deleted it", Info{AddOns: []AddOn{{Name: "kube-proxy", Ready: -1, Wanted: -1, Missing: true}}},
			[]string{"add-on-not-ready  kube-proxy: missing in the cluster"}},
		{
			"on nodes that are down", "the node is told of",
			Info{Nodes: []NodeInfo{{Name: "w1", Ready: "NotReady"}, {Name: "w2", Ready: "Ready"}},
				AddOns: []AddOn{{Name: "kube-proxy", Ready: 1, Wanted: 2}}},
			[]string{"node-not-ready w1 the node"},
		},
		{
			"none left", "a node that is down is no excuse",
			Info{Nodes: []NodeInfo{{Name: "w1", Ready: "NotReady"}}, AddOns: []AddOn{{Name: "coredns", Ready: 0, Wanted: 1}}},
			[]string{"node-not-ready w1 the node", "add-on-not-ready  coredns: 0 of 1"},
		},
		{"an authority", "it is on all hosts, and one", Info{Certificates: []Certificate{ca("cp1", end), ca("w1", end)}},
			[]string{"certificate-expires cp1 all certificates of this CA"}},
		{"another authority", "they are two", Info{Certificates: []Certificate{ca("cp1", end), ca("w1", day(-1))}},
			[]string{"certificate-expires cp1 ca.crt expires", "certificate-expires w1 ca.crt expired"}},
		{"an authority with years to go", "nothing is wrong", Info{Certificates: []Certificate{ca("cp1", day(400))}}, nil},
		{
			"alarm", "each member tells of it",
			Info{Etcd: EtcdInfo{Members: heard(
				EtcdMember{Name: "cp1", ID: "a", Errors: []string{"memberID:11 alarm:NOSPACE "}},
				EtcdMember{Name: "cp2", ID: "b", Errors: []string{"memberID:11 alarm:NOSPACE "}},
				EtcdMember{Name: "cp3", ID: "c"},
			)}},
			[]string{"etcd-member cp2 etcd reports alarm NOSPACE"},
		},
		{
			"other words", "they are etcd's own",
			Info{Etcd: EtcdInfo{Members: append(heard(EtcdMember{Name: "cp1", ID: "a", Errors: []string{"etcdserver: no leader"}},
				EtcdMember{Name: "cp3", ID: "c"}), EtcdMember{Name: "cp2", ID: "b"})}},
			[]string{"etcd-member cp1 etcd reports: etcdserver: no leader", "etcd-member cp2 does not respond"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Endpoint.Answers = true
			(&looker{svc: w.service(), admin: []byte("x")}).judge(&in, w.cluster(), nil)
			var short []string
			for i, d := range in.Warnings {
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
			if healthy := in.Verdict == Healthy; healthy != (len(tc.want) == 0) {
				t.Errorf("the verdict is %s", in.Verdict)
			}
			if in.Warnings.Errors() != nil {
				t.Errorf("they are %s", diag.Error)
			}
		})
	}
}
