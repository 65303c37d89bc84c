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
)

// Recipients are the keys that a set is encrypted to: "age1…", each as age writes
// it.
func Recipients(keys []string) (out []age.Recipient, err error) {
	for _, k := range keys {
		r, err := age.ParseRecipients(strings.NewReader(k))
		if err != nil || len(r) != 1 {
			return nil, fmt.Errorf("%.80q is no key of a recipient: want age1…", k)
		}
		out = append(out, r...)
	}
	return out, nil
}

// Write writes a set to a file that must not be there yet, whole or not at all;
// it is on disk when Write returns. snapshot is the file of the set's snapshot.
// The set's Format and Files are filled in.
func Write(to string, set *Set, small []Content, snapshot string, recipients []age.Recipient) (err error) {
	if _, err := os.Lstat(to); err == nil {
		return broken(Exists, "%s is there already", to)
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".slipway-backup-*") // 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(f.Name())) }()
	set.Format, set.Files = format, nil
	for _, c := range small {
		set.Files = append(set.Files, File{Name: c.Name, Bytes: int64(len(c.Data)), SHA256: sum(c.Data)})
	}
	set.Files = append(set.Files, File{Name: SnapshotName, Bytes: set.Snapshot.Bytes, SHA256: set.Snapshot.SHA256})
	err = writeTo(f, set, small, snapshot, recipients)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link never takes the place of what is there. Not every
	// file system has them.
	if err = os.Link(f.Name(), to); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Lstat(to); errors.Is(there, fs.ErrNotExist) {
			err = os.Rename(f.Name(), to)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return broken(Exists, "%s is there already", to)
	}
	return errors.Join(err, syncDir(filepath.Dir(to)))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func writeTo(f io.Writer, set *Set, small []Content, snapshot string, recipients []age.Recipient) error {
	w := io.WriteCloser(nopCloser{f})
	if len(recipients) > 0 {
		sealed, err := age.Encrypt(f, recipients...)
		if err != nil {
			return fmt.Errorf("encrypting the set: %w", err)
		}
		w = sealed
	}
	manifest, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	add := func(name string, size int64, r io.Reader) error {
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
	if err := add(manifestName, int64(len(manifest)), bytes.NewReader(manifest)); err != nil {
		return err
	}
	for _, c := range small {
		if err := add(c.Name, int64(len(c.Data)), bytes.NewReader(c.Data)); err != nil {
			return err
		}
	}
	db, err := os.Open(snapshot)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := add(SnapshotName, set.Snapshot.Bytes, db); err != nil {
		return err
	}
	return errors.Join(t.Close(), w.Close())
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
