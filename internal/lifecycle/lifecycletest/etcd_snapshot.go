package lifecycletest

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// NewEtcdSnapshot returns an etcd snapshot with a number of revisions, of at most 600 keys.
func NewEtcdSnapshot(t testing.TB, revisions int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("key"))
		for i := range revisions {
			err = errors.Join(err, b.Put(binary.BigEndian.AppendUint64(nil, uint64(i+1)), []byte{0x0a, 2, byte(i % 600 >> 8), byte(i % 600)}))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	return string(raw) + string(sum[:])
}
