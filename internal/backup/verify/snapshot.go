// Package verify verifies etcd snapshots of backup sets by reading their database. The
// node helper, which writes sets, does not need it.
package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"slipway.dev/slipway/internal/backup"
)

// sector is the unit of the size of etcd's database. A snapshot is the database followed by
// its checksum.
const sector = 512

// revisionBytes is the length of a revision's name. If the key was deleted at this
// revision, a mark follows.
const revisionBytes = 17

// keyBucket is the bucket with all revisions of all keys.
var keyBucket = []byte("key")

// keyField is the field number of the key in a revision (mvccpb.KeyValue).
const keyField = 1

// Snapshot reads a whole etcd snapshot, as etcdutl does, and describes it, except for its
// version, which only etcdutl determines. For an incomplete or changed snapshot it returns
// a *backup.Error.
func Snapshot(file string) (s backup.Snapshot, err error) {
	f, err := os.Open(file)
	if err != nil {
		return s, err
	}
	defer f.Close()
	return OpenedSnapshot(f)
}

// OpenedSnapshot is Snapshot for an open file, which may be unlinked.
func OpenedSnapshot(f *os.File) (s backup.Snapshot, err error) {
	if s.Bytes, s.SHA256, err = verifyChecksum(f); err != nil {
		return s, err
	}
	// The database is mapped into memory, and a damaged page can refer to any address:
	// such a fault becomes a panic, which is recovered.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = damagedError("the snapshot's database is damaged: %v", r)
		}
	}()
	db, err := bolt.Open(f.Name(), 0o400,
		&bolt.Options{ReadOnly: true, Timeout: time.Second, OpenFile: func(string, int, os.FileMode) (*os.File, error) {
			again, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			return os.NewFile(uintptr(again), f.Name()), err
		}})
	if err != nil {
		return s, damagedError("the snapshot does not contain an etcd database: %v", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		if err := checkTree(f, s.Bytes-sha256.Size, int64(db.Info().PageSize), uint64(tx.Cursor().Bucket().Root())); err != nil {
			return err
		}
		return readDatabase(tx, &s)
	})
	if err != nil {
		return s, damagedError("the snapshot's database is damaged: %v", err)
	}
	return s, nil
}

func damagedError(msg string, args ...any) error {
	return &backup.Error{Reason: backup.Damaged, Message: fmt.Sprintf(msg, args...)}
}

// verifyChecksum verifies the checksum at the end of a snapshot, and returns the size and the
// checksum of the whole file.
func verifyChecksum(f *os.File) (size int64, digest string, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, "", err
	}
	if size = info.Size(); size%sector != sha256.Size {
		return size, "", damagedError("the file of %d bytes is incomplete or not an etcd snapshot", size)
	}
	from := io.NewSectionReader(f, 0, size)
	all, db := sha256.New(), sha256.New()
	if _, err := io.CopyN(io.MultiWriter(all, db), from, size-sha256.Size); err != nil {
		return size, "", err
	}
	trailer := make([]byte, sha256.Size)
	if _, err := io.ReadFull(from, trailer); err != nil {
		return size, "", err
	}
	if !bytes.Equal(trailer, db.Sum(nil)) {
		return size, "", damagedError("the snapshot is damaged: its checksum does not match")
	}
	_, _ = all.Write(trailer) // never fails
	return size, hex.EncodeToString(all.Sum(nil)), nil
}

// readDatabase computes the hash of the database, finds the last revision, and counts its keys.
// After a restore that raised the revision, etcdutl counts one key more, because it adds a
// revision without a key.
func readDatabase(tx *bolt.Tx, s *backup.Snapshot) error {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	there := map[string]struct{}{}
	err := tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		_, _ = h.Write(name) // never fails
		return b.ForEach(func(k, v []byte) error {
			_, _ = h.Write(k)
			_, _ = h.Write(v)
			if !bytes.Equal(name, keyBucket) {
				return nil
			}
			if len(k) < 8 {
				return fmt.Errorf("a revision has %d bytes", len(k))
			}
			s.Revision = int64(binary.BigEndian.Uint64(k))
			key, err := keyOfRevision(v)
			switch {
			case err != nil:
				return err
			case len(k) > revisionBytes: // the key was deleted
				delete(there, key)
			case key != "":
				there[key] = struct{}{}
			}
			return nil
		})
	})
	s.Hash, s.Keys = h.Sum32(), len(there)
	return err
}

// keyOfRevision returns the key of a revision.
func keyOfRevision(revision []byte) (string, error) {
	for len(revision) > 0 {
		number, kind, n := protowire.ConsumeTag(revision)
		if n < 0 {
			return "", fmt.Errorf("a revision cannot be read: %w", protowire.ParseError(n))
		}
		revision = revision[n:]
		if number == keyField && kind == protowire.BytesType {
			key, n := protowire.ConsumeBytes(revision)
			if n < 0 {
				return "", fmt.Errorf("the key of a revision cannot be read: %w", protowire.ParseError(n))
			}
			return string(key), nil
		}
		if n = protowire.ConsumeFieldValue(number, kind, revision); n < 0 {
			return "", fmt.Errorf("a revision cannot be read: %w", protowire.ParseError(n))
		}
		revision = revision[n:]
	}
	return "", nil
}
