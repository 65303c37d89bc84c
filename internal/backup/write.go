package backup

import (
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
	var members []Member
	for _, c := range small {
		members = append(members, NewMember(c.Name, c.Data))
	}
	if snapshot != "" {
		f, err := os.Open(snapshot)
		if err != nil {
			return err
		}
		defer f.Close()
		members = append(members, Member{File{Name: SnapshotName, Bytes: set.Snapshot.Bytes, SHA256: set.Snapshot.SHA256}, f})
	}
	for _, m := range members {
		set.Files = append(set.Files, m.File)
	}
	manifest, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return err
	}
	set.Signature, err = clusterForm().WriteSet(to, manifest, set.Taken, members, by)
	return err
}
