package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/crypto/ssh"
)

// addCertificate offers the certificate next to a private key before the key itself, as
// ssh does. If the certificate cannot be used, the key is still used; an error of the
// login then names the certificate.
func (id *identity) addCertificate(key ssh.Signer, path string, read reader) {
	file := path + "-cert.pub"
	raw, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		id.passed = append(id.passed, "the certificate "+file+" cannot be read: "+innermostMessage(err))
		return
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(raw)
	if err != nil {
		id.passed = append(id.passed, file+" is not a certificate: "+innermostMessage(err))
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
	id.addSigner(signer, file)
}

// keyText describes a key for people: a certificate by its ID, its validity and its key.
func keyText(key ssh.PublicKey) string {
	blob := key
	if k, err := ssh.ParsePublicKey(key.Marshal()); err == nil { // keys of an agent are bytes
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
