//go:build linux

package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// fakeRestore creates data from a snapshot. The data names the snapshot and the member.
func fakeRestore(args []string) (string, error) {
	if len(args) == 11 && args[0] == "snapshot" && args[1] == "restore" {
		return fakeScratchData(args)
	}
	if len(args) != 16 || args[0] != "snapshot" || args[1] != "restore" || args[13] != "--bump-revision" || args[15] != "--mark-compacted" {
		return "", fmt.Errorf("unexpected: etcdutl %q", args)
	}
	value := map[string]string{}
	for i := 3; i < 15; i += 2 {
		value[args[i]] = args[i+1]
	}
	from, err := os.ReadFile(args[2])
	if err != nil {
		return "", err
	}
	dir := filepath.Join(value["--data-dir"], "member")
	if err := os.MkdirAll(filepath.Join(dir, "snap"), 0o700); err != nil {
		return "", err
	}
	if strings.HasPrefix(string(from), "bad") {
		return "", errors.New("Error: expected sha256 [1], got [2]")
	}
	text := fmt.Sprintf("%s for %s at %s in %s, token %s, bump %s", says(from), value["--name"],
		value["--initial-advertise-peer-urls"], value["--initial-cluster"], value["--initial-cluster-token"], value["--bump-revision"])
	return "", os.WriteFile(filepath.Join(dir, "snap", "db"), []byte(text), 0o600)
}

const (
	restoreKey = "0a1b2c"
	dbFile     = "var/lib/etcd/member/snap/db"
	wantData   = "snapshot for cp1 at https://a:2380 in cp1=https://a:2380,cp2=https://b:2380, token 0a1b2c, bump 1000000000"
)

// restoreSteps returns the steps on a host whose member runs in a pod.
func (h *testHost) restoreSteps(content string) map[op.RestoreStep]op.EtcdRestore {
	blob := h.blobs.add([]byte(content))
	both := []string{"kubelet.service"}
	return map[op.RestoreStep]op.EtcdRestore{
		op.RestorePrepare: {
			Do: op.RestorePrepare, Key: restoreKey, Snapshot: blob, Utility: "etcdutl", Data: "/var/lib/etcd", Bump: 1_000_000_000,
			Name: "cp1", PeerURL: "https://a:2380", Cluster: "cp1=https://a:2380,cp2=https://b:2380",
		},
		op.RestoreStop:    {Do: op.RestoreStop, Key: restoreKey, Units: both},
		op.RestoreSwap:    {Do: op.RestoreSwap, Key: restoreKey, Snapshot: blob, Data: "/var/lib/etcd", Units: both},
		op.RestoreStart:   {Do: op.RestoreStart, Key: restoreKey, Units: both},
		op.RestoreRefresh: {Do: op.RestoreRefresh, Key: restoreKey, Units: both},
	}
}

var restoreOrder = []op.RestoreStep{op.RestorePrepare, op.RestoreStop, op.RestoreSwap, op.RestoreStart, op.RestoreRefresh}

// holdsData gives the host data and a running kubelet.
func (h *testHost) holdsData() {
	h.write("lib/systemd/system/kubelet.service", "[Service]\n")
	w := h.see()
	w.Units["kubelet.service"] = &fakeUnit{Enabled: true, Active: true}
	h.world(w)
	h.write(dbFile, "old")
}

// TestEtcdRestore_ReplacesDataAndMovesOldDataAside checks each step of a restore, also
// for a member that has lost its data.
func TestEtcdRestore_ReplacesDataAndMovesOldDataAside(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		h := newHost(t)
		h.holdsData()
		if lost {
			if err := os.RemoveAll(h.path("var/lib/etcd")); err != nil {
				t.Fatal(err)
			}
		}
		steps := h.restoreSteps("snapshot")
		for _, again := range []bool{false, true} {
			for _, do := range restoreOrder {
				if r := h.check(steps[do])[0]; r.Error != nil || !again && r.Status != op.Changed {
					t.Errorf("%s: the check says %+v", do, r)
				}
				if r := h.apply(steps[do])[0]; (r.Status == op.Changed) == again && do != op.RestoreStart {
					t.Errorf("%s, again %t: %s (%s)", do, again, r.Status, r.Summary)
				}
				active := h.see().Units["kubelet.service"].Active
				if stopped := !again && (do == op.RestoreStop || do == op.RestoreSwap); active == stopped {
					t.Errorf("after %s, again %t, the kubelet is active: %t", do, again, active)
				}
				if old := h.holds(dbFile); !again && !lost && (do == op.RestorePrepare || do == op.RestoreStop) && old != "old" {
					t.Errorf("after %s the data are %q: they are in use yet", do, old)
				}
			}
		}
		if got := h.read(dbFile); got != wantData {
			t.Errorf("the data are %q, want %q", got, wantData)
		}
		if got := h.holds("var/lib/etcd/before-create-1/member/snap/db"); (got == "old") == lost {
			t.Errorf("what was moved aside is %q; lost: %t", got, lost)
		}
		if left, _ := filepath.Glob(h.path("var/lib/etcd/.restore-*")); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
		if left, _ := filepath.Glob(h.path("var/lib/slipway/passing/sha256/*")); len(left) > 0 {
			t.Errorf("the snapshot is left: %v", left)
		}
	}
}

// holds returns the content of a file, or "" if it does not exist.
func (h *testHost) holds(name string) string {
	raw, _ := os.ReadFile(h.path(name))
	return string(raw)
}

// TestEtcdRestore_ContinuesAfterInterruptionAtAnyStep checks that a restore continues after an interruption at any step.
// The same operation restores once, and another operation restores again.
func TestEtcdRestore_ContinuesAfterInterruptionAtAnyStep(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		h := newHost(t)
		h.holdsData()
		steps := h.restoreSteps("snapshot")
		n := 0
		h.r.disk = atomicfile.Disk{After: func(step string) {
			own := slices.Contains([]string{"blob received", "restored", "swapping", "aside", "in place"}, step) ||
				strings.Contains(step, "/var/lib/etcd") || strings.Contains(step, "restore.json") || strings.Contains(step, "passing")
			if !own { // of entering, where a panic leaves the lock open as no kill does
				return
			}
			if n++; n == at {
				panic("cut off")
			}
		}}
		cut := false
		for _, do := range restoreOrder {
			if cut = h.cutOff(steps[do]); cut {
				break
			}
		}
		if !cut {
			if at < 10 {
				t.Errorf("it was cut off in %d places", at-1)
			}
			break
		}
		h.r.disk = atomicfile.Disk{}
		for _, do := range restoreOrder {
			if r := h.r.Apply(t.Context(), h.batch(steps[do]), nil)[0]; r.Error != nil {
				t.Errorf("cut off at step %d, then %s: %+v", at, do, r.Error)
			}
		}
		if got := h.read(dbFile); got != wantData {
			t.Errorf("cut off at step %d, the data are %q", at, got)
		}
		if got := h.read("var/lib/etcd/before-create-1/member/snap/db"); got != "old" {
			t.Errorf("cut off at step %d, what was moved aside is %q", at, got)
		}
	}
	h := newHost(t)
	h.holdsData()
	steps := h.restoreSteps("snapshot")
	for _, operation := range []string{"create-1", "create-2"} {
		for _, do := range restoreOrder {
			b := h.batch(steps[do])
			b.Operation = operation
			if r := h.r.Apply(t.Context(), b, nil)[0]; r.Error != nil {
				t.Fatalf("%s of %s: %+v", do, operation, r.Error)
			}
		}
		h.write(dbFile, "written since")
	}
	if got := h.read("var/lib/etcd/before-create-2/member/snap/db"); got != "written since" {
		t.Errorf("another operation moved %q aside", got)
	}
}

// cutOff applies an operation and reports whether it was interrupted.
func (h *testHost) cutOff(o op.Op) (cut bool) {
	defer func() {
		if r := recover(); r != nil {
			cut = true
		}
	}()
	if r := h.r.Apply(h.t.Context(), h.batch(o), nil)[0]; r.Error != nil {
		h.t.Fatalf("%+v", r.Error)
	}
	return false
}

func TestEtcdRestore_KeepsOldDataOnFailure(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		do           []op.RestoreStep
		change       func(*op.EtcdRestore)
		want         string
	}{
		{
			"a damaged snapshot", "etcdutl sees it, and the old data stay",
			[]op.RestoreStep{op.RestorePrepare},
			func(*op.EtcdRestore) {}, "CommandFailed",
		},
		{
			"no room", "it would fill the disk",
			[]op.RestoreStep{op.RestorePrepare},
			func(o *op.EtcdRestore) { o.Snapshot.Size = 1 << 60 }, "DiskFull",
		},
		{
			"unprepared", "there is nothing to put in their place",
			[]op.RestoreStep{op.RestoreStop, op.RestoreSwap},
			func(*op.EtcdRestore) {}, "NotPrepared",
		},
		{"in use", "etcd would go on with neither", []op.RestoreStep{op.RestoreSwap}, func(*op.EtcdRestore) {}, "StillRunning"},
		{"no directory", "what is there is not ours", []op.RestoreStep{op.RestoreSwap}, func(o *op.EtcdRestore) { o.Data = "/" }, "Invalid"},
		{"no name", "it leads elsewhere", []op.RestoreStep{op.RestorePrepare}, func(o *op.EtcdRestore) { o.Key = "../x" }, "Invalid"},
		{"no step", "there is none of this name", []op.RestoreStep{op.RestoreStart}, func(o *op.EtcdRestore) { o.Do = "wish" }, "Invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.holdsData()
			steps := h.restoreSteps("bad snapshot")
			var last op.Result
			for _, do := range tc.do {
				o := steps[do]
				tc.change(&o)
				last = h.r.Apply(t.Context(), h.batch(o), nil)[0]
			}
			if last.Error == nil || last.Error.Reason != tc.want {
				t.Errorf("%s: %+v, want %s", tc.reason, last.Error, tc.want)
			}
			if got := h.read(dbFile); got != "old" {
				t.Errorf("%s: the data are %q", tc.reason, got)
			}
		})
	}
}
