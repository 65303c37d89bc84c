//go:build linux

package run

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"slipway.dev/slipway/internal/node/op"
)

// What records of etcd's write-ahead log hold, by their type.
const (
	walEntry    = 2
	walState    = 3
	walCRC      = 4
	walSnapshot = 5
)

// maxRecord bounds a record, in bytes: etcd takes requests of a few MiB.
const maxRecord = 256 << 20

// etcdLog reads how far the log of a member goes. It is what a member votes by:
// its database may be a while behind. A log that is being written ends in the
// middle of a record, or in zeros; that is its end.
func etcdLog(data string) (is op.EtcdSalvaged, err error) {
	files, err := filepath.Glob(filepath.Join(data, "member", "wal", "*.wal"))
	if err != nil {
		return is, err
	}
	slices.Sort(files) // by number
	r := walReader{is: &is}
	for _, name := range files {
		if err := r.file(name); err != nil {
			return is, err
		}
		if is.Damaged != "" {
			break
		}
	}
	return is, filepath.WalkDir(filepath.Join(data, "member"), func(_ string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // there are none, or etcd has just removed it
		case err != nil || e.IsDir():
			return err
		}
		info, err := e.Info()
		if err == nil {
			is.Bytes += info.Size()
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
}

type walReader struct {
	is  *op.EtcdSalvaged
	crc uint32
}

func (r *walReader) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	for {
		raw, err := walRecord(in)
		if err != nil || raw == nil {
			return err
		}
		if err := r.record(raw); err != nil {
			r.is.Damaged = fmt.Sprintf("%s: %v", filepath.Base(name), err)
			return nil
		}
	}
}

// walRecord is the next record; nil is the end.
func walRecord(in io.Reader) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, atEnd(err)
	}
	field := binary.LittleEndian.Uint64(head[:])
	size, pad := field&^(uint64(0xff)<<56), uint64(0)
	if field>>63 != 0 {
		pad = field >> 56 & 7
	}
	if size == 0 || size > maxRecord { // zeros, or half a number
		return nil, nil
	}
	raw := make([]byte, size+pad)
	if _, err := io.ReadFull(in, raw); err != nil {
		return nil, atEnd(err)
	}
	return raw[:size], nil
}

func atEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record takes note of one. Checksums go on from record to record, and from file
// to file.
func (r *walReader) record(raw []byte) error {
	outer, err := fields(raw)
	if err != nil {
		return err
	}
	sum := uint32(outer.number[2])
	if outer.number[1] == walCRC {
		r.crc = sum
		return nil
	}
	data := outer.bytes[3]
	if r.crc = crc32.Update(r.crc, castagnoli, data); r.crc != sum {
		return errors.New("a record is not what was written")
	}
	inner, err := fields(data)
	if err != nil {
		return err
	}
	switch n := inner.number; outer.number[1] {
	case walEntry: // one that comes later takes the place of all after it
		r.is.Term, r.is.Index = n[2], n[3]
	case walState:
		r.is.Commit = n[3]
	case walSnapshot:
		if n[1] > r.is.Index {
			r.is.Index, r.is.Term = n[1], n[2]
		}
	}
	return nil
}

// fieldsOf are the fields of a message of protocol buffers, by number: those that
// are numbers, and those that are bytes.
type fieldsOf struct {
	number map[int]uint64
	bytes  map[int][]byte
}

var errMessage = errors.New("a record cannot be read")

func fields(raw []byte) (fieldsOf, error) {
	f := fieldsOf{map[int]uint64{}, map[int][]byte{}}
	for len(raw) > 0 {
		tag, n := binary.Uvarint(raw)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 64 {
			return f, errMessage
		}
		raw = raw[n:]
		v, n := binary.Uvarint(raw)
		if n <= 0 {
			return f, errMessage
		}
		raw = raw[n:]
		switch tag & 7 {
		case 0:
			f.number[int(tag>>3)] = v
		case 2:
			if v > uint64(len(raw)) {
				return f, errMessage
			}
			f.bytes[int(tag>>3)] = raw[:v]
			raw = raw[v:]
		default:
			return f, errMessage
		}
	}
	return f, nil
}
