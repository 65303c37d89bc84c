package certs

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway.dev/slipway/internal/node/op"
)

// A CertQuerier runs read-only operations on a host.
type CertQuerier interface {
	Check(ctx context.Context, ops op.List) ([]op.Result, error)
}

// QueryCerts returns the states of certificates on a host, in their order. Keys do not leave the
// host.
func QueryCerts(ctx context.Context, host CertQuerier, known []Known) ([]op.CertificateState, error) {
	o := op.InspectCertificates{}
	for _, k := range known {
		o.Files = append(o.Files, k.CertificateFile)
	}
	results, err := host.Check(ctx, op.List{o})
	if err != nil {
		return nil, err
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("reading certificates: received %d results for one operation", len(results))
	}
	if results[0].Error != nil {
		return nil, fmt.Errorf("reading certificates: %w", results[0].Error)
	}
	var out []op.CertificateState
	if err := json.Unmarshal(results[0].Output, &out); err != nil {
		return nil, fmt.Errorf("decoding the states of certificates: %w", err)
	}
	if len(out) != len(known) {
		return nil, fmt.Errorf("reading certificates: received %d states, expected %d", len(out), len(known))
	}
	return out, nil
}
