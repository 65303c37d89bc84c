package certs

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway.dev/slipway/internal/node/op"
)

// An Asker answers what is on a host.
type Asker interface {
	Check(ctx context.Context, ops op.List) ([]op.Result, error)
}

// Ask answers what a host has of certificates, in their order. Keys stay on the
// host.
func Ask(ctx context.Context, host Asker, known []Known) ([]op.CertificateState, error) {
	o := op.Certificates{}
	for _, k := range known {
		o.Files = append(o.Files, k.CertificateFile)
	}
	results, err := host.Check(ctx, op.List{o})
	if err != nil {
		return nil, err
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("reading certificates: %d answers to one question", len(results))
	}
	if results[0].Error != nil {
		return nil, fmt.Errorf("reading certificates: %w", results[0].Error)
	}
	var out []op.CertificateState
	if err := json.Unmarshal(results[0].Output, &out); err != nil {
		return nil, fmt.Errorf("reading what is said of certificates: %w", err)
	}
	if len(out) != len(known) {
		return nil, fmt.Errorf("reading what is said of certificates: there are %d, and not %d", len(out), len(known))
	}
	return out, nil
}
