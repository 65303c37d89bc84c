package controlplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// lockTime limits the wait for the lock of the database file.
const lockTime = 5 * time.Second

// checkDatabase returns an error for a database that etcd cannot use, or with which it would
// lose writes:
//
//   - The database file is truncated. etcd would end the process when it reads a lost part.
//   - The log has lost its end. etcd would give the lost numbers to new writes, and skip these
//     writes, because the database file has these numbers already.
//
// A log that ends in the middle of a record is normal after a crash.
func checkDatabase(dir string) error {
	applied, err := readApplied(databaseFile(dir))
	if err != nil || applied == 0 {
		return err
	}
	last, err := readLastEntry(filepath.Join(dir, "member", "wal"))
	if err != nil {
		return fmt.Errorf("reading the log of the database: %w", err)
	}
	if last < applied {
		return fmt.Errorf("the log of the database has lost its end: it has %d entries, but %d are in the database", last, applied)
	}
	return nil
}

// readApplied returns the number of the last log entry that a database file contains, 0 for a
// missing or empty file, which etcd fills from its log.
func readApplied(path string) (applied uint64, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil || info.Size() == 0 { // it is empty if the first start was killed
		return 0, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // reading a truncated file is a fault
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%s is damaged: %v", path, problem)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockTime})
	if err != nil {
		return 0, fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("%s is truncated: it has %d of %d bytes", path, info.Size(), tx.Size())
		}
		if bucket := tx.Bucket([]byte("meta")); bucket != nil {
			if value := bucket.Get([]byte("consistent_index")); len(value) == 8 {
				applied = binary.BigEndian.Uint64(value)
			}
		}
		return nil
	})
	return applied, err
}

// readLastEntry returns the number of the last entry in a directory with the log of etcd.
func readLastEntry(dir string) (last uint64, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		return 0, err
	}
	var readers []fileutil.FileReader
	for _, path := range paths { // they are sorted
		f, err := os.Open(path)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		readers = append(readers, fileutil.NewFileReader(f))
	}
	decoder := wal.NewDecoder(readers...)
	for {
		record := &walpb.Record{}
		err := decoder.Decode(record)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return last, nil
		}
		if err != nil {
			return 0, err
		}
		switch record.GetType() {
		case wal.CrcType:
			decoder.UpdateCRC(record.GetCrc())
		case wal.EntryType:
			last = wal.MustUnmarshalEntry(record.GetData()).GetIndex()
		case wal.SnapshotType:
			snapshot := &walpb.Snapshot{}
			if err := proto.Unmarshal(record.GetData(), snapshot); err != nil {
				return 0, err
			}
			last = max(last, snapshot.GetIndex())
		}
	}
}
