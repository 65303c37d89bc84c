//go:build linux

package etcd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/op"
)

// versions are the versions of etcd whose real data the tests read.
var versions = []string{"3.6.8", "3.7.0"}

// memberData extracts the data of a real member into a temporary directory. It returns
// the directory and its log files.
func memberData(t *testing.T, of string) (data string, logs []string) {
	t.Helper()
	data = t.TempDir()
	f, err := os.Open("../testdata/" + of + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(data, head.Name)
		if head.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o700)
		} else {
			var raw []byte
			if raw, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, raw, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	logs, err = filepath.Glob(filepath.Join(data, "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	return data, logs
}

// damage changes a byte of a file: near its start, or in its first entry.
func damage(t *testing.T, name string, entry bool) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := firstByte
	if entry {
		at = bytes.Index(raw, []byte("xxxx"))
	}
	raw[at] ^= 1
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// instead puts a directory in a file's place: it is there, and cannot be read.
func instead(t *testing.T, name string) {
	t.Helper()
	if err := errors.Join(os.Remove(name), os.Mkdir(name, 0o700)); err != nil {
		t.Fatal(err)
	}
}

// TestEtcdReach_UsesLogAfterDamageOnlyIfComplete checks that log files after a damaged one are used only if they
// continue from the database. The data comes from real members, which made small log
// files and a snapshot every 41 entries until their host was lost. Their databases end at
// the last snapshot, and their logs end later.
func TestEtcdReach_UsesLogAfterDamageOnlyIfComplete(t *testing.T) {
	snap := op.EtcdReach{Term: 2, Index: 0x148}
	for _, version := range versions {
		_, logs := memberData(t, "segments-"+version)
		last, at := len(logs)-1, 0 // at is the file with the record of the last snapshot
		for i, name := range logs {
			if inOrder([]string{name}, snap.Index) {
				at = i
			}
		}
		for _, tc := range []struct {
			name, reason string
			do           func(t *testing.T, data string, logs []string)
			from         int    // -1: as far as the database goes
			damaged      string // where
		}{
			{"whole", "all of it is there", func(*testing.T, string, []string) {}, 0, ""},
			{
				"the first", "the others have all that comes after the database",
				func(t *testing.T, _ string, logs []string) { damage(t, logs[0], true) }, 1, "from byte ",
			},
			{"one between", "so have those after it", func(t *testing.T, _ string, logs []string) { damage(t, logs[3], true) }, 4, "from byte "},
			{
				"two", "so have those after both",
				func(t *testing.T, _ string, logs []string) { damage(t, logs[1], true); damage(t, logs[4], true) }, 5, "from byte ",
			},
			{
				"the one before the snapshot's", "it tells of the snapshot",
				func(t *testing.T, _ string, logs []string) { damage(t, logs[at-1], true) }, at, "from byte ",
			},
			{"one is missing", "what is before it is not needed", func(t *testing.T, _ string, logs []string) {
				if err := os.Remove(logs[3]); err != nil {
					t.Fatal(err)
				}
			}, 4, "does not continue"},
			{
				"one that cannot be read", "nor is that", func(t *testing.T, _ string, logs []string) { instead(t, logs[3]) },
				4, "from byte 0 of 4096: is a directory",
			},
			{
				"the snapshot's", "the record of the snapshot is lost",
				func(t *testing.T, _ string, logs []string) { damage(t, logs[at], false) }, -1, "from byte ",
			},
			{"the last one, too", "some of what comes after the database is not there", func(t *testing.T, _ string, logs []string) {
				damage(t, logs[2], true)
				damage(t, logs[last], true)
			}, -1, "from byte "},
			{"the snapshot's own file", "etcd of 3.6 begins with that", func(t *testing.T, data string, logs []string) {
				damage(t, logs[3], true)
				damage(t, snapshotOf(data, snap), false)
			}, -1, "from byte "},
		} {
			t.Run(version+" "+tc.name, func(t *testing.T) {
				data, logs := memberData(t, "segments-"+version)
				whole, _ := etcdReach(data)
				if whole.Database != snap || whole.Log.Index <= snap.Index || whole.Damaged != "" {
					t.Fatalf("it is %+v", whole)
				}
				tc.do(t, data, logs)
				is, r := etcdReach(data)
				if !strings.Contains(is.Damaged, tc.damaged) || (is.Damaged == "") != (tc.damaged == "") {
					t.Errorf("it is damaged %q", is.Damaged)
				}
				switch {
				case tc.from < 0:
					if is.From != "" || !is.ByDatabase() || is.Reach() != snap {
						t.Errorf("%s: %+v", tc.reason, is)
					}
					return
				case tc.from > 0 && is.From != filepath.Base(logs[tc.from]), is.Log != whole.Log,
					is.Commit != whole.Commit, is.Cluster != whole.Cluster, is.ByDatabase():
					t.Errorf("%s: %+v, want %s", tc.reason, is, logs[tc.from])
				}
				goesOnWith(t, data, r, whole.Log)
			})
		}
	}
}

// TestLearner_IsRecognizedAndGetsVoteInCopy checks that a learner is recognized, and that its copy has a vote. The data
// comes from real learners, one of which was promoted at last.
func TestLearner_IsRecognizedAndGetsVoteInCopy(t *testing.T) {
	for _, version := range versions {
		for name, learner := range map[string]bool{"learner-": true, "promoted-": false, "segments-": false} {
			t.Run(name+version, func(t *testing.T) {
				data, _ := memberData(t, name+version)
				is, r := etcdReach(data)
				if is.Learner != learner {
					t.Errorf("%+v", is)
				}
				to := is.Log
				if learner {
					to.Index++
				}
				goesOnWith(t, data, r, to)
			})
		}
	}
}

// goesOnWith checks that etcd can continue with a copy of the data: it has only the log
// files in use, and all of its entries are committed.
func goesOnWith(t *testing.T, data string, r *WALReader, to op.EtcdReach) {
	t.Helper()
	copied := t.TempDir()
	if err := copyMember(t.Context(), data, r, copied); err != nil {
		t.Fatal(err)
	}
	if err := agreeUpon(copied); err != nil {
		t.Fatal(err)
	}
	is, now := etcdReach(copied)
	if is.Damaged != "" || is.DatabaseDamaged != "" || is.Learner || is.Log != to || is.Commit != to.Index ||
		now.state.commit != to.Index || len(now.names) != r.at-r.first+1 {
		t.Errorf("the copy is %+v, of %v", is, now.names)
	}
}

// TestReadLog_IgnoresLogThatDoesNotMatchDatabase checks that a log without its beginning is not used for a
// database with other entries, or for a database that ends outside the log.
func TestReadLog_IgnoresLogThatDoesNotMatchDatabase(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		database     op.EtcdReach
		follows      bool
	}{
		{"as it is", "it ends with the snapshot", op.EtcdReach{Term: 2, Index: 0x148}, true},
		{"further", "the entry is the log's", op.EtcdReach{Term: 2, Index: 0x149}, true},
		{"before the snapshot", "etcd would begin after it", op.EtcdReach{Term: 2, Index: 0x147}, false},
		{"of another term", "another leader had other entries", op.EtcdReach{Term: 3, Index: 0x149}, false},
		{"of another term at the snapshot", "another leader had other entries", op.EtcdReach{Term: 1, Index: 0x148}, false},
		{"beyond the end", "it has all, and more", op.EtcdReach{Term: 2, Index: 0x1000}, false},
		{"none", "there is nothing to follow", op.EtcdReach{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, version := range versions {
				data, logs := memberData(t, "segments-"+version)
				damage(t, logs[2], true)
				if is := readLog(data, tc.database).is; (is.From != "") != tc.follows {
					t.Errorf("%s, %s: %+v", version, tc.reason, is)
				}
			}
		})
	}
}

// TestReadLog_IgnoresLogWithGapAfterSnapshot checks that a log with a missing entry after the
// snapshot is not used. etcd starts with the snapshot only if the log has it as
// committed.
func TestReadLog_IgnoresLogWithGapAfterSnapshot(t *testing.T) {
	for _, tc := range []struct {
		name          string
		after, commit uint64
		follows       bool
	}{
		{"the next entry", 6, 5, true},
		{"the one after that", 7, 5, false},
		{"not agreed upon", 6, 4, false},
	} {
		data := t.TempDir()
		w, whose := &walWriter{}, message(number(1, 77), number(2, 5))
		first := w.put(WALCRC, nil).put(WALMetadata, whose).snapshot(0, 0).entry(1, 1).file()
		first[firstByte] ^= 1
		about := message(number(1, 5), number(2, 1))
		for name, raw := range map[string][]byte{
			"wal/0000000000000000-0000000000000000.wal": first,
			"wal/0000000000000001-0000000000000005.wal": w.put(WALMetadata, whose).entry(1, 5).snapshot(5, 1).state(tc.commit).entry(1,
				tc.after).file(),
			"snap/0000000000000001-0000000000000005.snap": withBytes(number(1, uint64(crc32.Checksum(about, castagnoli))), 2, about),
		} {
			file := filepath.Join(data, "member", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, raw, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if is := readLog(data, op.EtcdReach{Term: 1, Index: 5}).is; (is.From != "") != tc.follows {
			t.Errorf("%s: %+v", tc.name, is)
		}
	}
}

// TestInOrder_FollowsNumbersInFileNames checks that log files are found by the numbers in their names, as etcd
// does.
func TestInOrder_FollowsNumbersInFileNames(t *testing.T) {
	for _, tc := range []struct {
		name  string
		names []string
		want  bool
	}{
		{"one", []string{"0000000000000003-0000000000000010.wal"}, true},
		{"two", []string{"0000000000000003-000000000000000f.wal", "0000000000000004-0000000000000020.wal"}, true},
		{"one is missing", []string{"0000000000000003-000000000000000f.wal", "0000000000000005-0000000000000020.wal"}, false},
		{"it begins after it", []string{"0000000000000003-0000000000000011.wal"}, false},
		{"another name", []string{"x.wal"}, false},
	} {
		if got := inOrder(tc.names, 0x10); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// TestEtcdReach_ReportsUnreadableFilesAsDamage checks that a file that cannot be read is reported as damage, and
// does not end the check.
func TestEtcdReach_ReportsUnreadableFilesAsDamage(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		want       func(op.EtcdRecovered) bool
	}{
		{"a database", "snap/db", func(is op.EtcdRecovered) bool {
			return is.DatabaseDamaged == "the database cannot be read: is a directory" && is.Damaged == "" && is.Reach() == (op.EtcdReach{})
		}},
		{"a log", "wal/0000000000000007-0000000000000137.wal", func(is op.EtcdRecovered) bool {
			return strings.HasSuffix(is.Damaged, ".wal, from byte 0 of 4096: is a directory") && is.DatabaseDamaged == "" &&
				is.ByDatabase() && is.Reach().Index > 0
		}},
		{"all logs", "wal", func(is op.EtcdRecovered) bool {
			return is.Damaged == "the log cannot be read: not a directory" && is.ByDatabase() && is.Reach().Index > 0
		}},
		{"all", "", func(is op.EtcdRecovered) bool {
			return is.Damaged == "the log cannot be read: not a directory" &&
				is.DatabaseDamaged == "the database cannot be read: not a directory" && is.Reach() == (op.EtcdReach{})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, _ := memberData(t, "segments-3.7.0")
			name := filepath.Join(data, "member", tc.file)
			if slices.Contains([]string{"wal", ""}, tc.file) {
				if err := errors.Join(os.RemoveAll(name), os.WriteFile(name, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			} else {
				instead(t, name)
			}
			if is, _ := etcdReach(data); !tc.want(is) {
				t.Errorf("%+v", is)
			}
		})
	}
}

// TestCopyMember_CopiesDataBehindLinks checks that a copy has the data behind a link. Without this data,
// it would be the copy of another member.
func TestCopyMember_CopiesDataBehindLinks(t *testing.T) {
	data, _ := memberData(t, "segments-3.7.0")
	is, r := etcdReach(data)
	for _, name := range []string{"member/snap", "member"} {
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		if err := errors.Join(os.Rename(filepath.Join(data, name), elsewhere), os.Symlink(elsewhere, filepath.Join(data, name))); err != nil {
			t.Fatal(err)
		}
		goesOnWith(t, data, r, is.Log)
	}
}
