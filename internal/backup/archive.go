package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/bounded"
)

// sealed is the beginning of every file that age has encrypted.
const sealed = "age-encryption.org/"

const (
	// block is the unit of tar, and ending is the size of the zeros at its end.
	block  = 512
	ending = 2 * block
)

// A Form has the names of the first two members in one kind of set: the header, and its
// signature. Packages with other kinds of sets have other forms, so that no kind is taken
// for another.
type Form struct{ Header, Signature string }

// clusterForm returns the form of the sets of clusters.
func clusterForm() Form { return Form{Header: manifestName, Signature: signatureName} }

// A Member is a file of a set and its content.
type Member struct {
	File
	Content io.Reader
}

// NewMember returns a member with a small content.
func NewMember(name string, data []byte) Member {
	return Member{
		File:    File{Name: name, Bytes: int64(len(data)), SHA256: digestOf(data)},
		Content: bytes.NewReader(data),
	}
}

// WriteSet writes a set to a stream: the header, its signature unless by has no signer, and
// the members. It returns the signature. A member whose content differs from its File is a
// *Error.
func (f Form) WriteSet(to io.Writer, head []byte, taken time.Time, members []Member, by Keys) (sig *Signature, err error) {
	w := io.WriteCloser(nopCloser{to})
	if len(by.Recipients) > 0 {
		if w, err = age.Encrypt(to, by.Recipients...); err != nil {
			return nil, fmt.Errorf("encrypting the set: %w", err)
		}
	}
	first := []Member{NewMember(f.Header, head)}
	if by.Signer != nil {
		sig = &Signature{Head: head, Value: by.Signer.signHeader(head)}
		first = append(first, NewMember(f.Signature, sig.Value))
	}
	t := tar.NewWriter(w)
	for _, m := range append(first, members...) {
		if err := addMember(t, taken, m); err != nil {
			return nil, err
		}
	}
	return sig, errors.Join(t.Close(), w.Close())
}

// addMember writes a member of a set.
func addMember(t *tar.Writer, taken time.Time, m Member) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: m.Name, Mode: 0o600, Size: m.Bytes, ModTime: taken, Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	is := sha256.New()
	n, err := io.Copy(t, io.TeeReader(m.Content, is))
	if err == nil && n != m.Bytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("writing %s of the set: %w", m.Name, err)
	}
	if hex.EncodeToString(is.Sum(nil)) != m.SHA256 {
		return newError(Damaged, "%s has changed since it was verified", m.Name)
	}
	return nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// A Reader reads a set from a stream, member by member. Its errors are a *Error if any byte
// differs from the written ones, and errors of writers.
type Reader struct {
	form  Form
	plain *countingReader
	tar   *tar.Reader
}

// NewReader returns a reader of a set, which is decrypted if it is encrypted.
func (f Form) NewReader(from io.Reader, ids []age.Identity) (*Reader, error) {
	r := bufio.NewReader(from)
	start, err := r.Peek(len(sealed))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	plain := io.Reader(r)
	if string(start) == sealed {
		if plain, err = decryptSet(r, ids); err != nil {
			return nil, err
		}
	}
	counted := &countingReader{from: plain}
	return &Reader{form: f, plain: counted, tar: tar.NewReader(counted)}, nil
}

// decryptSet returns the decrypted set.
func decryptSet(r io.Reader, ids []age.Identity) (io.Reader, error) {
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
	return plain, nil
}

// ReadHeader returns the header, which is the first member.
func (r *Reader) ReadHeader() ([]byte, error) {
	h, err := r.tar.Next()
	if err != nil || h.Name != r.form.Header || h.Size > maxManifest {
		return nil, newError(Unknown, "this is not a backup set, or its beginning is damaged")
	}
	head, err := bounded.ReadAll(r.tar, maxManifest)
	if err != nil {
		return nil, newError(Damaged, "the set is incomplete or damaged in its header")
	}
	return head, nil
}

// ReadSignature returns the signature of a header, which is the second member of a signed
// set.
func (r *Reader) ReadSignature(head []byte) (*Signature, error) {
	h, err := r.tar.Next()
	if err != nil || h.Name != r.form.Signature || h.Size != ed25519.SignatureSize || h.Typeflag != tar.TypeReg {
		return nil, newError(Damaged, "the set has no signature, although its header announces one")
	}
	value, err := bounded.ReadAll(r.tar, ed25519.SignatureSize)
	if err != nil {
		return nil, newError(Damaged, "the signature of the set is incomplete or damaged")
	}
	return &Signature{Head: head, Value: value}, nil
}

// ReadMember reads the next member, which must be the expected one. At most its expected
// bytes are written.
func (r *Reader) ReadMember(want File, to io.Writer) error {
	h, err := r.tar.Next()
	if err != nil {
		return newError(Damaged, "the set is incomplete or damaged before %s", want.Name)
	}
	if h.Name != want.Name || h.Size != want.Bytes || h.Typeflag != tar.TypeReg {
		return newError(Damaged, "the set has %.80q (%d bytes) instead of %s (%d bytes)", h.Name, h.Size, want.Name, want.Bytes)
	}
	out := &checksumWriter{w: to, sum: sha256.New()}
	_, err = io.Copy(out, r.tar)
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

// ReadEnd returns an error unless the set ends after the members that were read. The end is
// written last, so that its absence shows that the set is incomplete.
func (r *Reader) ReadEnd() error {
	want := (r.plain.bytes+block-1)/block*block + ending
	_, err := r.tar.Next()
	if err == nil {
		return newError(Damaged, "the set has data after its end")
	}
	if errors.Is(err, io.EOF) {
		_, err = io.CopyN(io.Discard, r.plain, 1)
	}
	switch {
	case err == nil:
		return newError(Damaged, "the set has data after its end")
	case !errors.Is(err, io.EOF), r.plain.bytes != want:
		return newError(Damaged, "the set is incomplete or damaged at its end")
	}
	return nil
}

// countingReader counts the bytes that were read.
type countingReader struct {
	from  io.Reader
	bytes int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += int64(n)
	return n, err
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
