package certificates

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/server/privatefile"
)

// The diagnostics of this package; see docs/guide/errors.md.
const (
	idMissingCA   = "server-ca-missing"
	idDamagedCA   = "server-ca-damaged"
	idDamaged     = "server-certificate-damaged"
	idInvalidName = "server-name-invalid"
)

// writePair replaces a certificate and its key.
//
// The API server watches both files. After each change it reads the certificate first, then
// the key, and keeps its present pair in memory if the two do not match. Both files are on
// disk under temporary names before the first rename, so a full disk changes neither. The
// key is renamed first:
//
//   - A read before the rename of the certificate finds the old certificate, which does not
//     match the new key. The API server keeps its pair, and waits for the next change.
//   - The rename of the certificate is a second change. A read after it finds the new
//     certificate, and therefore also the new key.
//   - A new certificate with the old key cannot be read: the key is read after the
//     certificate, and was replaced before it.
//
// If the server is killed between the renames, finishPair does the second one.
func (c *Certificates) writePair(name string, p pair) error {
	key, err := c.writer.Stage(c.path(name+keySuffix), p.keyText)
	if err != nil {
		return err
	}
	cert, err := c.writer.Stage(c.path(name+certSuffix), p.text)
	if err != nil {
		return errors.Join(err, key.Discard())
	}
	if err := key.Commit(); err != nil {
		return err // the key may have its name: finishPair needs the certificate
	}
	return cert.Commit()
}

// finishPair completes or removes the files of a renewal that was interrupted. If the new key
// has its name already, the new certificate gets its name too.
func (c *Certificates) finishPair(name string) error {
	certFile, keyFile := c.path(name+certSuffix), c.path(name+keySuffix)
	staged, err := privatefile.Read(privatefile.StagedPath(certFile), privatefile.Secret)
	if err == nil {
		var key []byte
		if key, err = privatefile.Read(keyFile, privatefile.Secret); err == nil {
			if _, problem := parsePair(staged, key); problem == "" {
				if err := privatefile.CommitStaged(certFile); err != nil {
					return fmt.Errorf("completing the renewal of %s: %w", certFile, err)
				}
			}
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("completing the renewal of %s: %w", certFile, err)
	}
	return c.removeStaged(certFile, keyFile)
}

func (c *Certificates) removeStaged(paths ...string) error {
	for _, path := range paths {
		if err := privatefile.RemoveStaged(path); err != nil {
			return fmt.Errorf("removing an unfinished file: %w", err)
		}
	}
	return nil
}

// parsePair returns a certificate and its key. problem is "" if they match.
func parsePair(cert, key []byte) (p pair, problem string) {
	p = pair{text: cert, keyText: key}
	var err error
	if p.cert, err = pki.ParseCertificate(cert); err != nil {
		return pair{}, "the certificate cannot be read: " + err.Error()
	}
	if p.key, err = pki.ParseKey(key); err != nil {
		return pair{}, "the key cannot be read: " + err.Error()
	}
	if !pki.IsPair(p.cert, p.key) {
		return pair{}, "the key does not match the certificate"
	}
	return p, ""
}

// readFiles returns the content of a certificate and its key; nil for a missing file.
func (c *Certificates) readFiles(name string) (cert, key []byte, err error) {
	cert, err = privatefile.Read(c.path(name+certSuffix), privatefile.Public)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		key, err = privatefile.Read(c.path(name+keySuffix), privatefile.Secret)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the certificates: %w", err)
	}
	return cert, key, nil
}

// readCA returns the CA. It is empty, or has only a key, if the directory is fresh and the
// first start was interrupted.
func (c *Certificates) readCA() (pair, error) {
	if err := c.removeStaged(c.CAFile(), c.CAKeyFile(), c.AdminKubeconfig()); err != nil {
		return pair{}, err
	}
	cert, key, err := c.readFiles(caName)
	if err != nil {
		return pair{}, err
	}
	hint := "restore the directory " + c.options.Dir + " from a backup of this server"
	refuseMissing := func(path string) (pair, error) {
		return pair{}, diag.Refuse(idMissingCA, path+" is missing, but this server already has data or certificates", hint)
	}
	switch {
	case cert == nil && !c.options.Fresh:
		return refuseMissing(c.CAFile())
	case cert == nil:
		for _, name := range []string{servingName, adminName} { // they would be signed by another CA
			if _, err := os.Lstat(c.path(name + certSuffix)); err == nil {
				return refuseMissing(c.CAFile())
			}
		}
		return c.readCAKey(key, hint)
	case key == nil:
		return refuseMissing(c.CAKeyFile())
	}
	p, problem := parsePair(cert, key)
	if problem == "" && (!p.cert.IsCA || p.cert.CheckSignatureFrom(p.cert) != nil) {
		problem = "it is not a CA with its own signature"
	}
	if problem != "" {
		return pair{}, diag.Refuse(idDamagedCA, fmt.Sprintf("%s and %s cannot be used: %s", c.CAFile(), c.CAKeyFile(), problem), hint)
	}
	return p, nil
}

// readCAKey returns a CA without a certificate.
func (c *Certificates) readCAKey(text []byte, hint string) (pair, error) {
	if text == nil {
		return pair{}, nil
	}
	key, err := pki.ParseKey(text)
	if err != nil {
		return pair{}, diag.Refuse(idDamagedCA, fmt.Sprintf("%s cannot be used: %v", c.CAKeyFile(), err), hint)
	}
	return pair{key: key, keyText: text}, nil
}

// readLeaf returns a certificate that the CA has signed. It is empty if a file is missing.
func (c *Certificates) readLeaf(name string) (pair, error) {
	if err := c.finishPair(name); err != nil {
		return pair{}, err
	}
	cert, key, err := c.readFiles(name)
	if err != nil || cert == nil || key == nil {
		return pair{}, err
	}
	certFile, keyFile := c.path(name+certSuffix), c.path(name+keySuffix)
	p, problem := parsePair(cert, key)
	if problem == "" && (c.ca.cert == nil || p.cert.CheckSignatureFrom(c.ca.cert) != nil) {
		problem = "another CA has signed the certificate"
	}
	if problem != "" {
		return pair{}, diag.Refuse(idDamaged, fmt.Sprintf("%s and %s cannot be used: %s", certFile, keyFile, problem),
			fmt.Sprintf("rename both files; the server makes new ones when it starts: mv %s %[1]s.damaged; mv %[2]s %[2]s.damaged",
				certFile, keyFile))
	}
	return p, nil
}
