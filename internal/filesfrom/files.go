package filesfrom

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/internal/privatedir"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// Files has the content of files by name. Printing it shows no content.
type Files map[string]secret.String

// MinKeyBytes is the smallest size of the key of a digest.
const MinKeyBytes = 32

// Digest returns a digest of the names and contents of the files of one cluster:
// "hmac-sha256:" and 64 hexadecimal digits. It does not depend on the order or the sources. An
// approval of a plan includes it, and the status of the cluster shows it.
//
// Users that can read the status may not be allowed to read the Secrets. They could compare a
// plain hash with the hashes of a list of passwords. So the digest needs a secret key of the
// server, with at least MinKeyBytes random bytes. The UID of the cluster is part of it, because
// a user could otherwise create a cluster with guessed files, and compare the two digests.
// After a change of the key, all digests differ, and plans need a new approval.
func (f Files) Digest(key []byte, cluster types.UID) (string, error) {
	if len(key) < MinKeyBytes {
		return "", fmt.Errorf("making a digest of files: the key has %d bytes, but at least %d are needed", len(key), MinKeyBytes)
	}
	if cluster == "" {
		return "", errors.New("making a digest of files: the cluster has no UID")
	}
	mac := hmac.New(sha256.New, key)
	add := func(text string) { // with its length, so that a text cannot end in the next one
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		mac.Write([]byte(text))
	}
	add("slipway.dev/filesFrom/v1")
	add(string(cluster))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		add(name)
		add(f[name].Reveal())
	}
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil)), nil
}

// page is the space that a small file needs in memory, in bytes.
const page = 4096

// WriteDir writes the files into a new private directory, which the caller closes. See
// privatedir.Create for the bases.
func (f Files) WriteDir(bases ...string) (*privatedir.Dir, error) {
	var need int64
	for _, content := range f {
		need += int64(len(content.Reveal())) + page
	}
	dir, err := privatedir.Create(need, bases...)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := dir.WriteFile(name, []byte(f[name].Reveal())); err != nil {
			return nil, errors.Join(fmt.Errorf("writing the file %s of the cluster: %w", name, err), dir.Close())
		}
	}
	return dir, nil
}

// PathsIn returns the paths with which the names in a cluster are files of dir. A home directory
// of the server is never used. spec.MakePathsAbsolute needs a copy of the cluster, because the
// directory exists only until it is closed.
func PathsIn(dir *privatedir.Dir) spec.Paths { return spec.Paths{Dir: dir.Path(), Home: dir.Path()} }
