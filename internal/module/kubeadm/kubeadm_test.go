package kubeadm

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A unit file's words: systemd.syntax(7) takes off quotes and backslashes,
// systemd.service(5) replaces $ and %.
func TestFlags(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		args         map[string]string
		want         string
	}{
		{"none", "nothing to add", nil, ""},
		{"sorted", "the same file gives the same unit", map[string]string{"v": "4", "a": "b"}, ` "--a=b" "--v=4"`},
		{"spaces and quotes", "one word each", map[string]string{"x": `a "b" c`}, ` "--x=a \"b\" c"`},
		{"dollar and per cent", "neither variable nor specifier", map[string]string{"x": "$HOME 100%h"}, ` "--x=$$HOME 100%%h"`},
		{"backslash and line", "no escape of systemd's, no second line", map[string]string{"x": "a\\n\nb"}, ` "--x=a\\n\nb"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := flags(tc.args); got != tc.want {
				t.Errorf("got %s, want %s: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	got := args(map[string]string{"feature-gates": "A=true", "b": "1"}, map[string]string{"feature-gates": "A=false", "a": "2"})
	want := []any{object{"name": "a", "value": "2"}, object{"name": "b", "value": "1"}, object{"name": "feature-gates", "value": "A=false"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the user's win, and all are sorted (-want +got):\n%s", d)
	}
}

func TestCAHash(t *testing.T) {
	public, private, err := ed25519.GenerateKey(bytes.NewReader(make([]byte, 64)))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.CreateCertificate(nil, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(key)
	got, err := caHash(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	if want := "sha256:" + hex.EncodeToString(sum[:]); err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	for _, bad := range []string{"", "no certificate", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))} {
		if _, err := caHash([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a certificate", bad)
		}
	}
}

// A bootstrap token is [a-z0-9]{6}.[a-z0-9]{16}.
func TestRandomText(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		got, err := randomText(16)
		if err != nil || !regexp.MustCompile(`^[a-z0-9]{16}$`).MatchString(got) || seen[got] {
			t.Fatalf("got %q, %v", got, err)
		}
		seen[got] = true
	}
}
