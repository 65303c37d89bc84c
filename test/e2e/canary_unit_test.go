package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"testing"
)

func TestCanaries_AreFoundInEveryEncoding(t *testing.T) {
	const secret = "canary-Login-7f3a51'\"x $9"
	c := secrets{"it": secret, "another": "canary-Other-000000"}.makeCanaries()
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"raw": "x" + secret + "y", "JSON": string(quoted), "Go": fmt.Sprintf("%q", secret),
		"hex": hex.EncodeToString([]byte("ab" + secret)), "HEX": fmt.Sprintf("%X", secret),
		"base64 of JSON": base64.StdEncoding.EncodeToString(quoted),
		"base64":         base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64, by 1":   base64.RawURLEncoding.EncodeToString([]byte("a" + secret + "bc")),
		"base64, by 2":   base64.StdEncoding.EncodeToString([]byte("ab" + secret + "c")),
	} {
		if got := c.findIn([]byte(text)); len(got) != 1 || got[0] != "it" {
			t.Errorf("%s: found %q in %s", name, got, text)
		}
	}
	if got := c.findIn([]byte("canary-Login, canary")); len(got) > 0 {
		t.Errorf("found %q where there is nothing", got)
	}
}

// TestMiddleLine_IsNotInPublicKey checks that a canary from a private key does not match
// the public key, which is also in certificates.
func TestMiddleLine_IsNotInPublicKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	c := secrets{"key": middleLine(string(text))}.makeCanaries()
	if got := c.findIn(text); len(got) != 1 {
		t.Errorf("the key's file holds %q", got)
	}
	public := x509.MarshalPKCS1PublicKey(&key.PublicKey)
	for shift := range 3 {
		if got := c.findIn([]byte(base64.StdEncoding.EncodeToString(append(make([]byte, shift), public...)))); len(got) > 0 {
			t.Errorf("its public half holds %q", got)
		}
	}
}
