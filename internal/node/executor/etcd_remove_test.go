//go:build linux

package executor

import (
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/op"
)

// voter returns a member at https://NAME:2380 that is up or down.
func voter(name string, up bool) etcd.Member {
	at := map[bool]string{true: "https://up-", false: "https://down-"}[up]
	return etcd.Member{
		ID: uint64(name[0]), Name: name, PeerURLs: []string{"https://" + name + ":2380"},
		ClientURLs: []string{at + name + ":2379"},
	}
}

// TestEtcdRemove_RemovesMembersWithoutLossOfQuorum checks which members are removed, in
// which order, and which removals are refused.
func TestEtcdRemove_RemovesMembersWithoutLossOfQuorum(t *testing.T) {
	t.Parallel()
	learner := voter("d", true)
	learner.Learner = true
	elsewhere, inItsPlace, runs := voter("c", false), voter("d", true), voter("c", true)
	elsewhere.PeerURLs, inItsPlace.PeerURLs, runs.PeerURLs = []string{"https://x:2380"}, []string{"https://c:2380"}, []string{"https://x:2380"}
	lost := voter("d", false)
	lost.Learner = true
	unstarted := etcd.Member{ID: 'd', PeerURLs: []string{"https://d:2380"}, Learner: true}
	peers := func(names string) (out []op.EtcdPeer) {
		for _, n := range names {
			out = append(out, op.EtcdPeer{Name: string(n), PeerURL: "https://" + string(n) + ":2380"})
		}
		return out
	}
	dead := func(names string) []op.EtcdPeer {
		out := peers(names)
		for i := range out {
			out[i].Dead = true
		}
		return out
	}
	stays := func(names string) []op.EtcdPeer {
		out := peers(names)
		out[0].Stays = true
		return out
	}
	for _, tc := range []struct {
		name, reason string
		members      []etcd.Member
		peers        []op.EtcdPeer
		left         string // names of members in the end
		says         string // of the check
		refused      string // why, in its words
	}{
		{"not a member", "there is nothing to do", []etcd.Member{voter("a", true), voter("b", true)}, peers("c"), "ab", "", ""},
		{
			"one of three", "two are left, and both answer",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", true)},
			peers("c"), "ab", "remove c", "",
		},
		{
			"two of three", "one after the other",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", true)},
			peers("bc"), "a", "remove b, then c", "",
		},
		{
			"the dead one of three", "that makes the others safer",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", false)},
			peers("c"), "ab", "remove c", "",
		},
		{
			"a live one beside a dead one", "only one of the two remaining members would respond",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", false)},
			peers("b"), "abc", "",
			"without b etcd has 2 members, of which 1 respond, but it needs 2; first remove the members that do not respond (c)",
		},
		{
			"both of them", "the dead one goes first",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", false)},
			peers("bc"), "a", "remove c, then b", "",
		},
		{
			"without a majority", "nothing can be changed",
			[]etcd.Member{voter("a", true), voter("b", false), voter("c", false)},
			peers("c"), "abc", "", "etcd has 3 members, of which 1 respond",
		},
		{
			"five to three", "each step is safe",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", true), voter("d", true), voter("e", false)},
			peers("ed"), "abc", "remove e, then d", "",
		},
		{
			"one that stays after all", "the other goes",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", true)},
			stays("bc"), "ab", "remove c", "",
		},
		{"all stay", "there is nothing to do", []etcd.Member{voter("a", true), voter("b", true), voter("c", true)}, stays("b"), "abc", "", ""},
		{"a learner", "it has no vote to lose", []etcd.Member{voter("a", true), voter("b", true), learner}, peers("d"), "ab", "remove d", ""},
		{
			"one that never started", "it is known by its address alone",
			[]etcd.Member{voter("a", true), voter("b", true), unstarted},
			peers("d"), "ab", "remove https://d:2380", "",
		},
		{
			"another at its address", "who has a name is known by it alone",
			[]etcd.Member{voter("a", true), voter("b", true), inItsPlace},
			peers("c"), "abd", "", "",
		},
		{
			"moved, and another at its address", "it is the dead one that goes",
			[]etcd.Member{voter("a", true), voter("b", true), inItsPlace, elsewhere},
			peers("c"), "abd", "remove c", "",
		},
		{
			"only if dead, and it is", "another machine takes its place",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", false)},
			dead("c"), "ab", "remove c", "",
		},
		{
			"only if dead, and it answers", "it blocks no other member",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", true)},
			dead("c"), "abc", "", "",
		},
		{
			"only if dead, and it runs elsewhere", "there would be two of its name",
			[]etcd.Member{voter("a", true), voter("b", true), runs},
			dead("c"), "abc", "", "c must be the etcd member at https://c:2380, but a member with this name runs at https://x:2380",
		},
		{
			"only if dead, and it never started", "its machine is lost",
			[]etcd.Member{voter("a", true), voter("b", true), unstarted},
			dead("d"), "ab", "remove https://d:2380", "",
		},
		{
			"only if dead, a learner", "its machine is lost, and it has no vote to lose",
			[]etcd.Member{voter("a", true), voter("b", true), lost},
			dead("d"), "ab", "remove d", "",
		},
		{
			"only if dead, a learner that answers", "it blocks no other member",
			[]etcd.Member{voter("a", true), voter("b", true), learner},
			dead("d"), "abd", "", "",
		},
		{
			"a learner beside the one", "the operation that adds it continues",
			[]etcd.Member{voter("a", true), voter("b", true), voter("c", false), unstarted},
			dead("c"), "abd", "remove c", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = 1
			w := h.see()
			w.Etcd = tc.members
			h.world(w)
			o := op.EtcdRemove{Peers: tc.peers, EtcdClient: op.EtcdClient{
				Endpoints: []string{"https://gone:2379", "https://votes:2379"}, Program: "etcdctl", CA: "/ca", Cert: "/cert", Key: "/key",
			}}
			r := h.check(o)[0]
			switch {
			case tc.refused != "":
				if r.Error == nil || !strings.Contains(r.Error.Message, tc.refused) {
					t.Errorf("the check says %v, want %q: %s", r.Error, tc.refused, tc.reason)
				}
			case r.Error != nil || r.Summary != tc.says:
				t.Errorf("the check says %q (%v), want %q: %s", r.Summary, r.Error, tc.says, tc.reason)
			}
			r = h.r.Apply(t.Context(), h.batch(o), nil)[0]
			if (r.Error != nil) != (tc.refused != "") {
				t.Errorf("applied: %v: %s", r.Error, tc.reason)
			}
			left := ""
			for _, m := range h.see().Etcd {
				left += string(rune(m.ID))
			}
			if left != tc.left {
				t.Errorf("left are %s, want %s: %s", left, tc.left, tc.reason)
			}
		})
	}
}

// TestEtcdRemove_RetriesAfterRefusalOfEtcd checks that a removal is retried: etcd refuses it shortly after it
// lost contact with a member.
func TestEtcdRemove_RetriesAfterRefusalOfEtcd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.r.etcdTime = time.Minute // more than a busy machine needs
	w := h.see()
	w.Etcd, w.Unwell = []etcd.Member{voter("a", true), voter("b", true), voter("c", true)}, 1
	h.world(w)
	o := op.EtcdRemove{Peers: []op.EtcdPeer{{Name: "c", PeerURL: "https://c:2380"}}, EtcdClient: op.EtcdClient{
		Endpoints: []string{"https://votes:2379"}, Program: "etcdctl", CA: "/ca", Cert: "/cert", Key: "/key",
	}}
	if r := h.apply(o)[0]; r.Status != op.Changed || len(h.see().Etcd) != 2 {
		t.Errorf("%+v, and %d members are left", r, len(h.see().Etcd))
	}
}

// TestEtcdRemove_RemovesUnknownUnresponsiveLearners checks that a learner is removed if it is not a known member and
// does not respond, because it keeps others from joining. No other member is removed for
// that reason.
func TestEtcdRemove_RemovesUnknownUnresponsiveLearners(t *testing.T) {
	as := func(m etcd.Member, learner bool, name string) etcd.Member {
		m.Learner, m.Name = learner, name
		return m
	}
	for _, tc := range []struct {
		name, reason string
		member       etcd.Member
		left         string
	}{
		{"lost", "its machine was replaced", as(voter("d", false), true, "d"), "ab"},
		{"never started", "no machine has its address", as(voter("d", false), true, ""), "ab"},
		{"answers", "it may yet be promoted", as(voter("d", true), true, "d"), "abd"},
		{"votes", "its vote counts for the quorum", as(voter("d", false), false, "d"), "abd"},
		{"known by its name", "the operation that adds it continues", as(voter("d", false), true, "c"), "abd"},
		{"known by its address", "the operation that adds it continues", as(voter("c", false), true, ""), "abc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = 1
			w := h.see()
			w.Etcd = []etcd.Member{voter("a", true), voter("b", true), tc.member}
			h.world(w)
			o := op.EtcdRemove{EtcdClient: op.EtcdClient{
				Endpoints: []string{"https://votes:2379"}, Program: "etcdctl",
				CA: "/ca", Cert: "/cert", Key: "/key",
			}}
			for _, name := range []string{"a", "b", "c"} {
				o.Known = append(o.Known, op.EtcdPeer{Name: name, PeerURL: "https://" + name + ":2380"})
			}
			if r := h.r.Apply(t.Context(), h.batch(o), nil)[0]; r.Error != nil {
				t.Error(r.Error)
			}
			left := ""
			for _, m := range h.see().Etcd {
				left += string(rune(m.ID))
			}
			if left != tc.left {
				t.Errorf("left are %s, want %s: %s", left, tc.left, tc.reason)
			}
		})
	}
}
