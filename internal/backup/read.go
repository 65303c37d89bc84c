package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"

	"slipway.dev/slipway/internal/bounded"
)

// ReadIdentities returns the keys of a file that age-keygen wrote.
func ReadIdentities(file string) ([]age.Identity, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ids, err := age.ParseIdentities(f)
	if err != nil {
		return nil, fmt.Errorf("%s does not contain an age key", file)
	}
	return ids, nil
}

// ReadHeader returns the header of a set. It does not check the rest of the set.
func ReadHeader(file string, ids []age.Identity) (*Set, error) {
	f, err := bounded.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := clusterForm().NewReader(f, ids)
	if err != nil {
		return nil, err
	}
	return readHeader(r)
}

// Inspect returns the header of a set that is not encrypted, nil for an encrypted set. It
// returns an *Error with the header if the rest of the set is incomplete: see CheckComplete.
func Inspect(file string) (*Set, error) {
	set, err := ReadHeader(file, nil)
	var e *Error
	switch {
	case errors.As(err, &e) && e.Reason == Encrypted:
		return nil, CheckComplete(file, clusterForm(), nil)
	case err != nil:
		return nil, err
	}
	return set, CheckComplete(file, clusterForm(), set.Files)
}

// Read reads a whole set. It writes the snapshot to a writer, and returns the header and
// the other files. It returns an *Error if any byte differs from what was written. accept
// is called with the header before anything else is read; if it returns an error, Read
// stops. A nil accept accepts any set.
func Read(file string, ids []age.Identity, snapshot io.Writer, accept func(*Set) error) (*Set, []Content, error) {
	f, err := bounded.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	r, err := clusterForm().NewReader(f, ids)
	if err != nil {
		return nil, nil, err
	}
	set, err := readHeader(r)
	if err == nil && accept != nil {
		err = accept(set)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := set.checkSize(info.Size()); err != nil {
		return nil, nil, err
	}
	small := []Content{}
	for _, want := range set.Files {
		var kept bytes.Buffer
		to := io.Writer(&kept)
		if want.Name == SnapshotName {
			to = snapshot
		}
		if err := r.ReadMember(want, to); err != nil {
			return nil, nil, err
		}
		if want.Name != SnapshotName {
			small = append(small, Content{Name: want.Name, Data: kept.Bytes()})
		}
	}
	if err := r.ReadEnd(); err != nil {
		return nil, nil, err
	}
	return set, small, nil
}

// readHeader reads the header and its signature.
func readHeader(r *Reader) (*Set, error) {
	raw, err := r.ReadHeader()
	if err != nil {
		return nil, err
	}
	set := &Set{}
	if err := json.Unmarshal(raw, set); err != nil {
		return nil, newError(Damaged, "the header of the set cannot be read: %v", err)
	}
	if set.Format < format || set.Format > signedKeysOnly {
		return nil, newError(Unknown, "the set has format %d, but this program reads formats %d to %d", set.Format, format, signedKeysOnly)
	}
	if set.isSigned() {
		if set.Signature, err = r.ReadSignature(raw); err != nil {
			return nil, err
		}
	}
	return set, set.checkHeader()
}

// checkHeader refuses a header that Write would not write.
func (s *Set) checkHeader() error {
	if len(s.Files) > maxFiles {
		return newError(Damaged, "the header of the set lists %d files", len(s.Files))
	}
	snapshots, want := 0, 1
	if s.KeysOnly() {
		want = 0
	}
	for _, f := range s.Files {
		switch {
		case !isLocalName(f.Name), f.Bytes < 0:
			return newError(Damaged, "the header of the set lists a file %.80q of %d bytes", f.Name, f.Bytes)
		case f.Name == SnapshotName:
			snapshots++
			if f.Bytes != s.Snapshot.Bytes || f.SHA256 != s.Snapshot.SHA256 {
				return newError(Damaged, "the header of the set describes its snapshot in two different ways")
			}
		case f.Bytes > maxFile:
			return newError(Damaged, "the header of the set lists a file %.80q of %d bytes", f.Name, f.Bytes)
		}
	}
	if snapshots != want {
		return newError(Damaged, "the header of the set lists %d snapshots", snapshots)
	}
	return nil
}

// checkSize refuses a set whose header lists more bytes than its file has: such data could
// be compressed zeros that fill a disk.
func (s *Set) checkSize(bytes int64) error {
	left := bytes
	for _, f := range s.Files {
		if left -= f.Bytes; left < 0 {
			return newError(Damaged, "the header of the set lists more than the %d bytes of its file", bytes)
		}
	}
	return nil
}
