// Package pki reads certificates and keys in the forms in which clusters keep
// them, judges when they are due, and signs them anew. It touches no file: who
// asks reads and writes.
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

// Certificate is the first certificate in a text in PEM form.
func Certificate(text []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == pemCertificate {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errNoCertificate
}

// Key is the first private key in a text in PEM form, in any of the forms in
// which Kubernetes' programs write them.
func Key(text []byte) (crypto.Signer, error) {
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

// NewKey makes a key, and its text in PEM form.
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

// Belong says that a certificate and a key are a pair.
func Belong(cert *x509.Certificate, key crypto.Signer) bool {
	if cert == nil || key == nil {
		return false
	}
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}

// Sign makes a certificate as the template has it, in PEM form: with a number of
// its own, and for no longer than its authority is valid.
func Sign(template, ca *x509.Certificate, public crypto.PublicKey, caKey crypto.Signer) ([]byte, error) {
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

// What a kubeconfig holds of its user and its cluster, each on a line of its own, as all of
// Kubernetes' programs write it.
var (
	userCertificate = regexp.MustCompile(`(?m)^([ \t]*client-certificate-data:[ \t]*)(\S+)[ \t]*$`)
	userKey         = regexp.MustCompile(`(?m)^([ \t]*client-key-data:[ \t]*)(\S+)[ \t]*$`)
	clusterCA       = regexp.MustCompile(`(?m)^([ \t]*certificate-authority-data:[ \t]*)(\S+)[ \t]*$`)
)

// KubeconfigCA are the authorities that a kubeconfig trusts, in PEM form; none if
// they do not stand in it.
func KubeconfigCA(text []byte) ([]byte, error) { return inKubeconfig(text, clusterCA) }

// WithKubeconfigCA is a kubeconfig that trusts other authorities.
func WithKubeconfigCA(text, ca []byte) []byte { return intoKubeconfig(text, clusterCA, ca) }

// inKubeconfig is what a line of a kubeconfig holds; nil if there is none. Of
// several users it is not known whose counts.
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

// intoKubeconfig puts another value on a line.
func intoKubeconfig(text []byte, line *regexp.Regexp, value []byte) []byte {
	return line.ReplaceAll(text, []byte("${1}"+base64.StdEncoding.EncodeToString(value)))
}

// isPEM tells PEM from a kubeconfig, in which it is encoded.
func isPEM(text []byte) bool { return bytes.Contains(text, []byte("-----BEGIN ")) }

// keyBlock is the first key in a text in PEM form, as it stands there.
func keyBlock(text []byte) []byte {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return pem.EncodeToMemory(block)
		}
	}
	return nil
}
