package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"slipway.dev/slipway/internal/backup"
)

// makeSnapshot writes a snapshot as etcd sends it: a database with some revisions, and
// its checksum at the end.
func makeSnapshot(t *testing.T, revisions int) string {
	t.Helper()
	return snapshotOf(t, func(b *bolt.Bucket) (err error) {
		for i := range revisions {
			err = errors.Join(err, b.Put(binary.BigEndian.AppendUint64(nil, uint64(i+1)), revisionValue(strconv.Itoa(i))))
		}
		return err
	})
}

// revisionValue returns the stored value of one revision of a key.
func revisionValue(key string) []byte {
	raw := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7) // when it was created
	return protowire.AppendString(protowire.AppendTag(raw, keyField, protowire.BytesType), key)
}

// snapshotOf is a snapshot with the revisions that fill puts there.
func snapshotOf(t *testing.T, fill func(*bolt.Bucket) error) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot.db")
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		b, err := tx.CreateBucket(keyBucket)
		if err != nil {
			return err
		}
		return errors.Join(fill(b), meta.Put([]byte("term"), []byte{1}))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := sha256.Sum256(raw)
	if err := os.WriteFile(file, append(raw, end[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSnapshot_DescribesSnapshotOrReportsDamage(t *testing.T) {
	file := makeSnapshot(t, 41)
	got, err := Snapshot(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.Revision != 41 || got.Hash == 0 || len(got.SHA256) != 64 || got.Bytes%sector != sha256.Size {
		t.Errorf("%+v", got)
	}
	again, err := Snapshot(makeSnapshot(t, 42))
	if err != nil || again.Hash == got.Hash {
		t.Errorf("another snapshot has the same hash: %+v, %v", again, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string][]byte{
		"cut off":         raw[:len(raw)-100],
		"cut at a page":   raw[:len(raw)-sha256.Size-4096],
		"its end is gone": raw[:len(raw)-sha256.Size],
		"one bit":         flipByte(raw, len(raw)/2),
		"its checksum":    flipByte(raw, len(raw)-1),
		"nothing":         {},
		"no database":     appendChecksum(bytes.Repeat([]byte("x"), 4*sector)),
	} {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad.db")
			if err := os.WriteFile(bad, damage, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Snapshot(bad)
			wantDamaged(t, err)
		})
	}
}

func TestSnapshot_CountsKeysLikeEtcdutl(t *testing.T) {
	at := func(main uint64, mark ...byte) []byte {
		return append(binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, main), '_'), 0), mark...)
	}
	got, err := Snapshot(snapshotOf(t, func(b *bolt.Bucket) error {
		return errors.Join(
			b.Put(at(2), revisionValue("kept")), b.Put(at(3), revisionValue("gone")), b.Put(at(4), revisionValue("kept")),
			b.Put(at(5, 't'), revisionValue("gone")), b.Put(at(6), revisionValue("other")),
			b.Put(at(1_000_000_006), nil), // a restore has raised the revision
		)
	}))
	if err != nil || got.Keys != 2 || got.Revision != 1_000_000_006 {
		t.Errorf("%+v, %v; want 2 keys at revision 1000000006", got, err)
	}
	_, err = Snapshot(snapshotOf(t, func(b *bolt.Bucket) error { return b.Put(at(2), []byte("value")) }))
	wantDamaged(t, err)
}

// TestSnapshot_RefusesHostilePages: a set can come from anywhere, and its writer also
// wrote its checksums.
func TestSnapshot_RefusesHostilePages(t *testing.T) {
	raw, err := os.ReadFile(makeSnapshot(t, 2000))
	if err != nil {
		t.Fatal(err)
	}
	raw = raw[:len(raw)-sha256.Size]
	size := os.Getpagesize()
	for name, damage := range map[string]func(id int, kind uint16, page, element []byte){
		"round and round": func(id int, kind uint16, _, element []byte) {
			if kind == branchPage {
				binary.LittleEndian.PutUint64(element[8:], uint64(id))
			}
		},
		"two of one": func(_ int, kind uint16, page, element []byte) {
			if kind == branchPage {
				copy(element[8:16], page[headBytes+8:])
			}
		},
		"a page far away": func(_ int, kind uint16, _, element []byte) {
			if kind == branchPage {
				binary.LittleEndian.PutUint64(element[8:], 1<<30)
			}
		},
		"a key far away": func(_ int, kind uint16, _, element []byte) {
			if kind == leafPage {
				binary.LittleEndian.PutUint32(element[4:], 0x7ff00000)
			}
		},
		"a value without end": func(_ int, kind uint16, _, element []byte) {
			if kind == leafPage {
				binary.LittleEndian.PutUint32(element[12:], 0x7ff00000)
			}
		},
		"a page without end": func(_ int, kind uint16, page, _ []byte) {
			if kind == leafPage {
				binary.LittleEndian.PutUint32(page[12:], 1<<31)
			}
		},
		"another kind": func(_ int, kind uint16, page, _ []byte) {
			if kind == leafPage {
				page[8] = 0x10
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(raw)
			for id := 2; id < len(bad)/size; id++ {
				page := bad[id*size : (id+1)*size]
				kind, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
				for i := 0; i < count && kind <= leafPage; i++ {
					damage(id, kind, page, page[headBytes+i*elementBytes:])
				}
			}
			file := filepath.Join(t.TempDir(), "bad.db")
			if err := os.WriteFile(file, appendChecksum(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Snapshot(file)
			wantDamaged(t, err)
		})
	}
}

func flipByte(raw []byte, at int) []byte {
	out := bytes.Clone(raw)
	out[at] ^= 1
	return out
}

func appendChecksum(raw []byte) []byte {
	end := sha256.Sum256(raw)
	return append(raw, end[:]...)
}

func wantDamaged(t *testing.T, err error) {
	t.Helper()
	var e *backup.Error
	if !errors.As(err, &e) || e.Reason != backup.Damaged {
		t.Errorf("error %v, want %s", err, backup.Damaged)
	}
}
