package ssh

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/fileowner"
)

// trust has the entries of the known_hosts files for one server.
type trust struct {
	keys        []knownKey // its own keys, from the first file that has any
	authorities []knownKey // CAs that can sign its certificate, from all files
	revoked     []knownKey // never accepted, from all files
}

// readTrust reads the entries for an address from files; read reads one of them. A
// missing file has no entries. A file that cannot be read is an error, because it could
// revoke the key that the server presents.
func readTrust(files []string, address string, read func(string) ([]byte, error)) (trust, error) {
	var t trust
	for _, file := range files {
		raw, err := read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return trust{}, err
		}
		t.addEntries(lookUp(raw, file, address))
	}
	return t, nil
}

// addEntries adds the entries of the next file.
func (t *trust) addEntries(found []knownKey) {
	first := len(t.keys) == 0
	for _, k := range found {
		switch {
		case k.is == isRevoked:
			t.revoked = append(t.revoked, k)
		case k.is == ofAuthority:
			t.authorities = append(t.authorities, k)
		case first:
			t.keys = append(t.keys, k)
		}
	}
}

// format returns the entries as lines of a known_hosts file for an address.
func (t *trust) format(address string) (lines []string) {
	for _, k := range slices.Concat(t.keys, t.authorities, t.revoked) {
		line := knownhosts.Line([]string{address}, k.key)
		if k.is != ofHost {
			line = "@" + string(k.is) + " " + line
		}
		lines = append(lines, line)
	}
	return lines
}

// findRevocation returns the line that revokes a key, or the key of a certificate
// or of its CA.
func (t *trust) findRevocation(key ssh.PublicKey) (knownKey, bool) {
	shown := []ssh.PublicKey{key}
	if cert, ok := key.(*ssh.Certificate); ok {
		shown = append(shown, cert.Key, cert.SignatureKey)
	}
	for _, r := range t.revoked {
		if slices.ContainsFunc(shown, func(k ssh.PublicKey) bool { return isSameKey(k, r.key) }) {
			return r, true
		}
	}
	return knownKey{}, false
}

// openList opens a known_hosts file to append to it. Root does not follow a link in a
// directory of another user.
func openList(file string) (*os.File, error) {
	if os.Geteuid() != 0 {
		return os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	}
	of, err := fileowner.OwnerOf(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	dir, err := of.OpenRoot(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	f, err := of.OpenFile(dir, filepath.Base(file), os.O_APPEND)
	return f, errors.Join(err, dir.Close())
}

// rememberKey appends the key of an address, in the form of lookUp, to a file, unless accept
// returns false after the file is locked: another manager may have been first.
func rememberKey(file, address string, key ssh.PublicKey, accept func() (bool, error)) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := openList(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := lockFile(f); err != nil {
		return err
	}
	if ok, err := accept(); err != nil || !ok {
		return err
	}
	line := knownhosts.Line([]string{address}, key) + "\n"
	if whole, err := endsLine(f); err != nil {
		return err
	} else if !whole {
		line = "\n" + line
	}
	if _, err = f.WriteString(line); err != nil {
		return err
	}
	return f.Sync()
}

// lockFile locks a file until it is closed. No holder of the lock waits for anything.
func lockFile(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// endsLine reports whether a file is empty or ends with a line break.
func endsLine(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err == nil, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return false, err
	}
	return last[0] == '\n', nil
}
