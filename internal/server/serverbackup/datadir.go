package serverbackup

import (
	"fmt"
	"path/filepath"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/datadir"
)

// UseDataDir sets Create and, if existing data is to be replaced, Replace for a data
// directory. The key of existing data then is trusted too. It returns a function with the
// name of the directory that has the previous data after the restore, "" if there is none.
func (o *RestoreOptions) UseDataDir(path string, replace bool) (kept func() string, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	var previous string
	o.Create = func(h *Header) (Destination, error) {
		d, err := datadir.Create(path, datadir.Info{Format: datadir.Format, ServerID: h.ServerID, Created: h.Created, Program: h.Program})
		if err != nil {
			return nil, err
		}
		return &restoredDir{Dir: d, path: path, replaced: replace, previous: previous}, nil
	}
	if !replace {
		return func() string { return "" }, nil
	}
	if key, err := PublicKeyOf(path); err == nil {
		o.Trusted = append(o.Trusted, key) // else --signed-by or --unverified decides
	}
	o.Replace = func() (Replaced, error) {
		previous, err = datadir.Replace(path)
		return replacedDir{path, previous}, err
	}
	return func() string { return previous }, nil
}

// replacedDir is a data directory that was replaced.
type replacedDir struct{ path, kept string }

// Undo implements Replaced.
func (r replacedDir) Undo() error { return datadir.RestorePrevious(r.path, r.kept) }

// restoredDir is the new data directory of a restore.
type restoredDir struct {
	*datadir.Dir
	path     string
	replaced bool
	previous string // the replaced directory under its new name, "" if there was none
}

// Commit implements Destination.
func (d *restoredDir) Commit(hold string) error {
	if hold != "" {
		if err := d.SetHold(datadir.Hold{Since: time.Now().UTC().Truncate(time.Second), Reason: hold}); err != nil {
			return err
		}
	}
	if d.previous != "" {
		if err := d.KeepArchive(d.previous); err != nil {
			return err
		}
	}
	if err := d.Dir.Commit(); err != nil {
		return err
	}
	return d.Close()
}

// Discard implements Destination. If the directory has replaced another one, Undo removes it.
func (d *restoredDir) Discard() error {
	if err := d.Close(); err != nil || d.replaced {
		return err
	}
	return datadir.RestorePrevious(d.path, "")
}

// TrustKey adds a public key to the keys of which one must have signed the set.
func (o *RestoreOptions) TrustKey(text string) error {
	key, err := ParseTrustedKey(text)
	if err == nil {
		o.Trusted = append(o.Trusted, key)
	}
	return err
}

// ParseTrustedKey reads a public key from a flag.
func ParseTrustedKey(text string) (backup.PublicKey, error) {
	key, err := backup.ParsePublicKey(text)
	if err != nil {
		return key, diag.Refuse(idInvalidValue, "--signed-by: "+err.Error(), "give the public key that 'slipwayd backup' printed: ed25519:…")
	}
	return key, nil
}

// ReadIdentities returns the keys in files that age-keygen wrote.
func ReadIdentities(files []string) (ids []age.Identity, err error) {
	for _, file := range files {
		more, err := backup.ReadIdentities(file)
		if err != nil {
			return nil, fmt.Errorf("reading the identity: %w", err)
		}
		ids = append(ids, more...)
	}
	return ids, nil
}
