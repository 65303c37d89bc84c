//go:build linux

package executor

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/autobackup"
	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

const backups = "var/lib/slipway/backups/"

// sealed returns a snapshot as etcd sends it: a database and its checksum.
func sealed(text string) string {
	db := text + strings.Repeat(" ", etcd.WALSector-len(text))
	sum := sha256.Sum256([]byte(db))
	return db + string(sum[:])
}

func autoJob() op.AutoSnapshot {
	return op.AutoSnapshot{Cluster: "prod", EtcdClient: client(own), Utility: "etcdutl", Keep: 2}
}

func (h *testHost) takes(job op.AutoSnapshot) op.AutoSnapshotOutcome {
	h.t.Helper()
	if err := os.MkdirAll(h.r.State, 0o700); err != nil {
		h.t.Fatal(err)
	}
	out, err := h.r.AutoSnapshot(h.t.Context(), job)
	if err != nil {
		h.t.Fatal(err)
	}
	if time.Since(out.At) > time.Minute {
		h.t.Errorf("it was at %s", out.At)
	}
	return out
}

func (h *testHost) backups() string {
	h.t.Helper()
	all, err := filepath.Glob(h.path(backups) + "/*")
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	return strings.Join(all, " ")
}

// TestAutoSnapshot_RemovesOnlyOldestAndPartialSnapshots checks that the oldest snapshots beyond the limit are removed, but no
// files of other software. Partial files of interrupted snapshots are removed too.
func TestAutoSnapshot_RemovesOnlyOldestAndPartialSnapshots(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 4711"; w.States[own].Version = "3.7.0" })
	const foreign = "other-20200101-000000.db prod-20200101-000000.db.txt prod-notes.db"
	for _, name := range append(strings.Fields(foreign), "prod-20200101-000000.db", "prod-20200102-000000.db",
		"prod-20200103-000000.db.new", "prod-20200103-000000.db.new.part") {
		h.write(backups+name, "x")
	}
	out := h.takes(autoJob())
	if out.Failed != "" || len(out.Kept) != 1 {
		t.Fatalf("%+v", out)
	}
	k := out.Kept[0]
	name := filepath.Base(k.Path)
	if k.Revision != 4711 || k.Keys != 3 || k.Etcd != "3.7.0" || len(k.SHA256) != 64 || k.Path != op.AutoSnapshots+"/"+name ||
		!k.Taken.Equal(out.At) {
		t.Errorf("%+v", k)
	}
	if got, want := h.backups(), "other-20200101-000000.db prod-20200101-000000.db.txt prod-20200102-000000.db "+name+
		" prod-notes.db"; got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
	if h.read(backups+name) != sealed("whole 4711") {
		t.Error("it is not what etcd sent")
	}
}

// TestAutoSnapshot_RemovesAbandonedFilesAfterOneDay checks that files of killed managers and helpers are removed
// after a day. Newer files may be in use and are kept.
func TestAutoSnapshot_RemovesAbandonedFilesAfterOneDay(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 1" })
	const dir = "var/lib/slipway/"
	for _, left := range []string{"snapshots/prod-1.db", "drills/old"} {
		h.write(dir+strings.Replace(left, "old", "old/data", 1), "x")
		day := time.Now().Add(-25 * time.Hour)
		if err := os.Chtimes(h.path(dir+left), day, day); err != nil {
			t.Fatal(err)
		}
	}
	h.write("../fakes/scopes/slipway-scratch-old.scope", "")
	h.write(dir+"snapshots/prod-2.db", "x")
	h.write(dir+"drills/new/data", "x")
	if out := h.takes(autoJob()); out.Failed != "" {
		t.Errorf("%+v", out)
	}
	for left, want := range map[string]bool{
		"snapshots/prod-1.db": false, "drills/old": false,
		"snapshots/prod-2.db": true, "drills/new/data": true,
	} {
		if host.Exists(h.path(dir+left)) != want {
			t.Errorf("%s is there: %t, want %t", left, !want, want)
		}
	}
	h.noScope()
}

// TestAutoSnapshot_SucceedsWithFullDatabase checks that a snapshot is taken although the etcd database is
// full.
func TestAutoSnapshot_SucceedsWithFullDatabase(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.withState(func(w *world) {
		w.OnSnapshot, w.States[own].Errors = "sealed whole 1", []string{"memberID:2 alarm:NOSPACE "}
	})
	if out := h.takes(autoJob()); out.Failed != "" || len(out.Kept) != 1 {
		t.Errorf("%+v", out)
	}
}

// TestAutoSnapshot_KeepsNewestIfOlderNamesHaveLaterDates checks that a new snapshot does not count as the oldest one, even
// if earlier names have a later date.
func TestAutoSnapshot_KeepsNewestIfOlderNamesHaveLaterDates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 1" })
	h.write(backups+"prod-29990101-000000.db", "x")
	h.write(backups+"prod-29990102-000000.db", "x")
	out := h.takes(autoJob())
	if out.Failed != "" || len(out.Kept) != 1 || h.backups() != filepath.Base(out.Kept[0].Path)+" prod-29990102-000000.db" {
		t.Errorf("there are %s: %+v", h.backups(), out)
	}
}

// recorded writes snapshots to the disk and to the host's record, in the order in which
// they were taken.
func (h *testHost) recorded(text string, days ...string) (record []op.KeptSnapshot) {
	h.t.Helper()
	for _, day := range days {
		name := "prod-" + day + "-000000.db"
		h.write(backups+name, text)
		k := op.KeptSnapshot{EtcdSnapshotInfo: op.EtcdSnapshotInfo{Path: op.AutoSnapshots + "/" + name, Bytes: int64(len(text))}}
		record = append([]op.KeptSnapshot{k}, record...)
	}
	raw, err := json.Marshal(op.AutoSnapshotOutcome{Kept: record})
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("var/lib/slipway/backups.json", string(raw))
	return record
}

// TestAutoSnapshot_OrdersByRecordNotByDateInName checks that the record decides the age of snapshots, not
// the dates in their names. Snapshots outside the record are removed first.
func TestAutoSnapshot_OrdersByRecordNotByDateInName(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		leader       uint64
		want         string
	}{
		{"taken", "the new snapshot and the previous one are kept", 1, "20260102 new"},
		{"not taken", "the last two snapshots are kept", 0, "20260101 20260102"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.withState(func(w *world) { w.OnSnapshot = "sealed whole 1"; w.States[own].Leader = tc.leader })
			h.recorded("x", "29990101", "29990102", "20260101", "20260102")
			h.write(backups+"prod-29990103-000000.db", "nobody knows it")
			out := h.takes(autoJob())
			got := strings.NewReplacer("prod-", "", "-000000.db", "").Replace(h.backups())
			if tc.leader > 0 {
				got = strings.Replace(got, strings.TrimPrefix(filepath.Base(out.Kept[0].Path), "prod-"), "new", 1)
			}
			if got != tc.want || len(out.Kept) != 2 {
				t.Errorf("there are %s, want %s: %s; %+v", got, tc.want, tc.reason, out.Kept)
			}
		})
	}
}

// TestAutoSnapshot_KeepsNewestAfterCrashAroundRename checks the record if the host goes down around the rename of a
// new snapshot. After the rename, the new snapshot is the newest. Before it, the earlier
// snapshots are kept.
func TestAutoSnapshot_KeepsNewestAfterCrashAroundRename(t *testing.T) {
	for _, tc := range []struct {
		name, step string
		named      bool
	}{{"before it has its name", "commit ", false}, {"when it has", "move ", true}} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.withState(func(w *world) { w.OnSnapshot = "sealed whole 1" })
			h.recorded("x", "29990101", "29990102") // the clock was ahead
			const record = "var/lib/slipway/backups.json"
			var cut string
			h.r.disk = atomicfile.Disk{After: func(step string) {
				if cut == "" && strings.HasPrefix(step, tc.step) {
					cut = h.read(record)
				}
			}}
			name := filepath.Base(h.takes(autoJob()).Kept[0].Path)
			h.write(record, cut)
			h.write(backups+"prod-29990101-000000.db", "x")
			if !tc.named {
				h.remove(backups + name)
			}
			h.withState(func(w *world) { w.States[own].Leader = 0 })
			job := autoJob()
			job.Keep = 1
			want := "prod-29990102-000000.db"
			if tc.named {
				want = name
			}
			if out := h.takes(job); h.backups() != want || len(out.Kept) != 1 || filepath.Base(out.Kept[0].Path) != want {
				t.Errorf("there are %s, want %s: %+v", h.backups(), want, out.Kept)
			}
		})
	}
}

// TestAutoSnapshot_KeepsFilesAndNamesCauseOnFailure checks that a failed snapshot changes no existing files, and that
// its error names the cause.
func TestAutoSnapshot_KeepsFilesAndNamesCauseOnFailure(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		do           func(*world, *op.AutoSnapshot)
		want         string
	}{
		{"full disk", "the snapshot does not start", func(w *world, _ *op.AutoSnapshot) { w.States[own].DBSize = 1 << 60 }, "free"},
		{"no leader", "its data may be out of date", func(w *world, _ *op.AutoSnapshot) { w.States[own].Leader = 0 }, "no leader"},
		{"damaged", "it would replace a good snapshot", func(w *world, _ *op.AutoSnapshot) {
			w.States[own].Errors = []string{"memberID:2 alarm:NOSPACE ", "memberID:2 alarm:CORRUPT "}
		}, "alarm:CORRUPT"},
		{"learning", "its data may be incomplete", func(w *world, _ *op.AutoSnapshot) { w.States[own].Learner = true }, "learner"},
		{"etcd is down", "no member responds", func(w *world, _ *op.AutoSnapshot) { w.States = nil }, "deadline"},
		{"etcd breaks off", "the partial file is removed", func(w *world, _ *op.AutoSnapshot) { w.OnSnapshot = "fail" }, "rpc error"},
		{"cut off", "its checksum is missing", func(w *world, _ *op.AutoSnapshot) { w.OnSnapshot = "whole 4711" }, "checksum"},
		{
			"changed", "its checksum does not match",
			func(w *world, _ *op.AutoSnapshot) {
				w.OnSnapshot = "whole 4711" + strings.Repeat(" ", etcd.WALSector+22)
			}, "checksum",
		},
		{
			"a name that leads elsewhere", "it is one of a cluster",
			func(_ *world, o *op.AutoSnapshot) { o.Cluster = "../x" }, "not a valid cluster name",
		},
		{"none are kept", "then there is no use in it", func(_ *world, o *op.AutoSnapshot) { o.Keep = 0 }, "their number is missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.withState(func(w *world) { w.OnSnapshot = "sealed whole 1" })
			first := h.takes(autoJob())
			job := autoJob()
			h.withState(func(w *world) { w.OnSnapshot = "sealed whole 2"; tc.do(w, &job) })
			out := h.takes(job)
			if !strings.Contains(out.Failed, tc.want) {
				t.Errorf("%s: %q, want %q", tc.reason, out.Failed, tc.want)
			}
			if want := filepath.Base(first.Kept[0].Path); h.backups() != want ||
				job.Cluster == "prod" && (len(out.Kept) != 1 || out.Kept[0].Revision != 1) {
				t.Errorf("there are %s, want %s: %+v", h.backups(), want, out.Kept)
			}
			h.read("var/lib/slipway/backups.json")
		})
	}
}

// TestAutoSnapshot_ReportsOldSnapshotItCannotRemove checks that an old snapshot that cannot be removed is reported.
// The new snapshot is taken, and the other snapshots beyond the limit are removed.
func TestAutoSnapshot_ReportsOldSnapshotItCannotRemove(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 1" })
	h.recorded("x", "20200101", "20200102", "20200103")
	stuck := h.path(backups + "prod-20200101-000000.db")
	if err := unix.Mount(stuck, stuck, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("mounting a file, which then cannot be removed: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(stuck, 0); err != nil {
			t.Error(err)
		}
	})
	out := h.takes(autoJob())
	if out.Failed != "" || !strings.Contains(out.Unremoved, "prod-20200101-000000.db") || len(out.Kept) != 3 ||
		!out.Kept[0].Taken.Equal(out.At) {
		t.Errorf("%+v", out)
	}
	if want := "prod-20200101-000000.db prod-20200103-000000.db " + filepath.Base(out.Kept[0].Path); h.backups() != want {
		t.Errorf("there are %s, want %s", h.backups(), want)
	}
}

// TestAutoSnapshot_AppliesLimitAfterFailure checks that the limit also holds if no new snapshot
// is taken.
func TestAutoSnapshot_AppliesLimitAfterFailure(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.withState(func(w *world) { w.States[own].Leader = 0 })
	for _, day := range []string{"1", "2", "3", "4"} {
		h.write(backups+"prod-2020010"+day+"-000000.db", "x")
	}
	h.write(backups+"other-20200101-000000.db", "x")
	out := h.takes(autoJob())
	if want := "other-20200101-000000.db prod-20200103-000000.db prod-20200104-000000.db"; !strings.Contains(out.Failed, "no leader") ||
		h.backups() != want {
		t.Errorf("%q; there are %s, want %s", out.Failed, h.backups(), want)
	}
}

// TestAutoSnapshot_RemovesOldestIfThatFreesEnoughSpace checks that the oldest snapshots are removed from a full
// disk, if that frees enough space. The newest snapshot and files of other software are
// kept.
func TestAutoSnapshot_RemovesOldestIfThatFreesEnoughSpace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		lacks        int64 // MiB
		record       []string
		want         string
		fails        bool
	}{
		{"there is room", "nothing goes", -100, nil, "other 1 2 3", false},
		{"a little is missing", "the oldest goes", 20, nil, "other 2 3", false},
		{"more is missing", "two go", 80, nil, "other 3", false},
		{"the clock went back", "the last snapshot is kept", 80, []string{"20200102", "20200103", "20200101"}, "other 1", false},
		{"a record of one", "snapshots outside the record count as older", 80, []string{"20200102"}, "other 2", false},
		{"too much is missing", "removing snapshots would not free enough", 900, nil, "other 1 2 3", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			dir := h.path(backups)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4g"); err != nil {
				t.Fatalf("mounting a separate disk: %v", err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			big := strings.Repeat("x", 50<<20)
			for _, n := range []string{"1", "2", "3"} {
				h.write(backups+"prod-2020010"+n+"-000000.db", big)
			}
			h.write(backups+"other-20200101-000000.db", "x")
			record := h.recorded(big, tc.record...)
			var st unix.Statfs_t
			if err := unix.Statfs(dir, &st); err != nil {
				t.Fatal(err)
			}
			s, err := h.r.session(host.Batch{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			size := int64(st.Bavail)*st.Bsize - autobackup.SnapshotSpare - host.Spare + tc.lacks<<20
			err = autobackup.AutoBackup{Host: s.Host, Job: autoJob()}.MakeRoom(size, record)
			got := strings.NewReplacer("prod-2020010", "", "-20200101", "", "-000000.db", "").Replace(h.backups())
			if (err != nil) != tc.fails || got != tc.want {
				t.Errorf("%v; there are %s, want %s: %s", err, got, tc.want, tc.reason)
			}
		})
	}
}
