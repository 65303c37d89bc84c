//go:build linux

package run

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"slipway.dev/slipway/internal/node/op"
)

// What a page of a database of etcd's (bbolt) is, by its flags.
const (
	dbBranch = 1
	dbLeaf   = 2
)

const (
	// dbMagic is what a database begins with, dbVersion its format.
	dbMagic   = 0xED0CDAED
	dbVersion = 2
	// dbPageHead, dbElement and dbBucket are the bytes before what a page holds,
	// those of the list of what it holds, and those before what a bucket holds.
	dbPageHead = 16
	dbElement  = 16
	dbBucket   = 16
	// dbMetaBytes is the beginning of a database that its checksum is over.
	dbMetaBytes = 56
	// dbDepth and dbPageMost bound what a damaged database leads to.
	dbDepth    = 32
	dbPageMost = 1 << 16
	// dbTries are how often a database is read that is written to meanwhile.
	dbTries = 5
)

// appliedTo reads how far the database of a member goes: the term and the index of
// the last entry of the log that is in it. It may be in use: it is read again if it
// was written to meanwhile. damaged is why it cannot be read.
func appliedTo(data string) (to op.EtcdReach, damaged string, err error) {
	f, err := os.Open(databaseOf(data))
	if err != nil {
		return to, "", err
	}
	defer f.Close()
	for range dbTries {
		var was, is dbReader
		if was, err = openDB(f); err == nil {
			to, err = was.applied()
		}
		if is, _ = openDB(f); is.txid == was.txid {
			break
		}
	}
	var disk *fs.PathError
	if err == nil || errors.As(err, &disk) {
		return to, "", err
	}
	return op.EtcdReach{}, "the database cannot be read: " + err.Error(), nil
}

// databaseOf is the file of the database in a data directory.
func databaseOf(data string) string { return filepath.Join(data, "member", "snap", "db") }

// A dbReader reads a database as it was when its latest transaction had ended. Pages
// are not written over by the next one.
type dbReader struct {
	from     io.ReaderAt
	pageSize int64
	root     uint64 // the page that all begins at
	pages    uint64 // so many there are: none has a higher number
	txid     uint64
}

// openDB finds the latest transaction: there are two places for it, each a page.
func openDB(from io.ReaderAt) (d dbReader, err error) {
	err = errors.New("it does not start with a database header")
	for size := int64(1 << 10); size <= dbPageMost; size <<= 1 {
		for _, at := range []int64{0, size} {
			raw := make([]byte, dbMetaBytes+8)
			if _, err := from.ReadAt(raw, at+dbPageHead); err != nil && !errors.Is(err, io.EOF) {
				return d, err
			}
			is, ok := dbMeta(raw)
			if ok && is.pageSize == size && is.txid >= d.txid {
				is.from = from
				d, err = is, nil
			}
		}
	}
	if err == nil {
		err = d.whole()
	}
	return d, err
}

// whole refuses a database that ends before its last page: the file is made larger
// before a transaction says that there are more of them.
func (d dbReader) whole() error {
	if d.pages == 0 || d.pages > 1<<40 {
		return fmt.Errorf("its page count %d is not possible", d.pages)
	}
	_, err := d.from.ReadAt(make([]byte, 1), int64(d.pages)*d.pageSize-1)
	return cutOff(d.pages-1, err)
}

// dbMeta is what a database says of itself in one of the two places.
func dbMeta(raw []byte) (d dbReader, ok bool) {
	sum := fnv.New64a()
	_, _ = sum.Write(raw[:dbMetaBytes]) // it never fails
	word, long := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	d.pageSize, d.root, d.pages, d.txid = int64(word(raw[8:])), long(raw[16:]), long(raw[40:]), long(raw[48:])
	return d, word(raw) == dbMagic && word(raw[4:]) == dbVersion && long(raw[dbMetaBytes:]) == sum.Sum64()
}

// learnerIn says whether a member is a learner, by its id, and whether the database
// knows of it.
func learnerIn(data string, id uint64) (learner, known bool) {
	f, err := os.Open(databaseOf(data))
	if err != nil {
		return false, false
	}
	defer f.Close()
	d, err := openDB(f)
	if err != nil {
		return false, false
	}
	raw, err := d.value("members", strconv.FormatUint(id, 16))
	var is struct{ IsLearner bool }
	if err != nil || len(raw) == 0 || json.Unmarshal(raw, &is) != nil {
		return false, false
	}
	return is.IsLearner, true
}

// value is what a bucket has at a key, nil if there is nothing.
func (d dbReader) value(bucket, key string) ([]byte, error) {
	raw, err := d.find(d.root, nil, bucket, 0)
	if err != nil || len(raw) < dbBucket {
		return nil, err
	}
	return d.find(binary.LittleEndian.Uint64(raw), raw[dbBucket:], key, 0)
}

// applied is up to which entry of the log the database goes.
func (d dbReader) applied() (to op.EtcdReach, err error) {
	bucket, err := d.find(d.root, nil, "meta", 0)
	if err != nil {
		return to, err
	}
	if len(bucket) < dbBucket {
		return to, errors.New("its size is not recorded")
	}
	for key, number := range map[string]*uint64{"consistent_index": &to.Index, "term": &to.Term} {
		raw, err := d.value("meta", key)
		if err == nil && len(raw) != 0 && len(raw) != 8 { // one that is new has none yet
			err = errors.New("its size is not recorded")
		}
		if err != nil {
			return op.EtcdReach{}, err
		}
		if len(raw) == 8 {
			*number = binary.BigEndian.Uint64(raw)
		}
	}
	return to, nil
}

// find is what stands at a key below a page, nil if there is nothing. A small
// bucket has its page within it: page 0 is that.
func (d dbReader) find(id uint64, page []byte, key string, depth int) (value []byte, err error) {
	if depth > dbDepth {
		return nil, errors.New("its pages form a loop")
	}
	if id != 0 {
		if page, err = d.page(id); err != nil {
			return nil, err
		}
	}
	bad := fmt.Errorf("page %d cannot be read", id)
	if len(page) < dbPageHead {
		return nil, bad
	}
	flags, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	if len(page) < dbPageHead+count*dbElement || flags != dbBranch && flags != dbLeaf {
		return nil, bad
	}
	var next uint64
	for i := range count {
		el := page[dbPageHead+i*dbElement:]
		word := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(el[at:])) }
		at, own, size := word(0), word(4), uint64(0)
		if flags == dbLeaf {
			at, own, size = word(4), word(8), word(12)
		}
		if at+own+size > uint64(len(el)) {
			return nil, bad
		}
		is := bytes.Compare(el[at:at+own], []byte(key))
		switch {
		case flags == dbLeaf && is == 0:
			return el[at+own : at+own+size], nil
		case flags == dbBranch && (is <= 0 || i == 0):
			next = binary.LittleEndian.Uint64(el[8:])
		}
	}
	if flags == dbLeaf {
		return nil, nil
	}
	if next == 0 {
		return nil, bad
	}
	return d.find(next, nil, key, depth+1)
}

// page reads a page, with those that it runs on in.
func (d dbReader) page(id uint64) ([]byte, error) {
	head := make([]byte, dbPageHead)
	at := int64(id) * d.pageSize
	if id >= d.pages {
		return nil, fmt.Errorf("page %d cannot be read", id)
	}
	if _, err := d.from.ReadAt(head, at); err != nil {
		return nil, cutOff(id, err)
	}
	more := int64(binary.LittleEndian.Uint32(head[12:]))
	if binary.LittleEndian.Uint64(head) != id || more > 1<<10 {
		return nil, fmt.Errorf("page %d cannot be read", id)
	}
	raw := make([]byte, (1+more)*d.pageSize)
	if _, err := d.from.ReadAt(raw, at); err != nil {
		return nil, cutOff(id, err)
	}
	return raw, nil
}

// cutOff is a file that ends before a page does.
func cutOff(id uint64, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("it ends before page %d", id)
	}
	return err
}
