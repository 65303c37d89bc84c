//go:build linux

package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// says returns the text for fakes in the data of a member: all data, or the part from
// "whole" on in a real database.
func says(raw []byte) string {
	text := string(raw[max(0, bytes.LastIndex(raw, []byte("whole"))):])
	text, _, _ = strings.Cut(text, "\x00")
	return text
}

// fakeEtcdutl reads a snapshot whose content describes it: "whole 4711". If a restore has
// raised the revision, it counts one key more than etcd serves.
func fakeEtcdutl(_ *world, args []string) (string, error) {
	if len(args) == 5 && args[0] == "snapshot" && args[1] == "status" && args[3] == "-w" && args[4] == "json" {
		raw, err := os.ReadFile(args[2])
		if err != nil {
			return "", err
		}
		var revision int64
		if n, _ := fmt.Sscanf(says(raw), "whole %d", &revision); n != 1 {
			return "", errors.New("Error: snapshot file integrity check failed")
		}
		keys := 3
		if revision > op.FirstBump {
			keys++
		}
		return fmt.Sprintf(`{"hash":12,"revision":%d,"totalKey":%d,"totalSize":20480,"version":"3.6.0"}`, revision, keys), nil
	}
	return fakeRestore(args)
}

// fakeMaintenance plays etcdctl for the maintenance of one member.
func fakeMaintenance(w *world, endpoint string, args []string) (out string, known bool, err error) {
	m := w.States[endpoint]
	if m == nil {
		return "", false, nil
	}
	verb := strings.Join(args[:min(2, len(args))], " ")
	switch {
	case verb == "endpoint status":
		raw, err := json.Marshal([]map[string]any{{"Endpoint": endpoint, "Status": m}})
		return string(raw), true, err
	case verb == "member list":
		raw, err := json.Marshal(map[string]any{"members": w.Etcd})
		return string(raw), true, err
	case args[0] == "snapshot":
		if w.OnSnapshot == "fail" {
			return "", true, errors.Join(errors.New("rpc error"), os.WriteFile(args[2]+".part", nil, 0o600))
		}
		text, whole := strings.CutPrefix(w.OnSnapshot, "sealed ")
		if whole {
			text = sealed(text)
		}
		return "", true, os.WriteFile(args[2], []byte(text), 0o600)
	case args[0] == "defrag":
		m.DBSize = m.InUse
		return "", true, nil
	case args[0] == "compact":
		for _, m := range w.States {
			m.InUse = min(m.InUse, 10<<20)
		}
		return "", true, nil
	case verb == "alarm disarm":
		for _, m := range w.States {
			m.Errors = nil
		}
		return "", true, nil
	case verb == "downgrade enable":
		return "", true, w.downgrade(args[2])
	}
	return "", false, nil
}

const own = "https://127.0.0.1:2379"

func client(endpoints ...string) op.EtcdClient {
	return op.EtcdClient{Endpoints: endpoints, Program: "etcdctl", CA: "/ca", Cert: "/cert", Key: "/key"}
}

// withState changes the state of the fakes, which has a healthy member on this host.
func (h *testHost) withState(change func(*world)) {
	w := h.see()
	w.States = map[string]*etcd.Status{own: {Leader: 1, DBSize: 1 << 20}}
	w.States[own].Header.MemberID = 2
	change(&w)
	h.world(w)
}

func TestEtcdSnapshot_IsTakenOnceAndRemovedOnRequest(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.withState(func(w *world) { w.OnSnapshot = "whole 4711" })
	left := h.path("var/lib/slipway/snapshots/left.db")
	h.write("var/lib/slipway/snapshots/left.db", "of yesterday")
	h.write("var/lib/slipway/snapshots/young.db", "of now")
	old := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	o := op.EtcdSnapshot{EtcdClient: client(own), Utility: "etcdutl", Name: "prod-1.db"}
	if r := h.check(o)[0]; r.Status != op.Changed || r.Summary != "take a snapshot of "+own {
		t.Errorf("%+v", r)
	}
	for _, again := range []bool{false, true} {
		r := h.apply(o)[0]
		var is op.EtcdSnapshotInfo
		if err := json.Unmarshal(r.Output, &is); err != nil {
			t.Fatal(err)
		}
		if (r.Status == op.Changed) == again || is.Revision != 4711 || is.Keys != 3 || is.Hash != 12 || is.Version != "3.6.0" ||
			is.Bytes != 10 || len(is.SHA256) != 64 || is.Path != "/var/lib/slipway/snapshots/prod-1.db" {
			t.Errorf("%s %+v", r.Status, is)
		}
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what was left a day ago is still there")
	}
	h.read("var/lib/slipway/snapshots/young.db")
	o.Gone = true
	h.apply(o)
	if r := h.check(o)[0]; r.Status != op.Unchanged || host.Exists(h.path("var/lib/slipway/snapshots/prod-1.db")) {
		t.Errorf("it is there still: %+v", r)
	}
}

func TestEtcdSnapshot_LeavesNoFileOnFailure(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		on           string
		do           func(*world, *op.EtcdSnapshot)
		want         string
	}{
		{"etcd breaks off", "nothing of it stays", "fail", nil, "CommandFailed"},
		{"damaged", "what cannot be read is no snapshot", "half", nil, op.ReasonEtcdSnapshot},
		{"full disk", "it is not begun", "whole 1", func(w *world, _ *op.EtcdSnapshot) { w.States[own].DBSize = 1 << 60 }, "DiskFull"},
		{
			"two members", "a snapshot is one's", "whole 1",
			func(_ *world, o *op.EtcdSnapshot) { o.Endpoints = append(o.Endpoints, "x") }, "Invalid",
		},
		{"a name that leads elsewhere", "it is one of a file", "whole 1", func(_ *world, o *op.EtcdSnapshot) { o.Name = "../ledger" }, "Invalid"},
		{"etcd is down", "no member responds", "whole 1", func(w *world, _ *op.EtcdSnapshot) { w.States = nil }, "CommandFailed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			o := op.EtcdSnapshot{EtcdClient: client(own), Utility: "etcdutl", Name: "prod-1.db"}
			h.withState(func(w *world) {
				w.OnSnapshot = tc.on
				if tc.do != nil {
					tc.do(w, &o)
				}
			})
			r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
			if r.Error == nil || r.Error.Reason != tc.want {
				t.Errorf("%s: %+v, want %s", tc.reason, r.Error, tc.want)
			}
			if entries, _ := os.ReadDir(h.path("var/lib/slipway/snapshots")); len(entries) > 0 {
				t.Errorf("%s: %v is left", tc.reason, entries)
			}
			if tc.want == "DiskFull" && slices.ContainsFunc(h.see().Calls, func(c string) bool { return strings.Contains(c, "snapshot save") }) {
				t.Error("it was begun all the same")
			}
		})
	}
}

// defragging sets up three members: a leads, and b is on this host.
func (h *testHost) defragging(change func(*world)) op.EtcdDefrag {
	h.t.Helper()
	if err := os.MkdirAll(h.path(etcd.DefaultDataDir), 0o700); err != nil {
		h.t.Fatal(err)
	}
	w := h.see()
	w.States = map[string]*etcd.Status{}
	o := op.EtcdDefrag{EtcdClient: client(), Own: own, Do: op.DefragFollower}
	for i, name := range []string{"a", "b", "c"} {
		m := etcd.Member{
			ID: uint64(i + 1), Name: name, PeerURLs: []string{"https://" + name + ":2380"},
			ClientURLs: []string{"https://" + name + ":2379"},
		}
		s := &etcd.Status{Leader: 1, DBSize: 100 << 20, InUse: 40 << 20, Quota: 2 << 30}
		s.Header.MemberID, s.Header.Revision = m.ID, 4711
		w.Etcd, w.States[m.ClientURLs[0]], o.Endpoints = append(w.Etcd, m), s, append(o.Endpoints, m.ClientURLs[0])
	}
	w.States[own] = w.States["https://b:2379"]
	if change != nil {
		change(&w)
	}
	h.world(w)
	return o
}

// TestEtcdDefrag_RunsOnlyIfNeededAndSafe checks when a member is defragmented, when the
// database is compacted, and when the alarm is cleared.
func TestEtcdDefrag_RunsOnlyIfNeededAndSafe(t *testing.T) {
	t.Parallel()
	noSpace := func(w *world) {
		for _, s := range w.States {
			s.DBSize, s.InUse, s.Errors = 2<<30, 2<<30, []string{"memberID:1 alarm:NOSPACE "}
		}
	}
	for _, tc := range []struct {
		name, reason string
		do           op.DefragStep
		change       func(*world)
		says         string // of the check
		refused      string
		calls        string // what was done
	}{
		{"a follower", "it has something to give back", op.DefragFollower, nil, "free up to 60 MiB of 100 MiB", "", "defrag"},
		{"the leader", "it comes last", op.DefragFollower, func(w *world) { lead(w, 2) }, "", "", ""},
		{"the leader, last", "the others are through", op.DefragAny, func(w *world) { lead(w, 2) }, "free up to 60 MiB of 100 MiB", "", "defrag"},
		{
			"nothing to give back", "it would stop serving without a benefit", op.DefragAny,
			func(w *world) { w.States[own].InUse = 95 << 20 }, "", "", "",
		},
		{
			"a member is down", "two of three would not do while this one is busy", op.DefragFollower,
			func(w *world) { delete(w.States, "https://c:2379") }, "", "member c is unhealthy: it does not respond", "",
		},
		{
			"damaged data", "an administrator must repair it", op.DefragFollower,
			func(w *world) { w.States["https://c:2379"].Errors = []string{"memberID:3 alarm:CORRUPT "} }, "", "CORRUPT", "",
		},
		{"no leader", "the health of the members is unknown", op.DefragFollower, func(w *world) { lead(w, 0) }, "", "it has no leader", ""},
		{"one that learns", "it counts on the others", op.DefragFollower, func(w *world) { w.Etcd[2].Learner = true }, "", "it is a learner", ""},
		{"not full", "the API server compacts", op.DefragCompact, nil, "", "", ""},
		{
			"full: compact", "the API server cannot", op.DefragCompact, noSpace,
			"compact to the latest revision: the database is full", "", "compact 4711",
		},
		{
			"full: disarm, too early", "the alarm would be raised again", op.DefragDisarm, noSpace,
			"clear the alarm for a full database", "defragmentation cannot free more", "",
		},
		{"full: disarm", "there is room", op.DefragDisarm, func(w *world) {
			noSpace(w)
			for _, s := range w.States {
				s.DBSize = 40 << 20
			}
		}, "clear the alarm for a full database", "", "alarm disarm"},
		{"no alarm", "there is none to take back", op.DefragDisarm, nil, "", "", ""},
		{
			"no room for the new file", "etcd would fill the disk", op.DefragAny,
			func(w *world) { w.States[own].DBSize, w.States[own].InUse = 1<<61, 1<<60 }, "free up to 1048576 TiB of 2097152 TiB", "needed", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = 1
			o := h.defragging(tc.change)
			o.Do = tc.do
			r := h.check(o)[0]
			if r.Summary != tc.says {
				t.Errorf("%s: the check says %q (%v), want %q", tc.reason, r.Summary, r.Error, tc.says)
			}
			r = h.r.Apply(t.Context(), h.batch(o), nil)[0]
			if (r.Error == nil) != (tc.refused == "") || r.Error != nil && !strings.Contains(r.Error.Message, tc.refused) {
				t.Errorf("%s: %+v, want %q", tc.reason, r.Error, tc.refused)
			}
			did := ""
			for _, c := range h.see().Calls {
				for _, verb := range []string{" defrag", " compact --physical 4711", " alarm disarm"} {
					if strings.HasSuffix(c, verb) {
						did = strings.ReplaceAll(strings.TrimSpace(verb), "--physical ", "")
					}
				}
			}
			if did != tc.calls {
				t.Errorf("%s: it did %q, want %q", tc.reason, did, tc.calls)
			}
			if did == "defrag" {
				var won op.EtcdDefragged
				if err := json.Unmarshal(r.Output, &won); err != nil || won.Before != 100<<20 || won.After != 40<<20 {
					t.Errorf("won %+v, %v", won, err)
				}
			}
		})
	}
}

func lead(w *world, leader uint64) {
	for _, s := range w.States {
		s.Leader = leader
	}
}
