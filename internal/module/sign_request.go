package module

import (
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// SignRequest signs the certificate request of a host with a CA whose key the host does
// not receive. It returns nil if the host needs no certificate, and while planning: a plan
// issues nothing.
func SignRequest(s *engine.Scope, c op.Certificate, caKey []byte, result op.Result) ([]byte, error) {
	if len(result.Output) == 0 || s.OperationID() == "" {
		return nil, nil
	}
	return pki.SignRequest(result.Output, c, caKey, time.Now())
}
