//go:build linux

package executor

import (
	"context"
	"fmt"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// keyPairOp executes op.KeyPair.
type keyPairOp struct{ o op.KeyPair }

func (x *keyPairOp) Paths() []string {
	return []string{x.o.Private, x.o.Public}
}

// Check returns what is missing of a pair. An unreadable private key is an error,
// because it may still be in use.
func (x *keyPairOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
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

// Apply writes the private key first: the public key is derived from it.
func (x *keyPairOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	o := x.o
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
