//go:build linux

package etcd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"slipway.dev/slipway/internal/node/op"
)

// The types of records in etcd's write-ahead log.
const (
	WALMetadata = 1
	WALEntry    = 2
	WALState    = 3
	WALCRC      = 4
	WALSnapshot = 5
)

const (
	// WALSector is the number of bytes that a disk writes atomically.
	WALSector = 512
	// walFrame is the size of the header of a record.
	walFrame = 8
)

// A WALReader reads a log as etcd does.
type WALReader struct {
	is  op.EtcdRecovered
	crc uint32
	// self is the member's own ID; removed is the first entry that removes it from the
	// cluster, 0 if there is none.
	self, removed uint64
	// changed is the last entry that made the member a voter or a learner, 0 if there is
	// none.
	changed uint64
	learner bool
	// snapshots are the snapshots in the log from which etcd can start; the empty one of
	// a new member counts.
	snapshots []op.EtcdReach
	// terms are the terms of the entries, by their first entry.
	terms []walTerm
	// state is the latest state: the member's vote, and the last entry that it knows to
	// be committed.
	state WALHardState
	// names are the files; they were read from the first one, and the file at is intact
	// up to good, in bytes.
	names     []string
	first, at int
	good      int64
}

type walTerm struct{ first, term uint64 }

// WALHardState is the state that a member must not lose: its term, vote and commit index.
type WALHardState struct{ term, vote, commit uint64 }

// errTorn reports an incomplete record. In the last file it is the end of the log:
// nothing in it was acknowledged.
var errTorn = errors.New("a record is incomplete")

// endWithSnapshot removes the entry that removes the member itself, and all later ones,
// because an etcd that is forced to run alone would stop at it. etcd cannot use a damaged
// log without a snapshot to start from.
func (r *WALReader) endWithSnapshot() {
	if r.removed > 0 {
		if r.removed <= r.is.Commit && r.is.Damaged == "" {
			r.is.Damaged = fmt.Sprintf("entry %d removed the member from the cluster", r.removed)
		}
		r.is.Log = op.EtcdReach{Term: r.termOf(r.removed - 1), Index: r.removed - 1}
		r.is.Commit = min(r.is.Commit, r.removed-1)
	}
	if r.is.Damaged != "" && len(r.snapshots) == 0 {
		r.is.Log, r.is.Commit = op.EtcdReach{}, 0
	}
}

// termOf returns the term of an entry, 0 for one from before the start of the log.
func (r *WALReader) termOf(index uint64) (term uint64) {
	for _, t := range r.terms {
		if t.first <= index {
			term = t.term
		}
	}
	return term
}

// readFile reads one of the files, and returns where it is damaged.
func (r *WALReader) readFile(i int) {
	if size, err := r.readRecords(i); err != nil {
		r.is.Damaged = fmt.Sprintf("%s, from byte %d of %d: %v", filepath.Base(r.names[i]), r.good, size, err)
	}
}

// readRecords reads one of the files, of this size in bytes.
func (r *WALReader) readRecords(i int) (size int64, err error) {
	r.at, r.good = i, 0
	f, err := os.Open(r.names[i])
	if err != nil {
		return 0, unreadableReason(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, unreadableReason(err)
	}
	for in := bufio.NewReaderSize(f, 1<<20); ; {
		raw, size, err := walRecord(in, info.Size()-r.good)
		if err == nil && raw == nil {
			return info.Size(), nil
		}
		if err == nil {
			err = r.addRecord(raw[:size])
			if err != nil && isTorn(raw, r.good+walFrame) {
				err = errTorn
			}
		}
		switch {
		case errors.Is(err, errTorn) && i == len(r.names)-1:
			return info.Size(), nil
		case err != nil:
			return info.Size(), unreadableReason(err)
		}
		r.good += walFrame + int64(len(raw))
	}
}

// walRecord returns the next record with its padding, and its size; nil is the end of the
// written data. left is the rest of the file.
func walRecord(in io.Reader, left int64) (raw []byte, size int, err error) {
	var head [walFrame]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, 0, nil
		}
		return nil, 0, asTorn(err)
	}
	field := binary.LittleEndian.Uint64(head[:])
	if field == 0 { // preallocated for later records
		return nil, 0, nil
	}
	own, pad := int64(field&^(uint64(0xff)<<56)), int64(0)
	if field>>63 != 0 {
		pad = int64(field >> 56 & 7)
	}
	if own+pad > left-walFrame {
		return nil, 0, errTorn
	}
	raw = make([]byte, own+pad)
	if _, err := io.ReadFull(in, raw); err != nil {
		return nil, 0, asTorn(err)
	}
	return raw, int(own), nil
}

func asTorn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}

// isTorn reports whether a record at this offset of its file was interrupted by a power
// failure: one of its sectors still has the preallocated content.
func isTorn(raw []byte, offset int64) bool {
	for len(raw) > 0 {
		n := min(int(WALSector-offset%WALSector), len(raw))
		if !slices.ContainsFunc(raw[:n], func(b byte) bool { return b != 0 }) {
			return true
		}
		raw, offset = raw[n:], offset+int64(n)
	}
	return false
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// addRecord processes a record. Checksums continue from record to record, and from file to
// file.
func (r *WALReader) addRecord(raw []byte) error {
	outer, err := parseFields(raw)
	if err != nil {
		return err
	}
	sum := uint32(outer.number[2])
	if outer.number[1] == WALCRC {
		if r.crc != 0 && r.crc != sum {
			return errors.New("the file does not continue the previous WAL file")
		}
		r.crc = sum
		return nil
	}
	data := outer.bytes[3]
	is := crc32.Update(r.crc, castagnoli, data)
	if is != sum {
		return errors.New("a record is corrupt")
	}
	inner, err := parseFields(data)
	if err != nil {
		return err
	}
	r.crc = is
	switch n := inner.number; outer.number[1] {
	case WALMetadata:
		if r.self|r.is.Cluster != 0 && (r.self != n[1] || r.is.Cluster != n[2]) {
			return errors.New("the file belongs to a different member than the previous WAL file")
		}
		r.self, r.is.Cluster = n[1], n[2]
	case WALEntry:
		return r.addEntry(inner)
	case WALState:
		r.state = WALHardState{n[1], n[2], n[3]}
		r.is.Commit = max(r.is.Commit, n[3])
	case WALSnapshot:
		r.addSnapshot(n[1], n[2])
	}
	return nil
}

// The types of membership changes.
const (
	changeVoter   = 0
	changeRemove  = 1
	changeLearner = 3
	// entryChange is an entry with a membership change.
	entryChange = 1
)

// addEntry replaces all entries from its index on.
func (r *WALReader) addEntry(f fieldsOf) error {
	term, index := f.number[2], f.number[3]
	if index > r.is.Log.Index+1 { // the entries in between are missing
		r.terms = nil
	}
	for len(r.terms) > 0 && r.terms[len(r.terms)-1].first >= index {
		r.terms = r.terms[:len(r.terms)-1]
	}
	if len(r.terms) == 0 || r.terms[len(r.terms)-1].term != term {
		r.terms = append(r.terms, walTerm{index, term})
	}
	r.is.Log = op.EtcdReach{Term: term, Index: index}
	if r.removed >= index {
		r.removed = 0
	}
	if r.changed >= index {
		r.changed = 0
	}
	if f.number[1] != entryChange {
		return nil
	}
	c, err := parseFields(f.bytes[4])
	if err != nil || c.number[3] != r.self {
		return err
	}
	switch c.number[2] {
	case changeRemove:
		if r.removed == 0 {
			r.removed = index
		}
	case changeVoter, changeLearner:
		r.changed, r.learner = index, c.number[2] == changeLearner
	}
	return nil
}

// addSnapshot restarts the log if the snapshot belongs to another one, with other or more
// entries. The earlier part is then not continued.
func (r *WALReader) addSnapshot(index, term uint64) {
	r.snapshots = append(r.snapshots, op.EtcdReach{Term: term, Index: index})
	if index == 0 { // of a new member
		return
	}
	if index <= r.is.Log.Index && (index < r.terms[0].first || r.termOf(index) == term) {
		return // its own
	}
	r.is.Log, r.is.Commit = op.EtcdReach{Term: term, Index: index}, max(r.is.Commit, index)
	r.terms = []walTerm{{index, term}}
	r.removed, r.changed = 0, 0
}

// encodeNext returns the record after the records that were read and created.
func (r *WALReader) encodeNext(kind uint64, data []byte) []byte {
	r.crc = crc32.Update(r.crc, castagnoli, data)
	rec := withBytes(encodeNumbers(kind, uint64(r.crc)), 3, data)
	size := uint64(len(rec))
	pad := (walFrame - size%walFrame) % walFrame
	if pad > 0 {
		size |= (0x80 | pad) << 56
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, size), rec...), make([]byte, pad)...)
}

// encodeNumbers returns a message with numbers: fields 1, 2, ….
func encodeNumbers(all ...uint64) (out []byte) {
	for i, v := range all {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(i+1)<<3), v)
	}
	return out
}

// withBytes returns a message with one more field.
func withBytes(message []byte, field int, data []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(message, uint64(field)<<3|2), uint64(len(data))), data...)
}

// fieldsOf returns the fields of a protocol buffers message by number: the numeric fields
// and the byte fields.
type fieldsOf struct {
	number map[int]uint64
	bytes  map[int][]byte
}

var errMessage = errors.New("a record cannot be read")

func parseFields(raw []byte) (fieldsOf, error) {
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
