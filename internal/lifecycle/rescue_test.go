package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/remote"
)

// outnumbered returns a cluster of three control planes of which only cp2 is left, and a
// request to rescue it.
func outnumbered(t *testing.T) (*world, RescueEtcdRequest) {
	t.Helper()
	w, e := etcdWorld(t)
	w.Hosts["cp2"].Files[facts.EtcdData] = "log 4 900 899"
	w.loses(e, "cp1", "cp3")
	return w, RescueEtcdRequest{Name: "prod", Lost: []string{"cp1", "cp3"}}
}

// loses makes machines unavailable. The members that are left have no leader.
func (w *world) loses(e *ensemble, names ...string) {
	e.elect(0)
	for _, m := range e.members {
		if slices.Contains(names, m.name) {
			m.down = true
		} else {
			w.API.RescueMembers = append(w.API.RescueMembers, m.name)
		}
	}
	for _, name := range names {
		w.Hosts[name].Down = errDown
	}
	w.API.StopServers()
	w.API.Rescuing, w.API.RestoreDone = true, map[string]bool{}
}

// The plan describes a possible loss. The result lists the chosen data of etcd and the next
// steps.
func TestRescue_ContinuesWithRemainingMember(t *testing.T) {
	t.Parallel()
	w, request := outnumbered(t)
	p := w.prepared(w.impatient().Prepare(t.Context(), request, nil))
	loses := strings.Join(p.Plan().Removes, "\n")
	for _, want := range []string{
		"cp2 never received",
		"term 4, entry 900. It is unknown whether entries after 899 were acknowledged; they are kept", "on cp1, cp3",
		"must never be used again",
	} {
		if !strings.Contains(loses, want) {
			t.Errorf("the plan does not say %q:\n%s", want, loses)
		}
	}
	res := w.apply(p, event.Succeeded)
	said := strings.Join(res.Ready, "\n")
	for _, want := range []string{
		"one member, on cp2", "revision 4711, 600 keys", "before-" + res.Operation,
		"delete nodes cp1 cp3 --cluster prod --forget\n", "2. add hosts until the cluster has its full size: slipway add nodes prod",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the result does not have %q:\n%s", want, said)
		}
	}
	if got := w.Hosts["cp2"].Files[facts.EtcdData]; got != "rescued" {
		t.Errorf("cp2 has %q", got)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "etcd-rescue Succeeded", "create Succeeded")
	if w.Hosts["cp2"].Lock.Held {
		t.Error("the lock is still held")
	}
}

// A rescue replaces a stale lock, whose holder may be lost with the hosts. An active
// holder is not disturbed unless the request breaks its lock.
func TestRescue_ReplacesOnlyStaleOrBrokenLock(t *testing.T) {
	t.Parallel()
	theirs := remote.LockState{Held: true, Holder: remote.Lock{Operation: "theirs", Manager: "m2", Fence: 4}, Highest: 4}
	for _, tc := range []struct {
		name         string
		stale, takes bool
		locked       bool
	}{
		{"stale", true, false, false},
		{"active", false, false, true},
		{"active, and the lock is broken", false, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, request := outnumbered(t)
			request.BreakLock = tc.takes
			w.Hosts["cp2"].Lock = theirs
			w.Hosts["cp2"].Lock.Stale = tc.stale
			p := w.prepared(w.impatient().Prepare(t.Context(), request, nil))
			if !tc.locked {
				w.apply(p, event.Succeeded)
				if is := w.Hosts["cp2"].Lock; is.Held || is.Highest <= theirs.Highest {
					t.Errorf("the lock is %+v", is)
				}
				return
			}
			var locked *LockedError
			if _, err := p.Apply(t.Context(), nil); !errors.As(err, &locked) {
				t.Errorf("%v, want an error that it is locked", err)
			}
			if got := w.Hosts["cp2"].Files[facts.EtcdData]; got != "log 4 900 899" {
				t.Errorf("cp2 has %q", got)
			}
		})
	}
}

// A rescue that was killed anywhere can be resumed, with the same result. This also holds
// if it uses a database, or a member that the user chose.
func TestRescue_ResumesAfterKill(t *testing.T) {
	for _, tc := range []struct {
		name string
		of   func(t *testing.T) (*world, RescueEtcdRequest)
	}{
		{"log", outnumbered},
		{"database of the chosen member", func(t *testing.T) (*world, RescueEtcdRequest) {
			w, request := twoOfFive(t, "log 4 100 100 damaged db=4/800", "log 4 900 900")
			request.From = "cp2"
			return w, request
		}},
	} {
		w, request := tc.of(t)
		for _, m := range w.killed(t, request) {
			t.Run(tc.name+" "+m.name, func(t *testing.T) {
				t.Parallel()
				k := m.world
				k.useT(t)
				for _, gone := range request.Lost {
					k.Hosts[gone].Down = errDown
				}
				k.goOn(request)
				if phase, ops := k.status(); phase != v1alpha1.PhaseRunning || ops[0] != "etcd-rescue Succeeded" {
					t.Errorf("phase %q, operations %v", phase, ops)
				}
				k.same(w)
			})
		}
	}
}

// A rescue uses the most recent data that are left and moves the data of other members
// aside. The term of the last entry counts first, then its index.
func TestRescue_UsesMostRecentData(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		cp2, cp4     string
		best, other  string
	}{
		{"term", "a later term is more recent", "log 5 10 10", "log 4 900 900", "cp2", "cp4"},
		{"index", "it has more entries of the same term", "log 4 899 899", "log 4 900 1", "cp4", "cp2"},
		{"a tie", "it has more committed entries", "log 4 900 899", "log 4 900 900", "cp4", "cp2"},
		{"no data", "another member has data", "", "log 1 1 1", "cp4", "cp2"},
		{"damaged", "its readable entries are more recent", "log 4 950 949 damaged", "log 4 900 900", "cp2", "cp4"},
		{"damaged, of a later term", "the undamaged data is of an earlier term", "log 5 901 901 damaged", "log 4 990 990", "cp2", "cp4"},
		{"damaged and stale", "the undamaged data is more recent", "log 4 100 100 damaged", "log 4 900 900", "cp4", "cp2"},
		{"damaged, and as far", "undamaged data is preferred", "log 4 900 900 damaged", "log 4 900 1", "cp4", "cp2"},
		{
			"damaged before the end of its database", "its database is more recent",
			"log 4 100 100 damaged db=4/950", "log 4 900 900", "cp2", "cp4",
		},
		{
			"damaged before the end of its database, and stale", "the other member is more recent",
			"log 4 100 100 damaged db=4/890", "log 4 900 900", "cp4", "cp2",
		},
		{"damaged at once", "its database counts", "log 0 0 0 damaged db=4/950", "log 4 900 900", "cp2", "cp4"},
		{
			"damaged, and continues after the damage", "it has all of its log",
			"log 4 901 901 damaged from db=4/800", "log 4 900 900", "cp2", "cp4",
		},
		{
			"damaged, and continues after the damage as far", "undamaged data is preferred",
			"log 4 900 900 damaged from db=4/800", "log 4 900 1", "cp4", "cp2",
		},
		{"a learner, and as far", "a voter is preferred", "log 4 900 900 learner", "log 4 900 1", "cp4", "cp2"},
		{"a learner that goes further", "its entries may have been acknowledged", "log 4 901 900 learner", "log 4 900 900", "cp2", "cp4"},
		{
			"a learner, and as far as a damaged member", "it has the same entries, undamaged", "log 4 900 1 learner",
			"log 4 900 900 damaged", "cp2", "cp4",
		},
		{"no database", "a log cannot be used without a database", "log 9 999 999 nodb", "log 4 900 900", "cp4", "cp2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, request := twoOfFive(t, tc.cp2, tc.cp4)
			res := w.apply(w.prepared(w.impatient().Prepare(t.Context(), request, nil)), event.Succeeded)
			if !strings.HasPrefix(res.Ready[0], "etcd is running with one member, on "+tc.best) ||
				!strings.Contains(strings.Join(res.Ready, "\n"), "delete nodes "+tc.other+" --cluster prod") {
				t.Errorf("%s: %v", tc.reason, res.Ready)
			}
			if w.Hosts[tc.best].Files[facts.EtcdData] != "rescued" || w.Hosts[tc.other].HasFile(facts.EtcdData) {
				t.Errorf("%s has %q, %s has %q", tc.best, w.Hosts[tc.best].Files[facts.EtcdData], tc.other,
					w.Hosts[tc.other].Files[facts.EtcdData])
			}
		})
	}
}

// twoOfFive returns a cluster of five control planes of which cp2 and cp4 are left, and a
// request to rescue it.
func twoOfFive(t *testing.T, cp2, cp4 string) (*world, RescueEtcdRequest) {
	t.Helper()
	five := []string{"cp1", "cp2", "cp3", "cp4", "cp5"}
	w := running(t, five, five)
	e := votersOf(w, five...)
	w.Hosts["cp2"].Files[facts.EtcdData], w.Hosts["cp4"].Files[facts.EtcdData] = cp2, cp4
	w.loses(e, "cp1", "cp3", "cp5")
	return w, RescueEtcdRequest{Name: "prod", Lost: []string{"cp1", "cp3", "cp5"}}
}

// The plan describes how far the data of each member reach, where they are damaged, and
// which entries are lost.
func TestRescue_PlanDescribesLosses(t *testing.T) {
	t.Parallel()
	const where = "x.wal, from byte 7 of 9: it is not what was written"
	for _, tc := range []struct {
		name, reason string
		cp2, cp4     string
		from         string
		want, not    []string
	}{
		{
			"whole", "there is nothing to choose", "log 4 900 899", "log 4 800 800", "",
			[]string{
				"cp2 never received: its log ends at term 4, entry 900. It is unknown whether entries after 899 were acknowledged",
				"cp4 (its log ends at term 4, entry 800): its data is moved aside",
			},
			[]string{"--from", "damaged", "possibly"},
		},
		{
			"the other is damaged", "the plan names the place", "log 4 900 900", "log 4 800 800 damaged", "",
			[]string{"cp4 (its log is damaged (" + where + ") but readable up to term 4, entry 800): its data"},
			[]string{"--from", "possibly"},
		},
		{
			"a damaged one goes further", "the plan describes both choices", "log 4 950 949 damaged", "log 4 900 900", "",
			[]string{
				"cp2 never received: its log is damaged (" + where +
					") but readable up to term 4, entry 950. Entries after 950 are lost too, although they may have " +
					"been acknowledged; log files after the damage are not used either, because it is not certain",
				"It is used although cp4 is undamaged: its readable data is more recent and has entries 901 to 950 of " +
					"term 4. --from cp4 uses the undamaged data and loses these entries",
			},
			[]string{"because you chose"},
		},
		{
			"a damaged one of a later term", "its entries replaced others", "log 5 901 900 damaged", "log 4 990 990", "",
			[]string{"and has entries after term 4, entry 990 up to term 5, entry 901, which may have been acknowledged. --from cp4"},
			nil,
		},
		{
			"a database goes further", "the log is not used", "log 4 100 100 damaged db=4/901", "log 4 900 900", "",
			[]string{
				"readable up to term 4, entry 100; its database is more recent, up to term 4, entry 901. The rescue " +
					"uses its database: entries after 901 are lost too, although they may have been acknowledged; log " +
					"files after the damage are not used either, because it is not certain",
				"has entry 901 of term 4. --from cp4",
			},
			nil,
		},
		{
			"damaged at once", "no entry of its log can be used", "log 0 0 0 damaged db=4/901", "", "",
			[]string{"its log is damaged (" + where +
				") before the first entry that etcd could start from; its database is more recent, up to term 4, entry 901."},
			[]string{"--from"},
		},
		{
			"chosen", "the plan names the lost entries", "log 4 950 950", "log 4 900 900", "cp4",
			[]string{
				"cp4 never received: its log ends at term 4, entry 900;",
				"because you chose cp4: entries 901 to 950 of term 4, which cp2 has; without --from, the rescue would " +
					"use cp2 (its log ends at term 4, entry 950)",
			},
			[]string{"possibly"},
		},
		{
			"chosen, of an earlier term", "the later one is lost", "log 4 950 950", "log 5 700 700", "cp2",
			[]string{"because you chose cp2: entries after term 4, entry 950 up to term 5, entry 700, which may have " +
				"been acknowledged, which cp4 has"},
			nil,
		},
		{
			"chosen, though damaged", "the other member is equally recent", "log 4 900 900", "log 4 900 900 damaged", "cp4",
			[]string{"possibly entries with undetected damage on cp4: cp2 has equally recent data and is undamaged"},
			[]string{"because you chose"},
		},
		{
			"chosen as it would be", "nothing else is lost", "log 4 950 950", "log 4 900 900", "cp2",
			[]string{"cp2 never received: its log ends at term 4, entry 950;"},
			[]string{"because you chose", "--from"},
		},
		{
			"whole files behind the damage", "the damage loses no entries", "log 4 950 949 damaged from db=4/800", "log 4 900 900", "",
			[]string{
				"cp2 never received: its log is damaged (" + where +
					"); the log file y.wal continues from the database, up to term 4, entry 950. It is unknown whether " +
					"entries after 949 were acknowledged",
				"It is used although cp4 is undamaged",
			},
			[]string{"are lost too", "are not used"},
		},
		{
			"a learner", "the plan reports it", "log 4 950 950 learner", "log 4 900 900", "",
			[]string{"cp2 never received: its log ends at term 4, entry 950; it is a learner and had no vote;"},
			[]string{"--from"},
		},
		{
			"no database", "its data cannot be used", "log 9 999 999 nodb", "log 4 900 900", "",
			[]string{"cp2 (its data cannot be used: there is no database): its data is moved aside"},
			[]string{"--from"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, request := twoOfFive(t, tc.cp2, tc.cp4)
			request.From = tc.from
			loses := strings.Join(w.prepared(w.impatient().Prepare(t.Context(), request, nil)).Plan().Removes, "\n")
			for _, want := range tc.want {
				if !strings.Contains(loses, want) {
					t.Errorf("%s: the plan does not have %q:\n%s", tc.reason, want, loses)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(loses, not) {
					t.Errorf("%s: the plan has %q:\n%s", tc.reason, not, loses)
				}
			}
		})
	}
}

// A chosen member must have readable data.
func TestRescue_RefusesMemberWithoutData(t *testing.T) {
	t.Parallel()
	for _, cp2 := range []string{"", "log 9 999 999 nodb", "log 0 0 0 damaged"} {
		w, request := twoOfFive(t, cp2, "log 4 900 900")
		request.From = "cp2"
		_, err := w.impatient().Prepare(t.Context(), request, nil)
		refusal(t, err, idRescueFrom)
		if !strings.Contains(fmt.Sprint(err), "the most recent data, on cp4") {
			t.Errorf("%q: %v", cp2, err)
		}
	}
}

// Data from before a restore cannot be compared with data from after it: the term is
// higher, but the entries are older.
func TestRescue_RefusesDataOfDifferentClusters(t *testing.T) {
	t.Parallel()
	w, request := twoOfFive(t, "log 50 900 900 cluster=before", "log 2 30 30")
	_, err := w.impatient().Prepare(t.Context(), request, nil)
	refusal(t, err, idRescueClusters)
	delete(w.Hosts["cp2"].Files, facts.EtcdData)
	if res := w.do(request, event.Succeeded); !strings.HasPrefix(res.Ready[0], "etcd is running with one member, on cp4") {
		t.Errorf("%v", res.Ready)
	}
}

// A member whose log does not name its cluster may have the best data, or data from before
// a restore. Its data are not moved aside unless the user chooses a member.
func TestRescue_NeedsChoiceIfClusterOfDataIsUnknown(t *testing.T) {
	t.Parallel()
	const lost = "log 0 0 0 damaged db=4/901 cluster="
	for _, tc := range []struct {
		name, reason   string
		cp2, cp4, from string
		want           string // of the error, "" for none
	}{
		{"no choice", "it is the most recent, or from before a restore", lost, "log 4 900 900", "", "--from HOST (cp2 has the most recent data"},
		{"chosen", "the user decides", lost, "log 4 900 900", "cp2", ""},
		{"the other is chosen", "the user decides", lost, "log 4 900 900", "cp4", ""},
		{
			"no cluster is known", "no two members are known to be of one cluster", lost, "log 0 0 0 damaged db=4/800 cluster=", "",
			"--from HOST (cp2 has the most recent data",
		},
		{"it alone has data", "there is nothing to choose", lost, "", "", ""},
		{
			"two are known, and one is chosen", "one of them is from before a restore", "log 50 900 900 cluster=before",
			"log 4 900 900", "cp4", "/member aside on the hosts",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, request := twoOfFive(t, tc.cp2, tc.cp4)
			request.From = tc.from
			p, err := w.impatient().Prepare(t.Context(), request, nil)
			if tc.want == "" {
				w.prepared(p, err)
				return
			}
			refusal(t, err, idRescueClusters)
			if all := fmt.Sprintf("%+v", err); !strings.Contains(all, tc.want) {
				t.Errorf("%s: %s", tc.reason, all)
			}
		})
	}
}

// The result describes the data that was used: only the readable entries if the log is
// damaged.
func TestRescue_ResultDescribesData(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, data, want string }{
		{"whole", "log 4 900 900", "with all entries of its log:"},
		{"damaged", "log 4 900 900 damaged", "with all readable entries of its log:"},
		{"a database", "log 4 100 100 damaged db=4/900", "with all entries of its database:"},
		{"whole files behind the damage", "log 4 900 900 damaged from db=4/800", "with all entries of its database and of the log after it:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, request := twoOfFive(t, "", tc.data)
			res := w.apply(w.prepared(w.impatient().Prepare(t.Context(), request, nil)), event.Succeeded)
			if !strings.Contains(res.Ready[0], tc.want) {
				t.Errorf("the result is %q, want %q in it", res.Ready[0], tc.want)
			}
		})
	}
}

// A rescue is refused while etcd has quorum.
func TestRescue_IsRefusedWhileEtcdHasQuorum(t *testing.T) {
	t.Parallel()
	w, e := etcdWorld(t)
	e.members[2].down, w.Hosts["cp3"].Down = true, errDown
	_, err := w.impatient().Prepare(t.Context(), RescueEtcdRequest{Name: "prod", Lost: []string{"cp3"}}, nil)
	refusal(t, err, idRescueNotNeeded)
}

// An etcd that runs as a service is rescued on its host, not on the control plane.
func TestRescue_RunsOnHostOfManagedEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "e1", "e2", "e3")
	w.ManagedEtcd = true
	watchKeys(w)
	c := w.Manifest()
	c.Spec.Hosts[0].Roles = c.Spec.Hosts[0].Roles[:1]
	w.do(creating(c), event.Succeeded)
	e := votersOf(w, "e1", "e2", "e3")
	w.Hosts["e3"].Files[facts.EtcdData] = "log 7 100 100"
	w.loses(e, "e1", "e2")
	request := RescueEtcdRequest{Name: "prod", Lost: []string{"e1", "e2"}}
	res := w.apply(w.prepared(w.impatient().Prepare(t.Context(), request, nil)), event.Succeeded)
	if !strings.HasPrefix(res.Ready[0], "etcd is running with one member, on e3") {
		t.Errorf("%v", res.Ready)
	}
	if w.Hosts["e3"].Files[facts.EtcdData] != "rescued" || w.Hosts["cp1"].HasFile(facts.EtcdData) {
		t.Error("the rescued data are on the wrong host")
	}
}

// While a rescue is unfinished, no node can be removed: the rescue was planned with the
// lost hosts. It can be finished without a worker that has failed since.
func TestRescue_RefusesOtherOperationsUntilFinished(t *testing.T) {
	t.Parallel()
	w, request := outnumbered(t)
	w.refusing("cp2", "restore.start")
	w.do(request, event.Failed)
	w.Hosts["cp2"].Refuse = nil
	w.Hosts["w1"].Down = errDown
	for name, r := range map[string]Request{
		"a change":       applying(w.Manifest()),
		"the lost":       DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1", "cp3"}, Forget: true},
		"the lost, some": DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}, Forget: true},
		"a worker":       DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}, Forget: true},
	} {
		_, err := w.service().Prepare(t.Context(), r, nil)
		refusal(t, err, idRescueUnfinished)
		if text := fmt.Sprintf("%+v", err); !strings.Contains(text, "finish the operation first: slipway resume prod") {
			t.Errorf("%s: the hint does not name the command to continue: %s", name, text)
		}
	}
	again := resuming()
	again.IgnoreErrors = true
	w.apply(w.prepared(w.service().PrepareResume(t.Context(), again, nil)), event.Partial)
	// The cluster uses the rescued data: the lost hosts can be removed.
	for _, name := range []string{"cp1", "cp3", "w1"} {
		w.API.SetEtcdRole(name, "") // the rescued data have no such member
		w.API.MarkNodeLost(name)
	}
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1", "cp3", "w1"}, Forget: true}, event.Succeeded)
}
