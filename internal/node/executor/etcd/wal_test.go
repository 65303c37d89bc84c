//go:build linux

package etcd

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// A walWriter writes records as etcd does.
type walWriter struct {
	out []byte
	crc uint32
}

func number(field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(field)<<3), v)
}

func message(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func (w *walWriter) put(kind uint64, data []byte) *walWriter {
	if kind != WALCRC {
		w.crc = crc32.Update(w.crc, castagnoli, data)
	}
	rec := message(number(1, kind), number(2, uint64(w.crc)))
	if data != nil {
		rec = message(rec, binary.AppendUvarint([]byte{3<<3 | 2}, uint64(len(data))), data)
	}
	pad := (8 - len(rec)%8) % 8
	size := uint64(len(rec))
	if pad > 0 {
		size |= uint64(0x80|pad) << 56
	}
	w.out = append(append(binary.LittleEndian.AppendUint64(w.out, size), rec...), make([]byte, pad)...)
	return w
}

func (w *walWriter) entry(term, index uint64) *walWriter {
	return w.put(WALEntry, message(number(1, 0), number(2, term), number(3, index), []byte{4<<3 | 2, 1, 'x'}))
}

// blob is a field of so many bytes.
func blob(field, size int) []byte {
	return append(binary.AppendUvarint([]byte{byte(field<<3 | 2)}, uint64(size)), bytes.Repeat([]byte{'x'}, size)...)
}

// removal takes a member out of the cluster.
func (w *walWriter) removal(term, index, id uint64) *walWriter {
	change := message(number(2, 1), number(3, id))
	return w.put(WALEntry, message(number(1, 1), number(2, term), number(3, index), []byte{4<<3 | 2, byte(len(change))}, change))
}

func (w *walWriter) state(commit uint64) *walWriter {
	return w.put(WALState, message(number(1, 7), number(2, 9), number(3, commit)))
}

func (w *walWriter) snapshot(index, term uint64) *walWriter {
	return w.put(WALSnapshot, message(number(1, index), number(2, term)))
}

// file ends what is one file, and begins the next.
func (w *walWriter) file() []byte {
	out := append(w.out, make([]byte, 64)...) // set aside
	w.out = nil
	w.put(WALCRC, nil)
	return out
}

const firstWAL = "var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal"

// firstByte is a byte in the first record of a log.
const firstByte = 40

// A fileHost is a host of files, without programs.
type fileHost struct {
	t    *testing.T
	root string
}

func newFileHost(t *testing.T) fileHost { return fileHost{t, t.TempDir()} }

func (f fileHost) path(name string) string { return filepath.Join(f.root, name) }

func (f fileHost) write(name, content string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f fileHost) read(name string) string {
	f.t.Helper()
	raw, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(raw)
}

// readMemberData returns the database of a real member.
func readMemberData(t *testing.T, version string) []byte {
	t.Helper()
	f, err := os.Open("../testdata/member-" + version + ".db.gz")
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

// TestEtcdRecover_ReportsEndOfLogAndDamage checks which entry is the last usable one of a
// log, and whether the log counts as damaged.
func TestEtcdRecover_ReportsEndOfLogAndDamage(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		write        func(*walWriter) [][]byte
		want         op.EtcdRecovered
		damaged      bool
	}{
		{"nothing", "there are no data", func(*walWriter) [][]byte { return nil }, op.EtcdRecovered{}, false},
		{"entries", "the last one counts, and what is agreed upon", func(w *walWriter) [][]byte {
			return [][]byte{w.put(WALCRC, nil).entry(1, 1).state(1).entry(2, 2).entry(2, 3).state(2).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 2, Index: 3}, Commit: 2}, false},
		{"entries that others took the place of", "another leader had others", func(w *walWriter) [][]byte {
			return [][]byte{w.entry(2, 5).entry(2, 6).entry(2, 7).entry(3, 6).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 3, Index: 6}}, false},
		{"two files", "the second one goes on", func(w *walWriter) [][]byte {
			return [][]byte{w.put(WALCRC, nil).entry(1, 1).file(), w.entry(1, 2).state(2).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 2}, Commit: 2}, false},
		{"a snapshot of another's", "there are no entries after it yet", func(w *walWriter) [][]byte {
			return [][]byte{w.entry(1, 1).snapshot(900, 4).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 4, Index: 900}, Commit: 900}, false},
		{
			"a snapshot instead of what it has", "another leader had others, and what it has after it is nothing any more",
			func(w *walWriter) [][]byte {
				return [][]byte{w.entry(2, 899).entry(2, 900).entry(2, 901).snapshot(900, 4).file()}
			},
			op.EtcdRecovered{Log: op.EtcdReach{Term: 4, Index: 900}, Commit: 900},
			false,
		},
		{"an earlier snapshot of its own", "the log goes on after it", func(w *walWriter) [][]byte {
			return [][]byte{w.entry(2, 899).entry(2, 900).entry(3, 901).snapshot(900, 2).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 3, Index: 901}}, false},
		{"a snapshot of its own", "it has all that is in it", func(w *walWriter) [][]byte {
			return [][]byte{w.entry(4, 900).snapshot(800, 3).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 4, Index: 900}}, false},
		{"cut off in the middle", "it is being written", func(w *walWriter) [][]byte {
			raw := w.entry(1, 1).entry(1, 2).out
			return [][]byte{raw[:len(raw)-3]}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}}, false},
		{"torn", "the power was cut while it was written: a part is as it was before", func(w *walWriter) [][]byte {
			raw := w.entry(1, 1).out
			at := (len(raw) + WALSector) / WALSector * WALSector
			raw = w.put(WALEntry, message(number(1, 0), number(2, 1), number(3, 2), blob(4, 4*WALSector))).entry(1, 3).file()
			clear(raw[at : at+WALSector])
			return [][]byte{raw}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}}, false},
		{"torn to the end", "nothing of a record is there but its size", func(w *walWriter) [][]byte {
			raw := w.entry(1, 1).out
			return [][]byte{append(raw, 0xff, 0xff, 0, 0, 0, 0, 0, 0)}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}}, false},
		{"torn before the last file", "power that goes does not do that", func(w *walWriter) [][]byte {
			raw := w.snapshot(0, 0).entry(1, 1).entry(1, 2).out
			w.out = nil
			return [][]byte{raw[:len(raw)-3], w.put(WALCRC, nil).entry(1, 3).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}}, true},
		{"a file is missing", "what follows does not go on from there", func(w *walWriter) [][]byte {
			first := w.put(WALCRC, nil).snapshot(0, 0).entry(1, 1).file()
			w.entry(1, 2).file()
			return [][]byte{first, w.entry(1, 3).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}}, true},
		{"a file of another member", "it is none of this log", func(w *walWriter) [][]byte {
			first := w.put(WALCRC, nil).put(WALMetadata, message(number(1, 77), number(2, 5))).snapshot(0, 0).entry(1, 1).file()
			return [][]byte{first, w.put(WALMetadata, message(number(1, 78), number(2, 5))).entry(1, 2).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}, Cluster: 5}, true},
		{"taken out itself, perhaps", "an etcd of it alone would end by that", func(w *walWriter) [][]byte {
			return [][]byte{w.put(WALMetadata, number(1, 77)).entry(1, 1).state(1).removal(1, 2, 77).entry(1, 3).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}, Commit: 1}, false},
		{"taken out itself", "it is no member any more, and was one before that", func(w *walWriter) [][]byte {
			return [][]byte{w.put(WALMetadata, number(1, 77)).snapshot(0, 0).entry(1, 1).removal(1, 2, 77).state(2).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}, Commit: 1}, true},
		{"not taken out after all", "another leader had others", func(w *walWriter) [][]byte {
			return [][]byte{w.put(WALMetadata, number(1, 77)).entry(1, 1).removal(1, 2, 77).entry(2, 2).entry(2, 3).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 2, Index: 3}}, false},
		{"another is taken out", "it is not there any more as it is", func(w *walWriter) [][]byte {
			return [][]byte{w.put(WALMetadata, number(1, 77)).entry(1, 1).removal(1, 2, 78).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 2}}, false},
		{"damaged", "what comes after it is not gone by", func(w *walWriter) [][]byte {
			raw := w.snapshot(0, 0).entry(1, 1).out
			at := len(raw) + 22
			raw = w.entry(1, 2).entry(1, 3).file()
			raw[at] ^= 1
			return [][]byte{raw, w.entry(9, 9).file()}
		}, op.EtcdRecovered{Log: op.EtcdReach{Term: 1, Index: 1}}, true},
		{"damaged before a snapshot", "etcd has nothing to begin with", func(w *walWriter) [][]byte {
			raw := w.entry(1, 901).state(901).out
			at := len(raw) + 22
			raw = w.entry(1, 902).snapshot(900, 1).file()
			raw[at] ^= 1
			return [][]byte{raw}
		}, op.EtcdRecovered{}, true},
		{"damaged before it says whose it is", "the next file says it, too", func(w *walWriter) [][]byte {
			raw := w.put(WALMetadata, message(number(1, 77), number(2, 5))).snapshot(0, 0).file()
			raw[10] ^= 1
			return [][]byte{raw, w.put(WALMetadata, message(number(1, 77), number(2, 5))).entry(9, 9).file()}
		}, op.EtcdRecovered{Cluster: 5}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newFileHost(t)
			files := tc.write(&walWriter{})
			size := 0
			for i, raw := range files {
				h.write(strings.Replace(firstWAL, "0000-", "000"+string(rune('0'+i))+"-", 1), string(raw))
				size += len(raw)
			}
			s := &host.Host{Root: h.root, State: h.path("var/lib/slipway")}
			r, err := (&RecoverOp{Op: op.EtcdRecover{Data: "/var/lib/etcd"}}).Check(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			var is op.EtcdRecovered
			if err := json.Unmarshal(r.Output, &is); err != nil || r.Change != "" {
				t.Fatal(r.Change, err)
			}
			if (is.Damaged != "") != tc.damaged || is.Bytes != int64(size) {
				t.Errorf("%s: %+v", tc.reason, is)
			}
			is.Damaged, is.DatabaseDamaged, is.Bytes = "", "", 0
			if d := cmp.Diff(tc.want, is); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// TestAgreeUpon_CommitsAcknowledgedEntries uses real logs of followers that were killed with their leader as soon as
// a client had a response. The acknowledged entry is in the log, but the follower did not
// know yet that it was committed. An etcd that runs alone must not drop it.
func TestAgreeUpon_CommitsAcknowledgedEntries(t *testing.T) {
	for _, version := range []string{"3.6.8", "3.7.0"} {
		for _, tc := range []struct {
			name string
			tail []byte
		}{
			{"as it is", nil},
			{"with what is set aside", make([]byte, 8192)},
			{"torn", append([]byte{0xf0, 0xff, 0, 0, 0, 0, 0, 0, 1, 2, 3}, make([]byte, 8192)...)},
		} {
			t.Run(version+" "+tc.name, func(t *testing.T) {
				h := newFileHost(t)
				raw, err := os.ReadFile("../testdata/etcd-" + version + ".wal")
				if err != nil {
					t.Fatal(err)
				}
				h.write(firstWAL, string(raw)+string(tc.tail))
				data := h.path("var/lib/etcd")
				was := readLog(data, op.EtcdReach{})
				if was.is.Damaged != "" || was.is.Log.Term != 2 || was.is.Log.Index != 14 || was.is.Cluster == 0 || was.state.commit != 13 {
					t.Fatalf("it is %+v", was)
				}
				if err := agreeUpon(data); err != nil {
					t.Fatal(err)
				}
				is := readLog(data, op.EtcdReach{})
				if is.is.Damaged != "" || is.is.Log.Index != 14 {
					t.Errorf("it has become %+v", is)
				}
				if d := cmp.Diff(WALHardState{2, was.state.vote, 14}, is.state, cmp.AllowUnexported(WALHardState{})); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				now := h.read(firstWAL)
				if !strings.HasPrefix(now, string(raw)) || !strings.Contains(now, "acknowledged") || int64(len(now)) != is.good {
					t.Error("what was in the log has changed, or something comes after it")
				}
			})
		}
	}
}

// TestAgreeUpon_RemovesDamagedEntries checks that a copy gets a log without damaged entries, and a term
// that no entry exceeds.
func TestAgreeUpon_RemovesDamagedEntries(t *testing.T) {
	h := newFileHost(t)
	w := &walWriter{}
	raw := w.snapshot(0, 0).entry(9, 1).out
	at := len(raw) + 22
	raw = w.entry(9, 2).file()
	raw[at] ^= 1
	other := strings.Replace(firstWAL, "0000-", "0001-", 1)
	h.write(firstWAL, string(raw))
	h.write(other, string(w.entry(9, 3).file()))
	data := h.path("var/lib/etcd")
	if err := agreeUpon(data); err != nil {
		t.Fatal(err)
	}
	is := readLog(data, op.EtcdReach{})
	if is.is.Damaged != "" || is.is.Log.Index != 1 || host.Exists(h.path(other)) {
		t.Errorf("it is %+v", is)
	}
	if d := cmp.Diff(WALHardState{9, 0, 1}, is.state, cmp.AllowUnexported(WALHardState{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// FuzzEtcdLog reads whatever there is, and ends.
func FuzzEtcdLog(f *testing.F) {
	f.Add((&walWriter{}).put(WALCRC, nil).entry(1, 1).state(1).snapshot(1, 1).file())
	f.Fuzz(func(t *testing.T, raw []byte) {
		data := filepath.Join(t.TempDir(), "data")
		name := filepath.Join(data, "member", "wal", "x.wal")
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		was := readLog(data, op.EtcdReach{})
		if err := agreeUpon(data); err != nil {
			t.Fatal(err)
		}
		if is := readLog(data, op.EtcdReach{}); is.is.Log.Term != was.is.Log.Term || is.is.Log.Index != was.is.Log.Index ||
			is.state.commit != was.is.Log.Index && was.is.Log.Index > 0 {
			t.Errorf("it was %+v, and is %+v", was, is)
		}
	})
}
