//go:build linux

package certs

import (
	"bytes"
	"context"
	"fmt"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// KubeconfigCAOp executes op.KubeconfigCA.
type KubeconfigCAOp struct{ Op op.KubeconfigCA }

func (x *KubeconfigCAOp) Paths() []string {
	return []string{x.Op.Target()}
}

func (x *KubeconfigCAOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	text, err := h.ReadFile(o.Path)
	if err != nil {
		return host.CheckResult{}, err
	}
	has, err := pki.KubeconfigCA(text)
	if err != nil {
		return host.CheckResult{}, fmt.Errorf("reading %s: %w", o.Path, err)
	}
	if len(has) == 0 || bytes.Equal(has, o.CA) {
		return host.CheckResult{}, nil
	}
	return host.CheckResult{Change: "change the trusted CAs", Wrote: map[string]string{o.Path: ""}}, nil
}

func (x *KubeconfigCAOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	text, err := h.ReadFile(o.Path)
	if err != nil {
		return err
	}
	return hostfs.EditFile(h, o.Path, pki.WithKubeconfigCA(text, o.CA))
}
