package sandbox

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
)

// A keyPair is an ed25519 key in OpenSSH formats.
type keyPair struct {
	Private []byte // PEM, "OPENSSH PRIVATE KEY"
	Public  string // "ssh-ed25519 AAAA…", without comment
}

// newKeyPair generates a key, in the format of PROTOCOL.key in OpenSSH.
func newKeyPair(comment string) (keyPair, error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("generating a key: %w", err)
	}
	var check [4]byte
	if _, err := rand.Read(check[:]); err != nil {
		return keyPair{}, fmt.Errorf("generating a key: %w", err)
	}
	const kind = "ssh-ed25519"
	blob := sshString(sshString(nil, []byte(kind)), pub)

	secret := append(check[:], check[:]...)
	secret = append(secret, blob...)
	secret = sshString(secret, priv)
	secret = sshString(secret, []byte(comment))
	for i := byte(1); len(secret)%8 != 0; i++ {
		secret = append(secret, i)
	}

	out := append([]byte("openssh-key-v1\x00"), sshString(nil, []byte("none"))...)
	out = sshString(out, []byte("none"))        // key derivation
	out = sshString(out, nil)                   // its options
	out = binary.BigEndian.AppendUint32(out, 1) // keys
	out = sshString(out, blob)
	out = sshString(out, secret)
	return keyPair{
		Private: pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: out}),
		Public:  kind + " " + base64.StdEncoding.EncodeToString(blob),
	}, nil
}

func sshString(b, s []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}
