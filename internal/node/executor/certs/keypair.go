//go:build linux

package certs

import (
	"context"
	"fmt"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// KeyPairOp executes op.KeyPair.
type KeyPairOp struct{ Op op.KeyPair }

func (x *KeyPairOp) Paths() []string {
	return []string{x.Op.Private, x.Op.Public}
}

// Check returns what is missing of a pair. An unreadable private key is an error,
// because it may still be in use.
func (x *KeyPairOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	private, err := h.ReadFile(o.Private)
	if err != nil {
		return host.CheckResult{}, err
	}
	if len(private) == 0 {
		return host.CheckResult{Change: "create", Wrote: map[string]string{o.Private: "", o.Public: ""}}, nil
	}
	want, err := publicOf(o, private)
	if err != nil {
		return host.CheckResult{}, err
	}
	have, err := h.ReadFile(o.Public)
	if err == nil && string(have) != string(want) {
		return host.CheckResult{Change: "write its public key", Wrote: map[string]string{o.Public: ""}}, nil
	}
	return host.CheckResult{}, err
}

func publicOf(o op.KeyPair, private []byte) ([]byte, error) {
	key, err := pki.ParseKey(private)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.Private, err)
	}
	return pki.EncodePublic(key.Public())
}

// Apply writes the private key first: the public key is derived from it.
func (x *KeyPairOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	private, err := h.ReadFile(o.Private)
	if err != nil {
		return err
	}
	if len(private) == 0 {
		if private, err = pki.NewSigningKey(); err != nil {
			return err
		}
		if err := hostfs.WriteFile(h, o.Private, private, atomicfile.Meta{Mode: 0o600}); err != nil {
			return err
		}
	}
	public, err := publicOf(o, private)
	if err != nil {
		return err
	}
	return hostfs.WriteFile(h, o.Public, public, atomicfile.Meta{Mode: 0o600})
}
