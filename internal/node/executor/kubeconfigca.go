//go:build linux

package executor

import (
	"bytes"
	"fmt"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

func (s *session) checkKubeconfigCA(o op.KubeconfigCA) (verdict, error) {
	text, err := s.read(o.Path)
	if err != nil {
		return verdict{}, err
	}
	has, err := pki.KubeconfigCA(text)
	if err != nil {
		return verdict{}, fmt.Errorf("reading %s: %w", o.Path, err)
	}
	if len(has) == 0 || bytes.Equal(has, o.CA) {
		return verdict{}, nil
	}
	return verdict{change: "change the trusted CAs", wrote: map[string]string{o.Path: ""}}, nil
}

func (s *session) applyKubeconfigCA(o op.KubeconfigCA) error {
	text, err := s.read(o.Path)
	if err != nil {
		return err
	}
	return s.edit(o.Path, pki.WithKubeconfigCA(text, o.CA))
}
