package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"slipway.dev/slipway/internal/fsync"
)

// ParseRecipients parses the public keys ("age1…") for which a set is encrypted.
func ParseRecipients(keys []string) (out []age.Recipient, err error) {
	for _, k := range keys {
		r, err := age.ParseRecipients(strings.NewReader(k))
		if err != nil || len(r) != 1 {
			return nil, fmt.Errorf("%s is not the public key of a recipient: want age1…", shownKey(k))
		}
		out = append(out, r...)
	}
	return out, nil
}

// shownKey returns the given recipient key for an error message, without showing a private
// key.
func shownKey(key string) string {
	if strings.Contains(strings.ToUpper(key), "AGE-SECRET-KEY-") {
		return "the given private key, which decrypts sets,"
	}
	return fmt.Sprintf("%.80q", key)
}

// Parts is the name pattern of sets that are being written. Callers remove files that a
// killed writer left.
const Parts = ".slipway-backup-*"

// Write writes a set atomically to a file that must not exist yet. The file is synced
// when Write returns. The parameters are the same as for a set in a stream.
func Write(to string, set *Set, small []Content, snapshot string, by Keys) (err error) {
	if _, err := os.Lstat(to); err == nil {
		return newError(Exists, "%s already exists", to)
	}
	f, err := os.CreateTemp(filepath.Dir(to), Parts) // 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeFile(f.Name())) }()
	err = WriteStream(f, set, small, snapshot, by)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return CommitFile(f.Name(), to)
}

// CommitFile gives a synced file its final name in the same directory. It never overwrites a
// file.
func CommitFile(part, to string) error {
	// Unlike a rename, a hard link never replaces an existing file. Some file systems
	// have no hard links.
	err := os.Link(part, to)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Lstat(to); errors.Is(there, fs.ErrNotExist) {
			err = os.Rename(part, to)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return newError(Exists, "%s already exists", to)
	}
	return errors.Join(err, fsync.SyncDir(filepath.Dir(to)))
}

func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func digestOf(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// Keys are the keys for writing a set.
type Keys struct {
	// Recipients are the keys for which the set is encrypted; without any it is not
	// encrypted.
	Recipients []age.Recipient
	// Signer signs it; nil leaves it without a signature.
	Signer *SigningKey
}

// formatFor returns the format of a set that is written with these keys.
func (k Keys) formatFor(snapshot bool) int {
	switch {
	case k.Signer != nil && snapshot:
		return signed
	case k.Signer != nil:
		return signedKeysOnly
	case snapshot:
		return format
	}
	return keysOnly
}

// WriteStream writes a set to a stream, and returns an error at its end if the snapshot does
// not match the header. snapshot is the snapshot's file, "" for a set without one. Stream
// sets the Format, Files and Signature of the set.
func WriteStream(to io.Writer, set *Set, small []Content, snapshot string, by Keys) error {
	set.Format, set.Files, set.Signature = by.formatFor(snapshot != ""), nil, nil
	for _, c := range small {
		set.Files = append(set.Files, File{Name: c.Name, Bytes: int64(len(c.Data)), SHA256: digestOf(c.Data)})
	}
	db := io.Reader(nil)
	if snapshot != "" {
		set.Files = append(set.Files, File{Name: SnapshotName, Bytes: set.Snapshot.Bytes, SHA256: set.Snapshot.SHA256})
		f, err := os.Open(snapshot)
		if err != nil {
			return err
		}
		defer f.Close()
		db = f
	}
	manifest, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return err
	}
	w := io.WriteCloser(nopCloser{to})
	if len(by.Recipients) > 0 {
		if w, err = age.Encrypt(to, by.Recipients...); err != nil {
			return fmt.Errorf("encrypting the set: %w", err)
		}
	}
	t, is := tar.NewWriter(w), sha256.New()
	err = addMember(t, set, manifestName, int64(len(manifest)), bytes.NewReader(manifest))
	if err == nil && by.Signer != nil {
		set.Signature = &Signature{Head: manifest, Value: by.Signer.signHeader(manifest)}
		err = addMember(t, set, signatureName, int64(len(set.Signature.Value)), bytes.NewReader(set.Signature.Value))
	}
	for i := 0; err == nil && i < len(small); i++ {
		err = addMember(t, set, small[i].Name, int64(len(small[i].Data)), bytes.NewReader(small[i].Data))
	}
	if err == nil && db != nil {
		err = addMember(t, set, SnapshotName, set.Snapshot.Bytes, io.TeeReader(db, is))
	}
	if err == nil && db != nil && hex.EncodeToString(is.Sum(nil)) != set.Snapshot.SHA256 {
		err = newError(Damaged, "the snapshot has changed since it was verified")
	}
	if err != nil {
		return err
	}
	return errors.Join(t.Close(), w.Close())
}

// addMember writes a member of a set. Its content must have the given size.
func addMember(t *tar.Writer, set *Set, name string, size int64, r io.Reader) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, ModTime: set.Taken, Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(t, r)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("writing %s of the set: %w", name, err)
	}
	return nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
