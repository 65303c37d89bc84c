// Package keys holds the keys of a server: the service account keys, and the keys that
// encrypt Secrets in etcd. Without them, the data of the server cannot be used.
package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/server/privatefile"
)

// The diagnostics of this package; see docs/guide/errors.md.
const (
	idMissing    = "server-keys-missing"
	idDamaged    = "server-keys-damaged"
	idUnknownKey = "server-key-unknown"
)

// The names of the files.
const (
	signingFile    = "sa.key"
	verifyingFile  = "sa.pub"
	encryptionFile = "encryption.yaml"
	// A file with this prefix and suffix holds public keys of earlier signing keys. An
	// administrator adds it to keep older tokens valid.
	earlierPrefix, earlierSuffix = "sa-", ".pub"
)

// restoreHint is the remedy for keys that cannot be made again.
const restoreHint = "restore the directory %s from a backup of this server"

// Keys represents the keys in one directory.
type Keys struct {
	dir     string
	earlier []string // paths of public keys of earlier signing keys
	writer  privatefile.Writer

	mutex sync.Mutex // for changes of the encryption keys
}

// Open checks the keys in a directory. If fresh is true, it also makes the keys that are
// missing. The caller sets fresh only while the server has no data: without their keys,
// existing Secrets cannot be decrypted and existing tokens are invalid.
func Open(dir string, fresh bool) (*Keys, error) { return openWith(dir, fresh, privatefile.Writer{}) }

func openWith(dir string, fresh bool, w privatefile.Writer) (*Keys, error) {
	k := &Keys{dir: dir, writer: w}
	if err := k.prepareDir(fresh); err != nil {
		return nil, err
	}
	if err := k.prepareSigningKey(fresh); err != nil {
		return nil, err
	}
	if err := k.prepareEncryption(fresh); err != nil {
		return nil, err
	}
	return k, k.findEarlierKeys()
}

// ServiceAccountKey returns the path of the private key that signs tokens.
func (k *Keys) ServiceAccountKey() string { return k.path(signingFile) }

// ServiceAccountPublicKeys returns the paths of the public keys that verify tokens: the key
// of the current signing key, and the files sa-*.pub with keys of earlier ones.
func (k *Keys) ServiceAccountPublicKeys() []string {
	return append([]string{k.path(verifyingFile)}, k.earlier...)
}

// EncryptionConfig returns the path of the EncryptionConfiguration for the API server.
func (k *Keys) EncryptionConfig() string { return k.path(encryptionFile) }

func (k *Keys) path(name string) string { return filepath.Join(k.dir, name) }

// prepareDir creates a missing directory, and removes files that a crash left under
// temporary names.
func (k *Keys) prepareDir(fresh bool) error {
	if fresh {
		if err := os.Mkdir(k.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("creating the key directory: %w", err)
		}
	}
	for _, name := range []string{signingFile, verifyingFile, encryptionFile} {
		if err := privatefile.RemoveStaged(k.path(name)); err != nil {
			return fmt.Errorf("removing an unfinished key file: %w", err)
		}
	}
	return nil
}

// prepareSigningKey checks the service account keys. The public key is made from the private
// key if it is missing.
func (k *Keys) prepareSigningKey(fresh bool) error {
	text, err := privatefile.Read(k.path(signingFile), privatefile.Secret)
	switch {
	case errors.Is(err, fs.ErrNotExist) && fresh:
		if text, err = k.writeSigningKey(); err != nil {
			return err
		}
	case errors.Is(err, fs.ErrNotExist):
		return k.refuseMissing(signingFile)
	case err != nil:
		return fmt.Errorf("reading the service account key: %w", err)
	}
	key, err := pki.ParseKey(text)
	if err != nil {
		return k.refuseDamaged(signingFile, err.Error())
	}
	want, err := pki.EncodePublic(key.Public())
	if err != nil {
		return err
	}
	have, err := privatefile.Read(k.path(verifyingFile), privatefile.Public)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := k.writer.Replace(k.path(verifyingFile), want); err != nil {
			return fmt.Errorf("writing the public service account key: %w", err)
		}
	case err != nil:
		return fmt.Errorf("reading the public service account key: %w", err)
	case !bytes.Equal(have, want):
		return diag.Refuse(idDamaged, fmt.Sprintf("%s does not match %s", k.path(verifyingFile), k.path(signingFile)),
			fmt.Sprintf(restoreHint, k.dir))
	}
	return nil
}

func (k *Keys) writeSigningKey() ([]byte, error) {
	_, text, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	if err := k.writer.Replace(k.path(signingFile), text); err != nil {
		return nil, fmt.Errorf("writing the service account key: %w", err)
	}
	return text, nil
}

// findEarlierKeys finds and checks the public keys of earlier signing keys.
func (k *Keys) findEarlierKeys() error {
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return fmt.Errorf("listing the keys: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, earlierPrefix) || !strings.HasSuffix(name, earlierSuffix) {
			continue
		}
		text, err := privatefile.Read(k.path(name), privatefile.Public)
		if err != nil {
			return fmt.Errorf("reading an earlier service account key: %w", err)
		}
		if _, err := pki.PublicKeys(text); err != nil {
			return k.refuseDamaged(name, err.Error())
		}
		k.earlier = append(k.earlier, k.path(name))
	}
	slices.Sort(k.earlier)
	return nil
}

// refuseMissing returns the refusal for a file without which the data cannot be used.
func (k *Keys) refuseMissing(name string) error {
	return diag.Refuse(idMissing, k.path(name)+" is missing, but this server already has data", fmt.Sprintf(restoreHint, k.dir))
}

// refuseDamaged returns the refusal for a file whose content is not valid.
func (k *Keys) refuseDamaged(name, why string) error {
	return diag.Refuse(idDamaged, fmt.Sprintf("%s is damaged: %s", k.path(name), why), fmt.Sprintf(restoreHint, k.dir))
}
