package sshx

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/crypto/ssh"
)

// addCertificate offers the certificate beside a private key before the key
// itself, as ssh does. A certificate that cannot be used does not keep the key
// from being used; an error of the login names it.
func (id *identity) addCertificate(key ssh.Signer, path string, read reader) {
	file := path + "-cert.pub"
	raw, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		id.passed = append(id.passed, "the certificate "+file+" cannot be read: "+innermost(err))
		return
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(raw)
	if err != nil {
		id.passed = append(id.passed, file+" is not a certificate: "+innermost(err))
		return
	}
	cert, ok := public.(*ssh.Certificate)
	if !ok || cert.CertType != ssh.UserCert {
		id.passed = append(id.passed, file+" is not a user certificate")
		return
	}
	signer, err := ssh.NewCertSigner(cert, key)
	if err != nil {
		id.passed = append(id.passed, file+" is not the certificate for the key "+path)
		return
	}
	id.add(signer, file)
}

// keyText names a key for people: a certificate by its ID and validity, and by
// the key that it is for.
func keyText(key ssh.PublicKey) string {
	blob := key
	if k, err := ssh.ParsePublicKey(key.Marshal()); err == nil { // an agent's keys are bytes
		blob = k
	}
	cert, ok := blob.(*ssh.Certificate)
	if !ok {
		return ssh.FingerprintSHA256(key)
	}
	text := fmt.Sprintf("certificate %q of %s", cert.KeyId, ssh.FingerprintSHA256(cert.Key))
	if cert.ValidBefore != ssh.CertTimeInfinity {
		text += ", valid until " + time.Unix(int64(min(cert.ValidBefore, 1<<40)), 0).UTC().Format(time.RFC3339)
	}
	return text
}
