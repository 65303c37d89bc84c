//go:build linux

package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"slipway.dev/slipway/internal/kubeletcsr"
	"slipway.dev/slipway/internal/node/op"
)

// AutoApprove approves requests for serving certificates that kubelets of the
// cluster may make, and returns what it has approved. Other requests stay pending,
// and the error says why.
func (r *Runner) AutoApprove(ctx context.Context, job op.AutoApproval) (approved []string, err error) {
	s, err := r.session(Batch{}, nil)
	if err != nil {
		return nil, err
	}
	text, err := s.output(ctx, job.Get...)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("reading requests: %w", err)
	}
	var left []error
	for _, item := range list.Items {
		var req kubeletcsr.Request
		if err := json.Unmarshal(item, &req); err != nil {
			left = append(left, err)
			continue
		}
		if !req.Pending() {
			continue
		}
		err := kubeletcsr.Check(req, job.Kubelets)
		if err == nil {
			err = s.approve(ctx, job, req.Metadata.Name, item)
		}
		if err != nil {
			left = append(left, fmt.Errorf("left pending: %.80q of %.80q: %w", req.Metadata.Name, req.Spec.Username, err))
			continue
		}
		approved = append(approved, req.Metadata.Name+" of "+req.Spec.Username)
	}
	return approved, errors.Join(left...)
}

// approve approves a request as it was read: one that has changed since, or was
// made again under its name, is refused by the API server.
func (s *session) approve(ctx context.Context, job op.AutoApproval, name string, item json.RawMessage) error {
	object := map[string]any{}
	if err := json.Unmarshal(item, &object); err != nil {
		return err
	}
	object["status"] = map[string]any{"conditions": []any{kubeletcsr.Approval()}}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	argv := append([]string{}, job.Put...)
	argv[len(argv)-1] += name + job.Suffix
	return s.run(ctx, command{argv: argv, stdin: bytes.NewReader(body), stdout: new(bytes.Buffer)})
}
