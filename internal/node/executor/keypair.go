//go:build linux

package executor

import (
	"fmt"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// checkKeyPair returns what is missing of a pair. An unreadable private key is an error,
// because it may still be in use.
func (s *session) checkKeyPair(o op.KeyPair) (verdict, error) {
	private, err := s.read(o.Private)
	if err != nil {
		return verdict{}, err
	}
	if len(private) == 0 {
		return verdict{change: "create", wrote: map[string]string{o.Private: "", o.Public: ""}}, nil
	}
	want, err := publicOf(o, private)
	if err != nil {
		return verdict{}, err
	}
	have, err := s.read(o.Public)
	if err == nil && string(have) != string(want) {
		return verdict{change: "write its public key", wrote: map[string]string{o.Public: ""}}, nil
	}
	return verdict{}, err
}

func publicOf(o op.KeyPair, private []byte) ([]byte, error) {
	key, err := pki.Key(private)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.Private, err)
	}
	return pki.EncodePublic(key.Public())
}

// applyKeyPair writes the private key first: the public key is derived from it.
func (s *session) applyKeyPair(o op.KeyPair) error {
	private, err := s.read(o.Private)
	if err != nil {
		return err
	}
	if len(private) == 0 {
		if private, err = pki.NewSigningKey(); err != nil {
			return err
		}
		if err := s.write(o.Private, private, atomicfile.Meta{Mode: 0o600}); err != nil {
			return err
		}
	}
	public, err := publicOf(o, private)
	if err != nil {
		return err
	}
	return s.write(o.Public, public, atomicfile.Meta{Mode: 0o600})
}
