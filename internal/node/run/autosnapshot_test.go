//go:build linux

package run

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

const backups = "var/lib/slipway/backups/"

// sealed is what etcd sends: a database, and its checksum.
func sealed(text string) string {
	db := text + strings.Repeat(" ", walSector-len(text))
	sum := sha256.Sum256([]byte(db))
	return db + string(sum[:])
}

func autoJob() op.AutoSnapshot {
	return op.AutoSnapshot{Cluster: "prod", EtcdClient: client(own), Utility: "etcdutl", Keep: 2}
}

func (h *host) takes(job op.AutoSnapshot) op.AutoSnapshotOutcome {
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

func (h *host) backups() string {
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

// What is beyond the number goes, the oldest first: of its own files, and of no
// others. What was cut off goes with the next one.
func TestAutoSnapshot(t *testing.T) {
	h := newHost(t)
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 4711"; w.States[own].Version = "3.7.0" })
	const foreign = "other-20200101-000000.db prod-20200101-000000.db.txt prod-notes.db"
	for _, name := range append(strings.Fields(foreign), "prod-20200101-000000.db", "prod-20200102-000000.db", "prod-20200103-000000.db.new", "prod-20200103-000000.db.new.part") {
		h.write(backups+name, "x")
	}
	out := h.takes(autoJob())
	if out.Failed != "" || len(out.Kept) != 1 {
		t.Fatalf("%+v", out)
	}
	k := out.Kept[0]
	name := filepath.Base(k.Path)
	if k.Revision != 4711 || k.Keys != 3 || k.Etcd != "3.7.0" || len(k.SHA256) != 64 || k.Path != op.AutoSnapshots+"/"+name || !k.Taken.Equal(out.At) {
		t.Errorf("%+v", k)
	}
	if got, want := h.backups(), "other-20200101-000000.db prod-20200101-000000.db.txt prod-20200102-000000.db "+name+" prod-notes.db"; got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
	if h.read(backups+name) != sealed("whole 4711") {
		t.Error("it is not what etcd sent")
	}
}

// A clock that was ahead does not have the new one be taken for the oldest.
func TestAutoSnapshotClock(t *testing.T) {
	h := newHost(t)
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 1" })
	h.write(backups+"prod-29990101-000000.db", "x")
	h.write(backups+"prod-29990102-000000.db", "x")
	out := h.takes(autoJob())
	if out.Failed != "" || len(out.Kept) != 1 || h.backups() != filepath.Base(out.Kept[0].Path)+" prod-29990102-000000.db" {
		t.Errorf("there are %s: %+v", h.backups(), out)
	}
}

// What fails leaves what there is, and says why.
func TestAutoSnapshotFails(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		do           func(*world, *op.AutoSnapshot)
		want         string
	}{
		{"full disk", "it is not begun", func(w *world, _ *op.AutoSnapshot) { w.States[own].DBSize = 1 << 60 }, "free"},
		{"no leader", "what it has is older than what there is", func(w *world, _ *op.AutoSnapshot) { w.States[own].Leader = 0 }, "no leader"},
		{"etcd is down", "there is nobody to ask", func(w *world, _ *op.AutoSnapshot) { w.States = nil }, "deadline"},
		{"etcd breaks off", "nothing of it stays", func(w *world, _ *op.AutoSnapshot) { w.OnSnapshot = "fail" }, "rpc error"},
		{"cut off", "its checksum is missing", func(w *world, _ *op.AutoSnapshot) { w.OnSnapshot = "whole 4711" }, "checksum"},
		{"changed", "its checksum is another", func(w *world, _ *op.AutoSnapshot) { w.OnSnapshot = "whole 4711" + strings.Repeat(" ", walSector+22) }, "checksum"},
		{"a name that leads elsewhere", "it is one of a cluster", func(_ *world, o *op.AutoSnapshot) { o.Cluster = "../x" }, "no name"},
		{"none are kept", "then there is no use in it", func(_ *world, o *op.AutoSnapshot) { o.Keep = 0 }, "how many are kept"},
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
			if want := filepath.Base(first.Kept[0].Path); h.backups() != want || job.Cluster == "prod" && (len(out.Kept) != 1 || out.Kept[0].Revision != 1) {
				t.Errorf("there are %s, want %s: %+v", h.backups(), want, out.Kept)
			}
			h.read("var/lib/slipway/backups.json")
		})
	}
}
