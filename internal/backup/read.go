package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"filippo.io/age"

	"slipway.dev/slipway/internal/bounded"
)

// sealed is the beginning of every file that age has encrypted.
const sealed = "age-encryption.org/"

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
	t, err := openTar(f, ids)
	if err != nil {
		return nil, err
	}
	return readHeader(t)
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
	t, err := openTar(f, ids)
	if err != nil {
		return nil, nil, err
	}
	set, err := readHeader(t)
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
		if err := readMember(t, want, to); err != nil {
			return nil, nil, err
		}
		if want.Name != SnapshotName {
			small = append(small, Content{Name: want.Name, Data: kept.Bytes()})
		}
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return nil, nil, newError(Damaged, "the set has data after its end")
	}
	return set, small, nil
}

// openTar returns the tar in a file, decrypted if it is encrypted.
func openTar(f *os.File, ids []age.Identity) (*tar.Reader, error) {
	r := bufio.NewReader(f)
	start, err := r.Peek(len(sealed))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(start) != sealed {
		return tar.NewReader(r), nil
	}
	if len(ids) == 0 {
		return nil, newError(Encrypted, "the set is encrypted")
	}
	plain, err := age.Decrypt(r, ids...)
	var other *age.NoIdentityMatchError
	switch {
	case errors.As(err, &other):
		return nil, newError(Encrypted, "the set is encrypted for another key")
	case err != nil:
		return nil, newError(Damaged, "the set's encryption is damaged: %v", err)
	}
	return tar.NewReader(plain), nil
}

// readHeader reads the header, which is the first member.
func readHeader(t *tar.Reader) (*Set, error) {
	h, err := t.Next()
	if err != nil || h.Name != manifestName || h.Size > maxManifest {
		return nil, newError(Unknown, "this is not a backup set, or its beginning is damaged")
	}
	raw, err := bounded.ReadAll(t, maxManifest)
	if err != nil {
		return nil, newError(Damaged, "the set is incomplete or damaged in its header")
	}
	set := &Set{}
	if err := json.Unmarshal(raw, set); err != nil {
		return nil, newError(Damaged, "the header of the set cannot be read: %v", err)
	}
	if set.Format < format || set.Format > signedKeysOnly {
		return nil, newError(Unknown, "the set has format %d, but this program reads formats %d to %d", set.Format, format, signedKeysOnly)
	}
	if set.isSigned() {
		if set.Signature, err = readSignature(t, raw); err != nil {
			return nil, err
		}
	}
	return set, set.checkHeader()
}

// readSignature reads the second member of a signed set.
func readSignature(t *tar.Reader, head []byte) (*Signature, error) {
	h, err := t.Next()
	if err != nil || h.Name != signatureName || h.Size != ed25519.SignatureSize || h.Typeflag != tar.TypeReg {
		return nil, newError(Damaged, "the set has no signature, although its header announces one")
	}
	value, err := bounded.ReadAll(t, ed25519.SignatureSize)
	if err != nil {
		return nil, newError(Damaged, "the signature of the set is incomplete or damaged")
	}
	return &Signature{Head: head, Value: value}, nil
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

// readMember reads the next member, which must be the expected one.
func readMember(t *tar.Reader, want File, to io.Writer) error {
	h, err := t.Next()
	if err != nil {
		return newError(Damaged, "the set is incomplete or damaged before %s", want.Name)
	}
	if h.Name != want.Name || h.Size != want.Bytes || h.Typeflag != tar.TypeReg {
		return newError(Damaged, "the set has %.80q (%d bytes) instead of %s (%d bytes)", h.Name, h.Size, want.Name, want.Bytes)
	}
	out := &checksumWriter{w: to, sum: sha256.New()}
	_, err = io.Copy(out, t)
	switch {
	case out.err != nil:
		return fmt.Errorf("unpacking %s: %w", want.Name, out.err)
	case err != nil:
		return newError(Damaged, "the set is incomplete or damaged within %s", want.Name)
	case hex.EncodeToString(out.sum.Sum(nil)) != want.SHA256:
		return newError(Damaged, "%s in the set has changed since it was written", want.Name)
	}
	return nil
}

// checksumWriter computes the checksum of the written data and keeps a write error.
type checksumWriter struct {
	w   io.Writer
	sum hash.Hash
	err error
}

func (c *checksumWriter) Write(p []byte) (int, error) {
	_, _ = c.sum.Write(p) // never fails
	n, err := c.w.Write(p)
	c.err = err
	return n, err
}
