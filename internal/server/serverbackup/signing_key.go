package serverbackup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/privatefile"
)

// SigningKeyFile is the file name of the key that signs the sets of a server, in its
// directory keys. The public key is not stored: it follows from this file.
const SigningKeyFile = "backup-signing.key"

// OpenSigningKey reads the key that signs sets from the directory keys of a server. If fresh
// is true, it makes a missing key. The caller sets fresh only while the server has no data:
// with a new key, earlier sets would no longer be trusted.
func OpenSigningKey(dir string, fresh bool) (*backup.SigningKey, error) {
	path := filepath.Join(dir, SigningKeyFile)
	if err := privatefile.RemoveStaged(path); err != nil {
		return nil, fmt.Errorf("removing an unfinished backup signing key: %w", err)
	}
	key, err := ReadSigningKey(dir)
	if idOf(err) != idKeyMissing || !fresh {
		return key, err
	}
	text, err := backup.NewSigningKey()
	if err != nil {
		return nil, err
	}
	if err := (privatefile.Writer{}).Replace(path, text); err != nil {
		return nil, explainRoom(fmt.Errorf("writing the backup signing key: %w", err))
	}
	return backup.ParseSigningKey(text)
}

// ReadSigningKey reads the key that signs sets from the directory keys of a server, and
// changes nothing.
func ReadSigningKey(dir string) (*backup.SigningKey, error) {
	path := filepath.Join(dir, SigningKeyFile)
	text, err := privatefile.Read(path, privatefile.Secret)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, diag.Refuse(idKeyMissing, path+" is missing: it signs the backups of this server",
			"restore the file from a backup of this server")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the backup signing key: %w", err)
	}
	key, err := backup.ParseSigningKey(text)
	if err != nil {
		return nil, diag.Refuse(idKeyDamaged, path+" is damaged: "+err.Error(), "restore the file from a backup of this server")
	}
	return key, nil
}

// PublicKeyOf returns the public key that verifies the sets of a server, from its data
// directory.
func PublicKeyOf(dataDir string) (backup.PublicKey, error) {
	key, err := ReadSigningKey(filepath.Join(dataDir, keysDir))
	return key.PublicKey(), err
}
