//go:build linux

package executor

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

const memberLog = "var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal"

const rescueKey = "5e1f"

// rescueSteps returns the steps on the host of the remaining member, after the member was
// stopped.
func rescueSteps(to op.EtcdReach, database bool) []op.Op {
	const data = "/var/lib/etcd"
	return []op.Op{
		op.EtcdRecover{Key: rescueKey, Data: data, EtcdPrograms: programs(), EtcdReach: to, Database: database},
		op.EtcdRestore{
			Do: op.RestorePrepare, Key: rescueKey, From: op.RecoveredSnapshot(data, rescueKey), Utility: "etcdutl", Data: data, Bump: 1_000_000_000,
			Name: "cp1", PeerURL: "https://a:2380", Cluster: "cp1=https://a:2380",
		},
		op.EtcdRestore{Do: op.RestoreSwap, Key: rescueKey, From: op.RecoveredSnapshot(data, rescueKey), Data: data},
	}
}

// wholeLog and database are the last entries in the log and in the database of real
// members. Three members were killed when the database was two entries behind the log.
// The database holds the text that fakes read.
var (
	wholeLog = op.EtcdReach{Term: 2, Index: 15}
	database = op.EtcdReach{Term: 2, Index: 13}
)

// leftOver writes the data of a real member of three to the host, and changes bytes of
// its log.
func (h *testHost) leftOver(version string, change ...int) {
	h.t.Helper()
	log, err := os.ReadFile("testdata/member-" + version + ".wal")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, at := range change {
		log[at] ^= 1
	}
	h.write(memberLog, string(log)+string(make([]byte, 8192)))
	h.write(dbFile, string(realDB(h.t, version)))
}

// beginning is the offset of a byte in the metadata at the start of a log.
const beginning = 40

func realDB(t *testing.T, version string) []byte {
	t.Helper()
	f, err := os.Open("testdata/member-" + version + ".db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// at returns the offset of an entry's data in a log.
func at(t *testing.T, version, data string) int {
	t.Helper()
	raw, err := os.ReadFile("testdata/member-" + version + ".wal")
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(raw, []byte(data))
	if i < 0 {
		t.Fatalf("there is no %q", data)
	}
	return i
}

// TestEtcdRecover_UsesLogUnlessItIsBehindDatabase checks that the log is used if the database is behind it. If the log is
// damaged before the last entry of the database, the database is used.
func TestEtcdRecover_UsesLogUnlessItIsBehindDatabase(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.6.8", "3.7.0"} {
		for _, tc := range []struct {
			name     string
			change   []int
			log, to  op.EtcdReach
			commit   uint64
			database bool
		}{
			{"whole", nil, wholeLog, wholeLog, 14, false},
			{
				"damaged after the database",
				[]int{at(t, version, "late2")},
				op.EtcdReach{Term: 2, Index: 14},
				op.EtcdReach{Term: 2, Index: 14},
				14, false,
			},
			{"damaged where the database ends", []int{at(t, version, "late1")}, database, database, 13, false},
			{"damaged before", []int{at(t, version, "key2")}, op.EtcdReach{Term: 2, Index: 11}, database, 11, true},
			{"damaged at its beginning", []int{beginning}, op.EtcdReach{}, database, 0, true},
		} {
			t.Run(version+" "+tc.name, func(t *testing.T) {
				h := newHost(t)
				h.leftOver(version, tc.change...)
				h.write("var/lib/etcd/.rescue-old/snapshot.db", "of a rescue that was not gone on with")
				was := h.read(dbFile)
				for _, again := range []bool{false, true} {
					for i, o := range rescueSteps(tc.to, tc.database) {
						if r := h.check(o)[0]; r.Error != nil || !again && r.Status != op.Changed {
							t.Errorf("%s, again %t: the check says %+v", o.Kind(), again, r)
						}
						r := h.apply(o)[0]
						if (r.Status == op.Changed) == again {
							t.Errorf("%s, again %t: %s", o.Kind(), again, r.Status)
						}
						if i > 0 {
							continue
						}
						var is op.EtcdRecovered
						if err := json.Unmarshal(r.Output, &is); err != nil {
							t.Fatal(err)
						}
						if is.Log != tc.log || is.Database != database || is.Commit != tc.commit || is.Snapshot == nil || is.Snapshot.Revision != 4711 {
							t.Errorf("%+v %+v", is, is.Snapshot)
						}
						if where := "0000000000000000-0000000000000000.wal, from byte "; strings.HasPrefix(is.Damaged, where) != (tc.change != nil) {
							t.Errorf("it is damaged %q", is.Damaged)
						}
						if again {
							continue
						}
						if h.read(dbFile) != was {
							t.Error("the data were changed")
						}
						if _, err := os.Stat(h.path(op.RecoveredSnapshot("/var/lib/etcd", rescueKey))); err != nil {
							t.Error(err)
						}
						sum := sha256.Sum256([]byte(was))
						if got := h.read(op.RecoveredSnapshot("/var/lib/etcd", rescueKey)); tc.database && got != was+string(sum[:]) {
							t.Error("the snapshot is not the database with its checksum")
						}
					}
				}
				h.noScope()
				if served := slices.ContainsFunc(h.see().Calls,
					func(c string) bool { return strings.HasPrefix(c, "etcdctl ") }); served == tc.database {
					t.Errorf("an etcd has served the data: %t", served)
				}
				want := "whole 4711 members for cp1 at https://a:2380 in cp1=https://a:2380, token 5e1f, bump 1000000000"
				if got := h.read(dbFile); got != want {
					t.Errorf("the data are %q, want %q", got, want)
				}
				h.read("var/lib/etcd/before-create-1/member/wal/" + filepath.Base(memberLog))
				if left, _ := filepath.Glob(h.path("var/lib/etcd/.re*")); len(left) > 0 {
					t.Errorf("left are %v", left)
				}
			})
		}
	}
}

// TestEtcdRecover_RefusesChangedOrInvalidData checks that nothing is recovered from data
// that differs from the plan or that etcd cannot read.
func TestEtcdRecover_RefusesChangedOrInvalidData(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		do           func(*testHost, *op.EtcdRecover)
		want         string
	}{
		{"moved on", "another member may be the better one", func(_ *testHost, o *op.EtcdRecover) { o.Index-- }, op.IDEtcdMoved},
		{"another way", "the plan has another choice", func(_ *testHost, o *op.EtcdRecover) { o.Database = true }, op.IDEtcdMoved},
		{"no data", "there is no data to recover", func(h *testHost, _ *op.EtcdRecover) {
			h.removeTree("var/lib/etcd/member")
		}, op.IDEtcdMoved},
		{"no database", "the log is of no use without it", func(h *testHost, _ *op.EtcdRecover) { h.removeTree(dbFile) }, op.IDEtcdMoved},
		{"data that etcd does not take", "the failure is reported", func(h *testHost, _ *op.EtcdRecover) {
			h.write(dbFile, h.read(dbFile)+"panics")
		}, op.ReasonScratchFailed},
		{"a snapshot that is none", "it is verified before it is used", func(h *testHost, _ *op.EtcdRecover) {
			h.write(dbFile, h.read(dbFile)+"whole half")
		}, op.ReasonEtcdSnapshot},
		{"a database that is none", "it is verified before it is used", func(h *testHost, o *op.EtcdRecover) {
			h.leftOver("3.7.0", beginning)
			h.write(dbFile, h.read(dbFile)+"whole half")
			o.EtcdReach, o.Database = database, true
		}, op.ReasonEtcdSnapshot},
		{"a name that leads elsewhere", "the name must be in its directory", func(_ *testHost, o *op.EtcdRecover) { o.Key = "../x" }, "Invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.leftOver("3.7.0")
			o, ok := rescueSteps(wholeLog, false)[0].(op.EtcdRecover)
			if !ok {
				t.Fatal("another step")
			}
			tc.do(h, &o)
			r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
			if r.Error == nil || r.Error.Reason != tc.want {
				t.Errorf("%s: %+v, want %s", tc.reason, r.Error, tc.want)
			}
			if host.Exists(h.path("var/lib/slipway/salvage.json")) || host.Exists(h.path(op.RecoverDir("var/lib/etcd", rescueKey))) {
				t.Error("a record or partial files remain")
			}
		})
	}
}

// TestEtcdRecover_ContinuesAfterInterruptionAtAnyStep checks that a recovery continues after an interruption at any step.
func TestEtcdRecover_ContinuesAfterInterruptionAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, damaged := range []bool{false, true} {
		for n := 1; ; n++ {
			h := newHost(t)
			to := wholeLog
			h.leftOver("3.7.0")
			if damaged {
				h.leftOver("3.7.0", beginning)
				to = database
			}
			i := 0
			h.r.disk = atomicfile.Disk{After: func(step string) {
				own := slices.Contains([]string{"copied", "salvaged", "restored", "swapping", "aside", "in place"}, step) ||
					strings.Contains(step, "/var/lib/etcd") || strings.Contains(step, "salvage.json")
				if i++; own && i >= n {
					n = i
					panic("cut off")
				}
			}}
			cut := false
			for _, o := range rescueSteps(to, damaged) {
				if cut = h.cutOff(o); cut {
					break
				}
			}
			h.r.disk = atomicfile.Disk{}
			if !cut {
				if n < 10 {
					t.Errorf("the last interruption was at step %d", n)
				}
				break
			}
			for _, o := range rescueSteps(to, damaged) {
				if r := h.r.Apply(t.Context(), h.batch(o), nil)[0]; r.Error != nil {
					t.Errorf("cut off at step %d, then %s: %+v", n, o.Kind(), r.Error)
				}
			}
			if got := h.read(dbFile); !strings.HasPrefix(got, "whole 4711 members for cp1") {
				t.Errorf("cut off at step %d, the data are %q", n, got)
			}
			h.read("var/lib/etcd/before-create-1/member/wal/" + filepath.Base(memberLog))
		}
	}
}

func (h *testHost) removeTree(name string) {
	h.t.Helper()
	if err := os.RemoveAll(h.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

// TestEtcdRestore_MovesDataAsideOnlyIfStopped checks that a member moves its data aside if it gets the data of
// another member.
func TestEtcdRestore_MovesDataAsideOnlyIfStopped(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.holdsData()
	units := []string{"kubelet.service"}
	aside := op.EtcdRestore{Do: op.RestoreAside, Key: rescueKey, Data: "/var/lib/etcd", Units: units}
	var e *op.Error
	if r := h.r.Apply(t.Context(), h.batch(aside), nil)[0]; r.Error == nil || !errors.As(r.Error, &e) || e.Reason != "StillRunning" {
		t.Errorf("data in use are moved: %+v", r)
	}
	h.apply(op.EtcdRestore{Do: op.RestoreStop, Key: rescueKey, Units: units})
	for _, again := range []bool{false, true} {
		if r := h.apply(aside)[0]; (r.Status == op.Changed) == again {
			t.Errorf("again %t: %s", again, r.Status)
		}
	}
	if got := h.read("var/lib/etcd/before-create-1/member/snap/db"); got != "old" || host.Exists(h.path("var/lib/etcd/member")) {
		t.Errorf("aside is %q", got)
	}
}
