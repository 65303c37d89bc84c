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
	walMetadata = 1
	walEntry    = 2
	walState    = 3
	walCRC      = 4
	walSnapshot = 5
)

const (
	// walSector is what a disk writes whole or not at all, in bytes.
	walSector = 512
	// walFrame is what stands before a record: its size.
	walFrame = 8
)

// etcdReach reads how far the data of a member go, and how much room they take. The
// log is what a member votes by: its database may be a while behind, unless the
// log is damaged.
func etcdReach(data string) (op.EtcdSalvaged, error) {
	to, damaged, err := appliedTo(data) // first: the log of one that runs is ahead of it
	r, lerr := readWAL(data)
	if lerr != nil {
		return r.is, lerr
	}
	r.is.Database, r.is.DatabaseDamaged = to, damaged
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && len(r.names) > 0:
		r.is.DatabaseDamaged = "there is no database"
	case err == nil && len(r.names) == 0:
		r.is.Damaged = "there is no log"
	case err != nil && !missing:
		return r.is, err
	}
	return r.is, filepath.WalkDir(filepath.Join(data, "member"), func(_ string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // there are none, or etcd has just removed it
		case err != nil || e.IsDir():
			return err
		}
		info, err := e.Info()
		if err == nil {
			r.is.Bytes += info.Size()
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
}

// A walReader reads a log as etcd does.
type walReader struct {
	is  op.EtcdSalvaged
	crc uint32
	// self is the member's own id; removed is the first entry, 0 if there is none,
	// that takes it out of the cluster.
	self, removed uint64
	// begins says that there is a snapshot with which etcd begins: the empty one of a
	// member that is new is one, too.
	begins bool
	// terms are those of the entries, by the first one that has them.
	terms []walTerm
	// state is the latest that says whom the member has voted for, and up to where
	// it knows the log to be agreed upon.
	state walHardState
	// names are the files; up to good, in bytes, the one at is whole.
	names []string
	at    int
	good  int64
}

type walTerm struct{ first, term uint64 }

type walHardState struct{ term, vote, commit uint64 }

// errTorn is a record that was not written to its end. In the last file it is the
// end of the log: nothing was acknowledged by it.
var errTorn = errors.New("a record was not written to its end")

// readWAL reads the log in a data directory up to its end, or to where it is
// damaged.
func readWAL(data string) (r *walReader, err error) {
	r = &walReader{}
	if r.names, err = filepath.Glob(filepath.Join(data, "member", "wal", "*.wal")); err != nil {
		return r, err
	}
	slices.Sort(r.names) // by number
	for i := range r.names {
		if err := r.file(i); err != nil {
			return r, err
		}
		if r.is.Damaged != "" {
			break
		}
	}
	// Each file says whose it is, whatever is left of those before.
	for i := r.at + 1; i < len(r.names) && r.is.Cluster == 0; i++ {
		other := walReader{names: r.names}
		if err := other.file(i); err != nil {
			return r, err
		}
		r.is.Cluster = other.is.Cluster
	}
	r.end()
	return r, nil
}

// end leaves out what takes the member itself out of the cluster, and all that
// comes after it: an etcd that is forced to go on alone would end by it. A damaged
// log in which no snapshot was begun at is none for etcd.
func (r *walReader) end() {
	if r.removed > 0 {
		if r.removed <= r.is.Commit && r.is.Damaged == "" {
			r.is.Damaged = fmt.Sprintf("by entry %d the member was taken out of the cluster", r.removed)
		}
		r.is.Log = op.EtcdReach{Term: r.termOf(r.removed - 1), Index: r.removed - 1}
		r.is.Commit = min(r.is.Commit, r.removed-1)
	}
	if r.is.Damaged != "" && !r.begins {
		r.is.Log, r.is.Commit = op.EtcdReach{}, 0
	}
}

// termOf is the term of an entry, 0 of one from before the log begins.
func (r *walReader) termOf(index uint64) (term uint64) {
	for _, t := range r.terms {
		if t.first <= index {
			term = t.term
		}
	}
	return term
}

func (r *walReader) file(i int) error {
	f, err := os.Open(r.names[i])
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(f, 1<<20)
	for r.at, r.good = i, 0; ; {
		raw, size, err := walRecord(in, info.Size()-r.good)
		if err == nil && raw == nil {
			return nil
		}
		if err == nil {
			err = r.record(raw[:size])
			if err != nil && torn(raw, r.good+walFrame) {
				err = errTorn
			}
		}
		var disk *fs.PathError
		switch {
		case errors.As(err, &disk):
			return err
		case errors.Is(err, errTorn) && i == len(r.names)-1:
			return nil
		case err != nil:
			r.is.Damaged = fmt.Sprintf("%s, from byte %d of %d: %v", filepath.Base(r.names[i]), r.good, info.Size(), err)
			return nil
		}
		r.good += walFrame + int64(len(raw))
	}
}

// walRecord is the next record with what fills it up, and its own size; nil is the
// end of what was written. So much is left of the file.
func walRecord(in io.Reader, left int64) (raw []byte, size int, err error) {
	var head [walFrame]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, 0, nil
		}
		return nil, 0, asTorn(err)
	}
	field := binary.LittleEndian.Uint64(head[:])
	if field == 0 { // set aside for what is to come
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

// torn says that a record that begins at some offset of its file was cut off when
// the power was: a sector of it is what the file was filled with before.
func torn(raw []byte, offset int64) bool {
	for len(raw) > 0 {
		n := min(int(walSector-offset%walSector), len(raw))
		if !slices.ContainsFunc(raw[:n], func(b byte) bool { return b != 0 }) {
			return true
		}
		raw, offset = raw[n:], offset+int64(n)
	}
	return false
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
		if r.crc != 0 && r.crc != sum {
			return errors.New("it does not go on from the file before")
		}
		r.crc = sum
		return nil
	}
	data := outer.bytes[3]
	is := crc32.Update(r.crc, castagnoli, data)
	if is != sum {
		return errors.New("a record is not what was written")
	}
	inner, err := fields(data)
	if err != nil {
		return err
	}
	r.crc = is
	switch n := inner.number; outer.number[1] {
	case walMetadata:
		r.self, r.is.Cluster = n[1], n[2]
	case walEntry:
		return r.entry(inner)
	case walState:
		r.state = walHardState{n[1], n[2], n[3]}
		r.is.Commit = max(r.is.Commit, n[3])
	case walSnapshot:
		r.snapshot(n[1], n[2])
	}
	return nil
}

// entry takes the place of all entries from its index on.
func (r *walReader) entry(f fieldsOf) error {
	const change, remove = 1, 1
	term, index := f.number[2], f.number[3]
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
	if f.number[1] != change || r.removed != 0 {
		return nil
	}
	c, err := fields(f.bytes[4])
	if err == nil && c.number[2] == remove && c.number[3] == r.self {
		r.removed = index
	}
	return err
}

// snapshot begins the log anew if it is another's: that has other entries, or
// more. What there was before is not followed by what comes.
func (r *walReader) snapshot(index, term uint64) {
	r.begins = true
	if index == 0 { // of a member that is new
		return
	}
	if index <= r.is.Log.Index && (index < r.terms[0].first || r.termOf(index) == term) {
		return // its own
	}
	r.is.Log, r.is.Commit = op.EtcdReach{Term: term, Index: index}, max(r.is.Commit, index)
	r.terms = []walTerm{{index, term}}
	r.removed = 0
}

// agreeUpon has the log in a copy of a member's data say that all of it is agreed
// upon. Etcd that is forced to go on alone leaves out what a member does not know
// to be: but that is told to it later than to the client, and the others can not
// be asked any more. What is torn or damaged at the end is cut off; that an entry
// was acknowledged which is not, never.
func agreeUpon(data string) error {
	r, err := readWAL(data)
	if err != nil || r.is.Log.Index == 0 {
		return err
	}
	to := walHardState{max(r.state.term, r.is.Log.Term), 0, r.is.Log.Index}
	if to.term == r.state.term {
		to.vote = r.state.vote
	}
	for _, name := range r.names[r.at+1:] { // after what is damaged
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(r.names[r.at], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(r.good)
	if err == nil {
		_, err = f.WriteAt(r.next(walState, numbered(to.term, to.vote, to.commit)), r.good)
	}
	return errors.Join(err, f.Close())
}

// next is the record that comes after those that were read.
func (r *walReader) next(kind uint64, data []byte) []byte {
	rec := numbered(kind, uint64(crc32.Update(r.crc, castagnoli, data)))
	rec = append(binary.AppendUvarint(append(rec, 3<<3|2), uint64(len(data))), data...)
	size := uint64(len(rec))
	pad := (walFrame - size%walFrame) % walFrame
	if pad > 0 {
		size |= (0x80 | pad) << 56
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, size), rec...), make([]byte, pad)...)
}

// numbered is a message of numbers: fields 1, 2, ….
func numbered(all ...uint64) (out []byte) {
	for i, v := range all {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(i+1)<<3), v)
	}
	return out
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
