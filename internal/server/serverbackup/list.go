package serverbackup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
)

// A State is the result of the verification of a set.
type State string

// The states.
const (
	// Verified sets have a signature of the key, which covers their whole content.
	Verified State = "verified"
	// Named sets have a name that the key has signed. Their content was not read: it is
	// encrypted, or at another place.
	Named State = "named"
	// Unverified sets have no signature of the key.
	Unverified State = "unverified"
	// Damaged sets cannot be restored.
	Damaged State = "damaged"
)

// An Entry is a set in a list.
type Entry struct {
	Name      string    `json:"name"`
	Bytes     int64     `json:"bytes"`
	Taken     time.Time `json:"taken"`
	Revision  int64     `json:"revision,omitempty"`
	Encrypted bool      `json:"encrypted"`
	State     State     `json:"state"`
	// Problem is the reason why the set is damaged.
	Problem string `json:"problem,omitempty"`
}

// A Verifier verifies sets. Without a signing key, names cannot be verified.
type Verifier struct {
	Key        backup.PublicKey
	Signer     *backup.SigningKey
	Identities []age.Identity
}

// ListDirectory returns the sets in a directory, newest first. It verifies their signatures
// and that no member is missing, but does not read their whole content.
func (v Verifier) ListDirectory(ctx context.Context, path string) (out []Entry, err error) {
	dir, err := openDir(path, false)
	if err != nil {
		return nil, err
	}
	list, err := copies.ListCopies(ctx, dir, "", isServerName)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		e := v.entryOf(c)
		if e.Name, err = dir.actualName(ctx, c.File.Name); err != nil {
			return nil, err
		}
		e.Encrypted = filepath.Ext(e.Name) == sealedSuffix
		v.verifyFile(filepath.Join(path, e.Name), &e)
		out = append(out, e)
	}
	return out, nil
}

// ListTarget returns the sets at a target, newest first, by their names.
func (v Verifier) ListTarget(ctx context.Context, from copies.Source) (out []Entry, err error) {
	list, err := copies.ListCopies(ctx, from, product+"_", isServerName)
	for _, c := range list {
		out = append(out, v.entryOf(c))
	}
	return out, err
}

func isServerName(n copies.Name) bool { return n.Cluster == product && n.Host == role }

func (v Verifier) entryOf(c copies.Copy) Entry {
	e := Entry{Name: c.File.Name, Bytes: c.Bytes, Taken: c.Taken, Revision: c.Revision, Encrypted: true, State: Unverified}
	if v.Signer != nil && c.Name.IsVerified(v.Signer) {
		e.State = Named
	}
	return e
}

// verifyFile sets the state of a local set.
func (v Verifier) verifyFile(file string, e *Entry) {
	h, err := ReadHeader(file, v.Identities)
	var files []backup.File
	if err == nil {
		files = h.Files
	}
	incomplete := backup.CheckComplete(file, setForm(), files)
	switch {
	case err != nil && idOf(err) != string(backup.Encrypted):
		e.State, e.Problem = Damaged, err.Error()
	case incomplete != nil:
		e.State, e.Problem = Damaged, explainSet(file, incomplete).Error()
	case err != nil: // it is encrypted: the name has to do
	case !v.Key.IsSignerOf(h.Signature):
		e.State = Unverified
	case !h.Taken.Equal(e.Taken) || h.revision() != e.Revision:
		e.State, e.Problem = Damaged, fmt.Sprintf("the signed set was taken at %s, but its name has another time or revision", h.Taken)
	default:
		e.State = Verified
	}
}

// Fetch copies a set from a target to a file, or to a directory under its name. An existing
// file is never overwritten.
func Fetch(ctx context.Context, from copies.Source, name, out string) (file string, err error) {
	if _, ok := copies.ParseName(name); !ok {
		return "", diag.Refuse(idBadFile, fmt.Sprintf("%.120q is not the name of a backup", name),
			"choose a name from the output of 'slipwayd list-backups'")
	}
	there, err := copies.ListCopies(ctx, from, "", func(n copies.Name) bool { return n.String() == name })
	if err != nil {
		return "", err
	}
	if len(there) == 0 {
		return "", diag.Refuse(idBadFile, fmt.Sprintf("the target has no backup %s", name),
			"choose a name from the output of 'slipwayd list-backups'")
	}
	dir := filepath.Dir(out)
	if info, err := os.Stat(out); err == nil && info.IsDir() {
		dir, out = out, filepath.Join(out, name)
	}
	f, err := os.CreateTemp(dir, backup.Parts) // 0600
	if err != nil {
		return "", fmt.Errorf("creating the file for the backup: %w", explainRoom(err))
	}
	defer func() {
		_ = f.Close() // closed already, unless there was an error
		_ = os.Remove(f.Name())
	}()
	size := &limitedWriter{to: f, left: there[0].Bytes}
	if err := from.Fetch(ctx, name, size); err != nil {
		return "", explainRoom(fmt.Errorf("fetching %s: %w", name, err))
	}
	if size.left > 0 {
		return "", diag.Refuse(idIncomplete, fmt.Sprintf("%s is %d bytes shorter than listed", name, size.left), "fetch it again")
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return "", explainRoom(err)
	}
	return out, explainSet(out, backup.CommitFile(f.Name(), out))
}

// limitedWriter returns an error after a number of bytes: a target must not fill the disk.
type limitedWriter struct {
	to   *os.File
	left int64
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, errors.New("the target sends more bytes than it has listed")
	}
	w.left -= int64(len(p))
	return w.to.Write(p)
}
