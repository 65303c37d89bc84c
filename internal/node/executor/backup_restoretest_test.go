//go:build linux

package executor

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/executor/autobackup"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// aSecret is the value of a Secret in an etcd that was restored from a snapshot.
const aSecret = " k8s:v1:Secret"

// drilling returns a host that takes snapshots and runs a restore test every hour.
func drilling(t *testing.T, snapshot string) (*testHost, op.AutoSnapshot) {
	t.Helper()
	h, job := newHost(t), autoJob()
	h.withState(func(w *world) { w.OnSnapshot = "sealed " + snapshot + aSecret })
	job.Drill = &op.AutoDrill{EverySeconds: 3600, Server: "etcd", Prefix: "/registry/secrets/"}
	return h, job
}

// tells writes the result of an earlier restore test to the host.
func (h *testHost) tells(d op.DrillOutcome) {
	h.t.Helper()
	raw, err := json.Marshal(op.AutoSnapshotOutcome{Drill: &d})
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("var/lib/slipway/backups.json", string(raw))
}

// noAutoDrill checks that a restore test left no data and no scope.
func (h *testHost) noAutoDrill() {
	h.t.Helper()
	if host.Exists(h.path(backups + ".drill")) {
		h.t.Error("the data of the restore test remain")
	}
	h.noScope()
}

// TestAutoRestoreTest_RunsAfterSnapshotIfDue checks that a restore test runs after the snapshot is taken, if the test
// is due. Only its result is kept.
func TestAutoRestoreTest_RunsAfterSnapshotIfDue(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	for _, tc := range []struct {
		name, reason string
		before       op.DrillOutcome
		due          bool
	}{
		{"the first", "no restore test has run yet", op.DrillOutcome{Since: now.Add(-time.Minute)}, true},
		{"good of late", "the last success is recent enough", op.DrillOutcome{Good: now.Add(-30 * time.Minute), Revision: 7}, false},
		{"good long ago", "the last success is too old", op.DrillOutcome{Good: now.Add(-2 * time.Hour), Revision: 7}, true},
		{
			"failed", "the cause may have been fixed",
			op.DrillOutcome{Good: now.Add(-30 * time.Minute), Failed: "no room", Since: now.Add(-time.Minute)},
			true,
		},
		{"cut off", "the interrupted test has no result", op.DrillOutcome{Good: now.Add(-30 * time.Minute), Begun: now.Add(-time.Minute)}, true},
		{"the clock went back", "the age of the last success is unknown", op.DrillOutcome{Good: now.Add(time.Hour), Revision: 7}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, job := drilling(t, "whole 4711")
			h.tells(tc.before)
			// Data of a killed job is removed, whether a test is due or not.
			h.write(backups+".drill/data/member/snap/db", "of one that was killed")
			h.write("../fakes/scopes/slipway-scratch-.drill.scope", "")
			out := h.takes(job)
			if out.Failed != "" || len(out.Kept) != 1 || out.Drill == nil {
				t.Fatalf("%+v", out)
			}
			h.noAutoDrill()
			d := *out.Drill
			if !tc.due {
				if d != tc.before {
					t.Errorf("%s: %+v, before %+v", tc.reason, d, tc.before)
				}
				return
			}
			if !d.Good.Equal(out.At) || d.Failed != "" || !d.Since.IsZero() || !d.Begun.IsZero() || d.Path != out.Kept[0].Path ||
				time.Since(d.At) > time.Minute {
				t.Errorf("%s: %+v", tc.reason, d)
			}
			if d.Revision != 4711 || d.Keys != 3 || d.Etcd != "3.7.0" || d.Secret != "read" {
				t.Errorf("the result is %+v", d)
			}
		})
	}
}

// TestAutoRestoreTest_HasNoOutcomeWhenSwitchedOff checks that the outcome has the time since when no restore test
// has succeeded. After tests are switched off, the outcome has no test.
func TestAutoRestoreTest_HasNoOutcomeWhenSwitchedOff(t *testing.T) {
	t.Parallel()
	h, job := drilling(t, "whole 4711")
	h.withState(func(w *world) { w.States[own].Leader = 0 })
	if out := h.takes(job); out.Failed == "" || out.Drill == nil || !out.Drill.Since.Equal(out.At) {
		t.Errorf("after a failed snapshot: %+v", out)
	}
	h.withState(func(w *world) { w.States[own].Leader = 1 })
	if out := h.takes(job); out.Drill == nil || !out.Drill.Good.Equal(out.At) {
		t.Errorf("%+v", out.Drill)
	}
	job.Drill = nil
	h.write(backups+".drill/data/member/snap/db", "of one that was killed")
	if out := h.takes(job); out.Drill != nil || out.Failed != "" {
		t.Errorf("switched off: %+v", out)
	}
	h.noAutoDrill()
}

// TestAutoRestoreTest_ReportsFailureAndKeepsSnapshot checks that a failed restore test is reported with its time and
// cause. The snapshot and its copies are kept, and the next snapshot is tested again.
func TestAutoRestoreTest_ReportsFailureAndKeepsSnapshot(t *testing.T) {
	t.Parallel()
	h, _, _, _, job := copying(t)
	job.Drill = &op.AutoDrill{EverySeconds: 3600, Server: "etcd", Prefix: "/registry/secrets/"}
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 4711" + aSecret })
	good := h.takes(job)
	if good.Drill == nil || good.Drill.Failed != "" {
		t.Fatalf("%+v", good.Drill)
	}
	was := *good.Drill
	was.Good = was.Good.Add(-2 * time.Hour)
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 4712 panics" })
	h.tells(was)
	for _, again := range []bool{false, true} {
		out := h.takes(job)
		if out.Failed != "" || !out.Kept[0].Taken.Equal(out.At) || len(out.Copies) != 2 || out.Copies[0].Failed+out.Copies[1].Failed != "" {
			t.Errorf("again %t: the snapshot or its copies failed: %+v", again, out)
		}
		d := out.Drill
		if !strings.Contains(d.Failed, "cannot serve these data") || !d.Good.Equal(was.Good) || d.Since.IsZero() ||
			again && !d.Since.Equal(was.Since) || d.Revision != 0 {
			t.Errorf("again %t: %+v", again, d)
		}
		h.noAutoDrill()
		was = *d
	}
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 4713" + aSecret })
	if d := h.takes(job).Drill; d.Failed != "" || !d.Since.IsZero() || d.Revision != 4713 {
		t.Errorf("after a good snapshot: %+v", d)
	}
}

// TestAutoRestoreTest_ComparesSnapshotWithRecord checks that a restore test compares the snapshot with its record,
// and does not start if the disk has too little space.
func TestAutoRestoreTest_ComparesSnapshotWithRecord(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		do           func(*op.KeptSnapshot)
		want         string
	}{
		{"good", "it matches its record", func(*op.KeptSnapshot) {}, ""},
		{"changed", "the file is damaged", func(k *op.KeptSnapshot) { k.SHA256 = "other" }, "checksum is different"},
		{
			"another revision", "the revision differs from the record", func(k *op.KeptSnapshot) { k.Revision++ },
			"etcdutl found revision 4711 with 3 keys in the snapshot, but it was taken at revision 4712",
		},
		{"fewer keys", "keys are missing", func(k *op.KeptSnapshot) { k.Keys++ }, "with 4"},
		{"full disk", "the test does not start", func(k *op.KeptSnapshot) { k.Bytes = 1 << 60 }, "is full"},
		{"gone", "the file was removed", func(k *op.KeptSnapshot) { k.Path += "x" }, "cannot be read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, job := drilling(t, "whole 4711")
			k := h.takes(job).Kept[0]
			tc.do(&k)
			s, err := h.r.session(host.Batch{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = (autobackup.AutoBackup{Host: s.Host, Job: job}).RunRestoreTest(t.Context(), k); (err == nil) != (tc.want == "") ||
				err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
			}
			h.noAutoDrill()
		})
	}
}

// TestAutoRestoreTest_AllowsOneMissingKeyAfterRestore checks that etcdutl may count one key more than etcd serves if an
// earlier restore raised the revision.
func TestAutoRestoreTest_AllowsOneMissingKeyAfterRestore(t *testing.T) {
	t.Parallel()
	h, job := drilling(t, "whole 1000004711")
	out := h.takes(job)
	if k, d := out.Kept[0], out.Drill; k.Keys != 4 || d.Failed != "" || d.Keys != 3 || d.Revision != 1000004711 || !d.Good.Equal(out.At) {
		t.Errorf("%+v, and of %+v", d, k)
	}
	h.noAutoDrill()
	for _, tc := range []struct {
		name     string
		revision int64
		serves   int
		want     bool
	}{
		{"all", 4711, 4, true},
		{"one fewer", 4711, 3, false},
		{"one fewer, and never restored", op.FirstBump, 3, false},
		{"all, and restored", op.FirstBump + 1, 4, true},
		{"one fewer, and restored", op.FirstBump + 1, 3, true},
		{"two fewer, and restored", op.FirstBump + 1, 2, false},
		{"one more, and restored", op.FirstBump + 1, 5, false},
	} {
		k := op.KeptSnapshot{EtcdSnapshotInfo: op.EtcdSnapshotInfo{Revision: tc.revision, Keys: 4}}
		if got := autobackup.ServesVersion(tc.serves, k); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// TestAutoRestoreTest_RecordsOnlyStartIfInterrupted checks that an interrupted restore test records its start, but no
// result.
func TestAutoRestoreTest_RecordsOnlyStartIfInterrupted(t *testing.T) {
	t.Parallel()
	h, job := drilling(t, "whole 4711")
	k := h.takes(job).Kept[0]
	s, err := h.r.session(host.Batch{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var heard []op.DrillOutcome
	was := op.DrillOutcome{Good: k.Taken.Add(-2 * time.Hour)}
	if err := (autobackup.AutoBackup{Host: s.Host, Job: job}).RunRestoreTestIfDue(ctx, k, &was, func(d op.DrillOutcome) error {
		heard = append(heard, d)
		cancel()
		return nil
	}); err != nil {
		t.Error(err)
	}
	if len(heard) != 1 || heard[0].Begun.IsZero() || heard[0].Failed != "" || !heard[0].Good.Equal(was.Good) {
		t.Errorf("%+v", heard)
	}
	h.noAutoDrill()
}

// TestAutoRestoreTest_DecryptsSecretWithKeysOfHost checks that a Secret is decrypted with the keys of the host. A host
// that has only an etcd member has no keys.
func TestAutoRestoreTest_DecryptsSecretWithKeysOfHost(t *testing.T) {
	const name, file = "/registry/secrets/default/token", "etc/keys.yaml"
	key := []byte(strings.Repeat("k", 32))
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, gcm.NonceSize())
	sealed := "k8s:enc:aesgcm:v1:1-a:" + string(nonce) + string(gcm.Seal(nil, nonce, []byte("k8s: a Secret"), []byte(name)))
	conf := func(key []byte) string {
		return "kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aesgcm: {keys: [{name: 1-a, secret: " +
			base64.StdEncoding.EncodeToString(key) + "}]}\n"
	}
	for _, tc := range []struct {
		name, reason, key, value, conf string
		member                         bool // alone
		want, fails                    string
	}{
		{"none", "the cluster has no Secret", "", "", "", false, "there is none", ""},
		{"plain", "it is not encrypted", name, "k8s: a Secret", "", false, "read", ""},
		{"plain, and none", "something else is there", name, "garbage", "", false, "", "default/token: the decrypted value is not a Secret"},
		{"encrypted", "the host has the key", name, sealed, conf(key), false, "decrypted (aesgcm, key 1-a)", ""},
		{"another key", "the key on the host is wrong", name, sealed, conf(append([]byte("x"), key[1:]...)), false, "", "cannot be decrypted"},
		{"no keys", "the file with the keys is missing", name, sealed, "", false, "", "which is missing"},
		{"a member alone", "it never had the keys", name, sealed, "", true, "encrypted (aesgcm, key 1-a): decryption not tested", ""},
		{
			"a service's", "only the KMS service can decrypt it", name, "k8s:enc:kms:v2:vault:x", conf(key), false,
			"encrypted (kms, key vault): decryption not tested", "",
		},
		{"unreadable keys", "the configuration is invalid", name, sealed, "EncryptionConfiguration: [", false, "", "encryption configuration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, job := drilling(t, "whole 1")
			if tc.conf != "" {
				h.write(file, tc.conf)
			}
			if !tc.member {
				job.Drill.Encryption = []string{"/etc/none.yaml", "/" + file}
			}
			s, err := h.r.session(host.Batch{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := autobackup.AutoBackup{Host: s.Host, Job: job}.ReadSecret(tc.key, []byte(tc.value))
			if got != tc.want || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: %q, %v", tc.reason, got, err)
			}
			if err != nil && strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(key)) {
				t.Errorf("the error contains the key: %v", err)
			}
		})
	}
}
