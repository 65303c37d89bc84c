// Package pki reads certificates and keys in the formats that clusters use, decides when
// they are due, and renews them. It reads and writes no files; the caller does.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

const pemCertificate = "CERTIFICATE"

var errNoCertificate = errors.New("the file has no certificate")

// ParseCertificate returns the first certificate in a PEM text.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == pemCertificate {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errNoCertificate
}

// ParseKey returns the first private key in a PEM text, in any format that Kubernetes programs
// write.
func ParseKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, errors.New("the key cannot sign")
		}
		return signer, nil
	}
	return nil, errors.New("the file has no key")
}

// NewKey returns a new key, and its PEM text.
func NewKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}

// IsPair reports whether a certificate and a key are a pair.
func IsPair(cert *x509.Certificate, key crypto.Signer) bool {
	if cert == nil || key == nil {
		return false
	}
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}

// SignCertificate returns a PEM certificate from the template, with a new serial number, and at most
// as long valid as its CA.
func SignCertificate(template, ca *x509.Certificate, public crypto.PublicKey, caKey crypto.Signer) ([]byte, error) {
	if ca != template && ca.NotAfter.Before(template.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, ca, public, caKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: raw}), nil
}

// Fields of the user and the cluster in a kubeconfig, each on its own line, as all
// Kubernetes programs write them.
var (
	userCertificate = regexp.MustCompile(`(?m)^([ \t]*client-certificate-data:[ \t]*)(\S+)[ \t]*$`)
	userKey         = regexp.MustCompile(`(?m)^([ \t]*client-key-data:[ \t]*)(\S+)[ \t]*$`)
	clusterCA       = regexp.MustCompile(`(?m)^([ \t]*certificate-authority-data:[ \t]*)(\S+)[ \t]*$`)
)

// KubeconfigCA returns the CAs that a kubeconfig contains, in PEM form; none if it has
// none.
func KubeconfigCA(text []byte) ([]byte, error) { return inKubeconfig(text, clusterCA) }

// WithKubeconfigCA returns a kubeconfig with other CAs.
func WithKubeconfigCA(text, ca []byte) []byte { return intoKubeconfig(text, clusterCA, ca) }

// inKubeconfig returns the value of a line in a kubeconfig; nil if it does not exist.
// With several users, it is not known which one applies.
func inKubeconfig(text []byte, line *regexp.Regexp) ([]byte, error) {
	found := line.FindAllSubmatch(text, 2)
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		value, err := base64.StdEncoding.DecodeString(string(bytes.Trim(found[0][2], `"'`)))
		if err != nil {
			return nil, fmt.Errorf("reading a kubeconfig: %w", err)
		}
		return value, nil
	}
	return nil, errors.New("the kubeconfig has more than one user or cluster")
}

// intoKubeconfig replaces the value of a line.
func intoKubeconfig(text []byte, line *regexp.Regexp, value []byte) []byte {
	return line.ReplaceAll(text, []byte("${1}"+base64.StdEncoding.EncodeToString(value)))
}

// isPEM distinguishes PEM from a kubeconfig, in which PEM is encoded.
func isPEM(text []byte) bool { return bytes.Contains(text, []byte("-----BEGIN ")) }

// keyBlock returns the first key in a PEM text, unchanged.
func keyBlock(text []byte) []byte {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return pem.EncodeToMemory(block)
		}
	}
	return nil
}
