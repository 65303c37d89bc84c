//go:build linux

package etcd

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

// The types of pages in an etcd database (bbolt), by their flags.
const (
	dbBranch = 1
	dbLeaf   = 2
)

const (
	// dbMagic is the start of a database, dbVersion its format.
	dbMagic   = 0xED0CDAED
	dbVersion = 2
	// databasePageHead, dbElement and dbBucket are the sizes of the headers of a page, of a
	// list element, and of a bucket, in bytes.
	databasePageHead = 16
	dbElement        = 16
	dbBucket         = 16
	// databaseMetaBytes is the part of a meta page that its checksum covers.
	databaseMetaBytes = 56
	// dbDepth and dbPageMost limit what is read from a damaged database.
	dbDepth    = 32
	dbPageMost = 1 << 16
	// dbTries limits how often a database is read again that is written meanwhile.
	dbTries = 5
)

// appliedTo reads how far the database of a member reaches: the term and the index of the
// last log entry in it. It can be in use: it is read again if it was written meanwhile.
// damaged is the reason why it cannot be read.
func appliedTo(data string) (to op.EtcdReach, damaged string, err error) {
	f, err := os.Open(databaseOf(data))
	if err != nil {
		return to, "", err
	}
	defer f.Close()
	for range dbTries {
		var was, is dbReader
		if was, err = openDB(f); err == nil {
			to, err = was.lastApplied()
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

// databaseOf returns the database file in a data directory.
func databaseOf(data string) string { return filepath.Join(data, "member", "snap", "db") }

// A dbReader reads a database in the state of its latest completed transaction. The next
// transaction does not overwrite its pages.
type dbReader struct {
	from     io.ReaderAt
	pageSize int64
	root     uint64 // the root page
	pages    uint64 // the number of pages: no page has a higher number
	txid     uint64
}

// openDB finds the latest transaction, in one of two meta pages.
func openDB(from io.ReaderAt) (d dbReader, err error) {
	err = errors.New("it does not start with a database header")
	for size := int64(1 << 10); size <= dbPageMost; size <<= 1 {
		for _, at := range []int64{0, size} {
			raw := make([]byte, databaseMetaBytes+8)
			if _, err := from.ReadAt(raw, at+databasePageHead); err != nil && !errors.Is(err, io.EOF) {
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
		err = d.requireAllPages()
	}
	return d, err
}

// requireAllPages rejects a database that ends before its last page: the file grows
// before a transaction records more pages.
func (d dbReader) requireAllPages() error {
	if d.pages == 0 || d.pages > 1<<40 {
		return fmt.Errorf("its page count %d is not possible", d.pages)
	}
	_, err := d.from.ReadAt(make([]byte, 1), int64(d.pages)*d.pageSize-1)
	return cutOff(d.pages-1, err)
}

// dbMeta is one of the two meta pages.
func dbMeta(raw []byte) (d dbReader, ok bool) {
	sum := fnv.New64a()
	_, _ = sum.Write(raw[:databaseMetaBytes]) // it never fails
	word, long := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	d.pageSize, d.root, d.pages, d.txid = int64(word(raw[8:])), long(raw[16:]), long(raw[40:]), long(raw[48:])
	return d, word(raw) == dbMagic && word(raw[4:]) == dbVersion && long(raw[databaseMetaBytes:]) == sum.Sum64()
}

// learnerIn reports whether the member with an ID is a learner, and whether the database
// knows the member.
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
	raw, err := d.getValue("members", strconv.FormatUint(id, 16))
	var is struct{ IsLearner bool }
	if err != nil || len(raw) == 0 || json.Unmarshal(raw, &is) != nil {
		return false, false
	}
	return is.IsLearner, true
}

// getValue returns the value of a key in a bucket, nil if there is none.
func (d dbReader) getValue(bucket, key string) ([]byte, error) {
	raw, err := d.findInPage(d.root, nil, bucket, 0)
	if err != nil || len(raw) < dbBucket {
		return nil, err
	}
	return d.findInPage(binary.LittleEndian.Uint64(raw), raw[dbBucket:], key, 0)
}

// lastApplied returns the last log entry in the database.
func (d dbReader) lastApplied() (to op.EtcdReach, err error) {
	bucket, err := d.findInPage(d.root, nil, "meta", 0)
	if err != nil {
		return to, err
	}
	if len(bucket) < dbBucket {
		return to, errors.New("its last log entry is not recorded")
	}
	for key, number := range map[string]*uint64{"consistent_index": &to.Index, "term": &to.Term} {
		raw, err := d.getValue("meta", key)
		if err == nil && len(raw) != 0 && len(raw) != 8 { // a new one has none yet
			err = errors.New("its last log entry is not recorded")
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

// findInPage returns the value of a key below a page, nil if there is none. The page of a
// small bucket is inside the bucket: this is page 0.
func (d dbReader) findInPage(id uint64, page []byte, key string, depth int) (value []byte, err error) {
	if depth > dbDepth {
		return nil, errors.New("its pages form a loop")
	}
	if id != 0 {
		if page, err = d.readPage(id); err != nil {
			return nil, err
		}
	}
	bad := fmt.Errorf("page %d cannot be read", id)
	if len(page) < databasePageHead {
		return nil, bad
	}
	flags, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	if len(page) < databasePageHead+count*dbElement || flags != dbBranch && flags != dbLeaf {
		return nil, bad
	}
	var next uint64
	for i := range count {
		el := page[databasePageHead+i*dbElement:]
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
	return d.findInPage(next, nil, key, depth+1)
}

// readPage reads a page with its overflow pages.
func (d dbReader) readPage(id uint64) ([]byte, error) {
	head := make([]byte, databasePageHead)
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

// cutOff returns the error for a file that ends before a page.
func cutOff(id uint64, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("it ends before page %d", id)
	}
	return err
}
