package backup

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
)

// fakeSnapshot writes a file of a given size that stands in for an etcd snapshot.
func fakeSnapshot(t *testing.T, bytes int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), SnapshotName)
	text := make([]byte, bytes)
	for i := range text {
		text[i] = byte(i%251 + 1)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func flipByte(raw []byte, at int) []byte {
	out := bytes.Clone(raw)
	out[at] ^= 1
	return out
}

func wantReason(t *testing.T, err error, want Reason) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// writeTestSet writes a set to a file.
func writeTestSet(t *testing.T, recipients ...age.Recipient) (file string, set *Set, small []Content) {
	t.Helper()
	db := fakeSnapshot(t, 20_000)
	raw, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	is := Snapshot{Bytes: int64(len(raw)), SHA256: digestOf(raw), Hash: 7, Revision: 4711, Keys: 3, Version: "3.7.0"}
	set = &Set{
		Cluster: "prod", Taken: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC), Kubernetes: "v1.37.1",
		Etcd: "3.7.0", EtcdType: "stacked", Member: "cp1", Authority: "a", Snapshot: is,
	}
	small = []Content{{ClusterName, []byte("kind: Cluster\n")}, {HostFile("/etc/kubernetes/pki/ca.key"), []byte("canary-key")}}
	file = filepath.Join(t.TempDir(), FileName("prod", set.Taken, len(recipients) > 0))
	if err := Write(file, set, small, db, Keys{Recipients: recipients}); err != nil {
		t.Fatal(err)
	}
	return file, set, small
}

// A set with keys only is read like other sets. If it contains a snapshot although its
// header lists none, it is refused.
func TestRead_RefusesSnapshotInKeysOnlySet(t *testing.T) {
	set := &Set{
		Cluster: "prod", Taken: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC), Kubernetes: "v1.37.1",
		EtcdType: "external", Authority: "a",
	}
	small := []Content{{ClusterName, []byte("kind: Cluster\n")}, {HostFile("/etc/kubernetes/pki/ca.key"), []byte("canary-key")}}
	file := filepath.Join(t.TempDir(), FileName("prod", set.Taken, false))
	if err := Write(file, set, small, "", Keys{}); err != nil {
		t.Fatal(err)
	}
	var db bytes.Buffer
	got, files, err := Read(file, nil, &db, nil)
	if err != nil || !got.KeysOnly() || db.Len() > 0 || got.Format == format {
		t.Fatalf("%+v, %v, and a snapshot of %d bytes", got, err, db.Len())
	}
	if d := cmp.Diff(small, files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(raw, []byte("canary-key"), []byte("canary-kex"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = Read(file, nil, &db, nil)
	wantReason(t, err, Damaged)
	_, whole, _ := writeTestSet(t)
	whole.Format = keysOnly
	wantReason(t, whole.checkHeader(), Damaged)
	whole.Files, whole.Format = whole.Files[:2], format
	wantReason(t, whole.checkHeader(), Damaged)
}

func TestWrite_WritesSetThatReadReturns(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	to, err := ParseRecipients([]string{id.Recipient().String()})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		to  []age.Recipient
		ids []age.Identity
	}{"plain": {}, "plain, with a key": {nil, []age.Identity{id}}, "encrypted": {to, []age.Identity{other, id}}} {
		t.Run(name, func(t *testing.T) {
			file, set, small := writeTestSet(t, tc.to...)
			var db bytes.Buffer
			got, files, err := Read(file, tc.ids, &db, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(set, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if d := cmp.Diff(small, files); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
			if digestOf(db.Bytes()) != set.Snapshot.SHA256 {
				t.Error("the snapshot differs")
			}
			if h, err := ReadHeader(file, tc.ids); err != nil || h.Cluster != "prod" {
				t.Errorf("head %+v, %v", h, err)
			}
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the set's mode is %v, %v", info.Mode(), err)
			}
			raw, err := os.ReadFile(file)
			if sealed := bytes.Contains(raw, []byte("canary-key")); err != nil || sealed == (len(tc.to) > 0) {
				t.Errorf("the key can be read in the file: %t", sealed)
			}
		})
	}
	file, _, _ := writeTestSet(t, to...)
	for name, ids := range map[string][]age.Identity{"no key": nil, "another's key": {other}} {
		_, _, err := Read(file, ids, &bytes.Buffer{}, nil)
		t.Log(name)
		wantReason(t, err, Encrypted)
	}
	if _, err := ParseRecipients([]string{id.String()}); err == nil || strings.Contains(err.Error(), id.String()[:25]) {
		t.Errorf("the error contains the private key: %v", err)
	}
	if _, err := ParseRecipients([]string{"ssh-rsa AAAA"}); err == nil {
		t.Error("a text that is not an age key was accepted")
	}
}

// Write never replaces a file, and leaves no file behind after a failure.
func TestWrite_LeavesNothingAfterFailure(t *testing.T) {
	file, set, small := writeTestSet(t)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, Write(file, set, small, fakeSnapshot(t, 300), Keys{}), Exists)
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the existing file has changed: %v", err)
	}
	short := *set
	short.Snapshot.Bytes += 5
	if err := Write(file+"2", &short, small, fakeSnapshot(t, 20_000), Keys{}); err == nil {
		t.Error("a snapshot shorter than its header was written")
	}
	other := *set
	other.Snapshot.SHA256 = digestOf(nil)
	wantReason(t, Write(file+"2", &other, small, fakeSnapshot(t, 20_000), Keys{}), Damaged)
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".slipway-*")); err != nil || len(left) > 0 {
		t.Errorf("remaining files: %v, %v", left, err)
	}
	if _, err := os.Stat(file + "2"); err == nil {
		t.Error("an incomplete set remains")
	}
}

// sparseHeader returns the GNU header of a sparse member, which has no content in the
// archive and the given size when it is read.
func sparseHeader(name string, bytes int64) []byte {
	h := make([]byte, 512)
	number := func(at int, n int64) {
		binary.BigEndian.PutUint64(h[at+4:], uint64(n))
		h[at] = 0x80
	}
	copy(h, name)
	for _, at := range []int{100, 108, 116} {
		copy(h[at:], "0000600")
	}
	copy(h[124:], "00000000000\x0000000000000\x00        S") // the member has no content
	copy(h[257:], "ustar  ")
	number(386, bytes) // offset and length of the only, empty part
	number(398, 0)
	number(483, bytes)
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// A sparse member is short in the archive and long when it is read, so it could fill the
// disk.
func TestRead_RefusesSparseMembers(t *testing.T) {
	for _, size := range []int64{1000, 1 << 20, 1 << 42} {
		nothing := make([]byte, min(size, 1<<20))
		set := &Set{Format: format, Cluster: "prod", Snapshot: Snapshot{Bytes: size, SHA256: digestOf(nothing)}}
		set.Files = []File{{Name: SnapshotName, Bytes: size, SHA256: digestOf(nothing)}}
		text, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		w := tar.NewWriter(&file)
		if err := errors.Join(addMember(w, set.Taken, NewMember(manifestName, text)), w.Flush()); err != nil {
			t.Fatal(err)
		}
		file.Write(sparseHeader(SnapshotName, size))
		file.Write(make([]byte, 1024))
		at := filepath.Join(t.TempDir(), "sparse.tar")
		if err := os.WriteFile(at, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		var db full
		_, _, err = Read(at, nil, &db, nil)
		wantReason(t, err, Damaged)
		if db > 0 {
			t.Errorf("%d bytes of a set of %d were unpacked", db, file.Len())
		}
	}
}

// full takes a MiB.
type full int

func (f *full) Write(p []byte) (int, error) {
	if *f += full(len(p)); *f > 1<<20 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

// Read does not wait for a pipe that has the name of a set.
func TestRead_DoesNotWaitForPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "prod-20261120-180000.tar")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, "/dev/zero", t.TempDir()} {
		_, err := ReadHeader(name, nil)
		_, _, readErr := Read(name, nil, &bytes.Buffer{}, nil)
		if err == nil || readErr == nil {
			t.Errorf("%s: %v, %v", name, err, readErr)
		}
	}
}

// A set that was truncated or changed anywhere is refused.
func TestRead_RefusesDamagedSets(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string][]age.Recipient{"plain": nil, "encrypted": {id.Recipient()}} {
		file, _, _ := writeTestSet(t, to...)
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		end := bytes.LastIndexFunc(raw, func(r rune) bool { return r != 0 }) // behind it a tar is padding
		for _, at := range []int{0, 30, 600, 1500, 4000, len(raw) / 2, end - 40} {
			for what, damage := range map[string][]byte{"cut off": raw[:at], "one bit": flipByte(raw, at)} {
				bad := filepath.Join(t.TempDir(), "bad.tar")
				if err := os.WriteFile(bad, damage, 0o600); err != nil {
					t.Fatal(err)
				}
				_, _, err := Read(bad, []age.Identity{id}, &bytes.Buffer{}, nil)
				var e *Error
				harmless := what == "one bit" && name == "plain" && (raw[at] == 0 || inHeader(raw, at))
				if !errors.As(err, &e) && !harmless {
					t.Errorf("%s, %s at %d of %d: %v", name, what, at, len(raw), err)
				}
			}
		}
	}
}

// inHeader reports whether a position is in a part of a tar header other than the name
// and the size, such as the time. Nothing depends on that part, or on the padding between
// files.
func inHeader(raw []byte, at int) bool {
	return bytes.Equal(raw[at/block*block+257:at/block*block+262], []byte("ustar"))
}

func TestParseFileName_ReadsNamesOfFileName(t *testing.T) {
	taken := time.Date(2026, 11, 20, 18, 0, 7, 0, time.UTC)
	for _, encrypted := range []bool{false, true} {
		cluster, at, sealed, ok := ParseFileName(FileName("a-b-1", taken, encrypted))
		if !ok || cluster != "a-b-1" || !at.Equal(taken) || sealed != encrypted {
			t.Errorf("%s %s %t %t", cluster, at, sealed, ok)
		}
	}
	for _, name := range []string{"prod.tar", ".slipway-backup-1", "prod-20261120-180007.tar.gz", "prod-20269920-180007.tar"} {
		if _, _, _, ok := ParseFileName(name); ok {
			t.Errorf("%s is taken for a set", name)
		}
	}
}
