package lifecycle

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/spec"
)

// A voter is an etcd member as etcdctl reports it.
type voter struct {
	id, leader     uint64
	name, at       string // at is the host's address
	down, learner  bool
	db, used, most int64
	index, applied uint64
	version        string
	errors         []string
}

// An ensemble plays etcd on the machines of its members.
type ensemble struct {
	members []*voter
	unlist  bool // the list of members cannot be read
	calls   []string
}

// threeVoters returns the healthy members of cp1, cp2 and cp3; cp1 leads.
func threeVoters(w *world) *ensemble { return votersOf(w, "cp1", "cp2", "cp3") }

// votersOf returns healthy members of some machines; the first one leads.
func votersOf(w *world, names ...string) *ensemble {
	e := &ensemble{}
	for i, name := range names {
		m := &voter{
			id: uint64(10 + i), leader: 10, name: name, at: w.Hosts[name].Address, db: 30 << 20,
			used: 12 << 20, most: 2 << 30, index: 5000, applied: 5000, version: "3.7.0",
		}
		e.members = append(e.members, m)
	}
	e.on(w)
	return e
}

// on makes etcdctl on the machines use e. Each has its member at the loopback address.
func (e *ensemble) on(w *world) {
	for _, name := range slices.Sorted(maps.Keys(w.Hosts)) {
		w.Hosts[name].Etcdctl = func(args []string, out io.Writer) int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return e.ctl(name, args, out)
		}
	}
}

func (e *ensemble) ctl(on string, args []string, out io.Writer) int {
	endpoint, _ := strings.CutPrefix(args[0], "--endpoints=")
	verb := strings.Join(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "--") }), " ")
	e.calls = append(e.calls, on+": "+verb)
	first, _, _ := strings.Cut(endpoint, ",")
	at := slices.IndexFunc(e.members, func(m *voter) bool {
		return first == "https://"+m.at+":2379" || first == "https://127.0.0.1:2379" && m.name == on
	})
	if at < 0 || e.members[at].down {
		return 1
	}
	switch m := e.members[at]; verb {
	case "member list":
		if e.unlist {
			return 1
		}
		var list []object
		for _, m := range e.members {
			o := object{"ID": m.id, "name": m.name, "peerURLs": []string{"https://" + m.at + ":2380"}, "isLearner": m.learner}
			if m.name != "" {
				o["clientURLs"] = []string{"https://" + m.at + ":2379"}
			}
			list = append(list, o)
		}
		print(out, object{"header": object{"cluster_id": 0xc0ffee}, "members": list})
	case "endpoint status":
		print(out, []object{{"Endpoint": endpoint, "Status": object{
			"header": object{"member_id": m.id, "revision": 4711}, "version": m.version, "dbSize": m.db,
			"dbSizeInUse": m.used, "dbSizeQuota": m.most,
			"leader": m.leader, "raftTerm": 3, "raftIndex": m.index, "raftAppliedIndex": m.applied, "errors": m.errors,
		}}})
	default:
		return 1
	}
	return 0
}

func print(out io.Writer, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = out.Write(raw)
}

// etcdWorld returns a running cluster of three control planes and a worker, with its etcd.
func etcdWorld(t *testing.T) (*world, *ensemble) {
	w := running(t, threeAndTwo[:4], threeAndTwo[:4])
	return w, threeVoters(w)
}

func (w *world) report() *inspect.EtcdReport {
	w.t.Helper()
	r, err := w.impatient().Etcd(w.t.Context(), "prod", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// warningTexts returns the hosts and texts of warnings.
func warningTexts(r *inspect.EtcdReport) []string {
	out := []string{}
	for _, d := range r.Warnings {
		out = append(out, strings.TrimSpace(d.Host+" "+d.Message))
	}
	return out
}

func TestEtcdReport_DescribesProblemsAndNextCommand(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		do           func(*world, *ensemble)
		verdict      inspect.Verdict
		summary      string
		warned       []string
		next         string
	}{
		{
			"healthy", "there are no warnings", func(*world, *ensemble) {}, inspect.Healthy,
			"all 3 members respond, the leader is cp1",
			[]string{},
			"slipway etcd snapshot prod",
		},
		{
			"the API is down", "the report does not need the API", func(w *world, _ *ensemble) { w.API.StopServers() },
			inspect.Healthy, "all 3 members respond, the leader is cp1",
			[]string{},
			"slipway etcd snapshot prod",
		},
		{
			"a member is down", "it is reported, and the next command shows its log", func(_ *world, e *ensemble) { e.members[1].down = true },
			inspect.Degraded, "2 of 3 members respond, the leader is cp1",
			[]string{"cp2 the etcd member does not respond"},
			"slipway exec prod@cp2 --sudo -- journalctl -u kubelet -n 30 --no-pager",
		},
		{
			"a host is down", "host and member are reported, and others are queried",
			func(w *world, e *ensemble) {
				w.Hosts["cp1"].Down, e.members[0].down = errDown, true
				e.elect(11)
			},
			inspect.Degraded, "2 of 3 members respond, the leader is cp2",
			[]string{"cp1 cp1 does not answer", "cp1 the etcd member does not respond"},
			"slipway cluster-info prod",
		},
		{
			"no majority", "etcd does not work",
			func(_ *world, e *ensemble) { e.members[0].down, e.members[1].down = true, true; e.elect(0) },
			inspect.Down, "1 of 3 members respond, but a quorum needs 2: nothing can be written, and the API does not work",
			[]string{"cp1 the etcd member does not respond", "cp2 the etcd member does not respond", "cp3 the etcd member has no leader"},
			"start the other members, or, if they are permanently lost: slipway etcd rescue prod --lost NAME,…",
		},
		{
			"all members are down", "they are known from the saved state", func(_ *world, e *ensemble) {
				for _, m := range e.members {
					m.down = true
				}
			}, inspect.Down, "etcdctl: it exited with code 1",
			[]string{"etcd cannot be queried (etcdctl: it exited with code 1); the listed members are from the saved state"},
			"slipway cluster-info prod",
		},
		{
			"no room", "each alarm is reported once, with its member", func(_ *world, e *ensemble) {
				for _, m := range e.members {
					m.errors = []string{"memberID:11 alarm:NOSPACE "}
				}
			}, inspect.Degraded, "3 of 3 members respond, the leader is cp1", []string{"cp2 etcd reports alarm NOSPACE"}, "slipway etcd defrag prod",
		},
		{
			"nearly full", "there is still time", func(_ *world, e *ensemble) { e.members[2].db = 1800 << 20 },
			inspect.Degraded, "3 of 3 members respond, the leader is cp1",
			[]string{"cp3 its database uses 1.7 GiB of its quota of 2 GiB; when it is full, nothing can be written to the cluster"},
			"slipway etcd defrag prod",
		},
		{
			"far behind", "its disk may be slow", func(_ *world, e *ensemble) {
				e.members[0].index, e.members[2].index, e.members[2].applied = 20000, 20, 20
			},
			inspect.Degraded, "3 of 3 members respond, the leader is cp1",
			[]string{
				"cp1 the etcd member is 15000 entries behind", "cp2 the etcd member is 15000 entries behind",
				"cp3 the etcd member is 19980 entries behind",
			},
			"slipway cluster-info prod",
		},
		{
			"versions", "an upgrade stopped half way", func(_ *world, e *ensemble) { e.members[1].version = "3.6.8" },
			inspect.Degraded, "3 of 3 members respond, the leader is cp1",
			[]string{"the etcd members have different versions: cp1 3.7.0, cp2 3.6.8, cp3 3.7.0"},
			"slipway cluster-info prod",
		},
		{
			"strangers", "members without a host and hosts without a member are reported", func(_ *world, e *ensemble) { e.members[2].name = "old" },
			inspect.Degraded, "3 of 3 members respond, the leader is cp1",
			[]string{"old the etcd member does not belong to any host of the cluster", "cp3 etcd has no member for this host"},
			"slipway cluster-info prod",
		},
		{
			"a learner", "a learner does not vote", func(_ *world, e *ensemble) { e.members[2].learner, e.members[2].down = true, true },
			inspect.Degraded, "2 of 2 members respond, the leader is cp1",
			[]string{
				"cp3 the etcd member does not respond",
				"etcd has 2 members: use an odd number, because one member less tolerates as many failures",
			},
			"slipway exec prod@cp3 --sudo -- journalctl -u kubelet -n 30 --no-pager",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, e := etcdWorld(t)
			tc.do(w, e)
			r := w.report()
			if r.Verdict != tc.verdict || !strings.HasSuffix(r.Summary, tc.summary) || r.Next != tc.next {
				t.Errorf("%s: %s: %s; next: %s", tc.reason, r.Verdict, r.Summary, r.Next)
			}
			got := warningTexts(r)
			for i := range got {
				for _, cp := range []string{"cp1", "cp2", "cp3"} { // any of them may have been asked last
					got[i] = strings.Replace(got[i], "("+cp+": ", "(", 1)
				}
			}
			if d := cmp.Diff(tc.warned, got); d != "" {
				t.Errorf("%s: warnings (-want +got):\n%s", tc.reason, d)
			}
			if len(r.Hosts) != 3 || len(r.Etcd.Members) != 3 {
				t.Errorf("%s: %+v", tc.reason, r)
			}
		})
	}
}

// elect sets the leader that all members report.
func (e *ensemble) elect(leader uint64) {
	for _, m := range e.members {
		m.leader = leader
	}
}

// The report has all values that a member returns.
func TestEtcdReport_HasAllValuesOfMembers(t *testing.T) {
	t.Parallel()
	w, e := etcdWorld(t)
	e.members[1].applied = 4990
	r := w.report()
	want := inspect.EtcdMember{
		Name: "cp2", ID: "b", Endpoint: "https://192.0.2.12:2379", PeerURLs: []string{"https://192.0.2.12:2380"},
		Answers: true, Healthy: true, Version: "3.7.0",
		DBBytes: 30 << 20, InUseBytes: 12 << 20, QuotaBytes: 2 << 30, RaftTerm: 3, RaftIndex: 5000, AppliedIndex: 4990, Behind: 10,
	}
	if d := cmp.Diff(want, r.Etcd.Members[1], cmpopts.IgnoreUnexported(inspect.EtcdMember{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if r.Etcd.ClusterID != "c0ffee" || r.Etcd.Revision != 4711 || r.Etcd.Through == "" || r.Etcd.Type != "stacked" {
		t.Errorf("%+v", r.Etcd)
	}
	if h := r.Hosts[0]; h.Name != "cp1" || h.Host != "ok" || h.FreeBytes != 30<<30 || h.TotalBytes != 40<<30 {
		t.Errorf("%+v", h)
	}
}

// External etcd is queried with the credentials of the API servers. If they cannot list
// its members, its endpoints are reported instead.
func TestEtcdReport_ListsMembersOrEndpointsOfExternalEtcd(t *testing.T) {
	t.Parallel()
	for _, unlisted := range []bool{false, true} {
		w, e := etcdWorld(t)
		c, err := w.service().Cluster(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		c.Spec.Etcd = v1alpha1.Etcd{Type: spec.EtcdExternal, External: &v1alpha1.ExternalEtcd{}}
		for i := range e.members {
			at := fmt.Sprintf("198.51.100.%d", i+1)
			e.members[i].at, e.members[i].name = at, fmt.Sprintf("x%d", i)
			c.Spec.Etcd.External.Endpoints = append(c.Spec.Etcd.External.Endpoints, "https://"+at+":2379")
		}
		if err := w.service().Records.Clusters().Save(t.Context(), c, nil); err != nil {
			t.Fatal(err)
		}
		e.unlist = unlisted
		e.members[2].down = true
		r := w.report()
		if r.Verdict != inspect.Degraded || r.Etcd.Through == "" || len(r.Etcd.Members) != 3 || r.Next != "slipway cluster-info prod" {
			t.Errorf("%s: %s: %+v", r.Verdict, r.Summary, r.Etcd)
		}
		last := r.Etcd.Members[2]
		if (last.Name == "") != unlisted || last.Answers || !r.Etcd.Members[0].Answers {
			t.Errorf("unlisted %t: %+v", unlisted, r.Etcd.Members)
		}
		_, err = w.service().Snapshot(t.Context(), "prod", backups.SnapshotOptions{}, nil)
		refusal(t, err, "etcd-external")
	}
}

// A cluster that was not created yet has no etcd report.
func TestEtcdReport_IsAbsentWhileClusterIsNotCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.Hosts["cp1"].Refuse = breaking("kubernetes.kubelet")
	w.create(event.Failed)
	w.Hosts["cp1"].Etcdctl = func([]string, io.Writer) int { return 1 }
	if r := w.report(); r.Verdict != inspect.Absent || r.Next != "slipway cluster-info prod" {
		t.Errorf("%s: %s; %s", r.Verdict, r.Summary, r.Next)
	}
}
