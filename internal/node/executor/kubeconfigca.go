//go:build linux

package executor

import (
	"bytes"
	"context"
	"fmt"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// kubeconfigCAOp executes op.KubeconfigCA.
type kubeconfigCAOp struct{ o op.KubeconfigCA }

func (x *kubeconfigCAOp) Paths() []string {
	return []string{x.o.Target()}
}

func (x *kubeconfigCAOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
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

func (x *kubeconfigCAOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	o := x.o
	text, err := s.read(o.Path)
	if err != nil {
		return err
	}
	return s.edit(o.Path, pki.WithKubeconfigCA(text, o.CA))
}
