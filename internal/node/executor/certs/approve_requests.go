//go:build linux

package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/kubeletcsr"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// maxLeft limits how many pending requests an error names.
const maxLeft = 20

// An approver approves requests, and records the results.
type approver struct {
	*host.Host
	job      op.AutoApproval
	approved []string
	left     []error
	more     int // pending, but not named
}

// requests is a page of the list of requests.
type requests struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// ApproveRequests approves requests for serving certificates that kubelets of the cluster
// are allowed to make, and returns the approved ones. Other requests remain pending, and
// the error has the reasons. It holds only a few requests in memory at a time, whatever
// their number and size.
func ApproveRequests(ctx context.Context, h *host.Host, job op.AutoApproval) (approved []string, err error) {
	a := approver{Host: h, job: job}
	limit, at := kubeletcsr.PageSize, ""
	for {
		page, err := a.listRequests(ctx, limit, at)
		if errors.As(err, new(*bounded.LimitError)) && limit > 1 {
			limit /= 2
			continue
		}
		if err != nil {
			a.leavePending(fmt.Errorf("listing requests: %w", err))
			break
		}
		for _, item := range page.Items {
			a.judgeRequest(ctx, item)
		}
		if at = page.Metadata.Continue; at == "" {
			break
		}
	}
	if a.more > 0 {
		a.left = append(a.left, fmt.Errorf("%d more requests remain pending", a.more))
	}
	return a.approved, errors.Join(a.left...)
}

// listRequests lists requests from a position on, at most limit.
func (a *approver) listRequests(ctx context.Context, limit int, at string) (page requests, err error) {
	query := url.Values{"fieldSelector": {"spec.signerName=" + kubeletcsr.Signer}, "limit": {strconv.Itoa(limit)}}
	if at != "" {
		query.Set("continue", at)
	}
	raw, err := a.getFromAPI(ctx, "?"+query.Encode())
	if err == nil {
		err = json.Unmarshal(raw, &page)
	}
	return page, err
}

// getFromAPI reads from the API server at the path in the last argument with a suffix.
func (a *approver) getFromAPI(ctx context.Context, more string) ([]byte, error) {
	out := &host.HeadWriter{Limit: bounded.Page + 1}
	if err := a.Run(ctx, host.Command{Argv: withSuffix(a.job.Get, more), Stdout: out}); err != nil {
		return nil, err
	}
	return bounded.ReadAll(bytes.NewReader(out.Buf), bounded.Page)
}

// withSuffix returns a command with a suffix on its last argument.
func withSuffix(argv []string, more string) []string {
	out := append([]string{}, argv...)
	out[len(out)-1] += more
	return out
}

// judgeRequest approves a request that a kubelet is allowed to make.
func (a *approver) judgeRequest(ctx context.Context, item json.RawMessage) {
	var req kubeletcsr.Request
	if err := json.Unmarshal(item, &req); err != nil {
		a.leavePending(err)
		return
	}
	if !req.IsPending() {
		return
	}
	err := kubeletcsr.CheckRequest(req, a.job.Kubelets)
	if err == nil {
		if err = a.approveRequest(ctx, req.Metadata.Name, item); err != nil && !a.isPending(ctx, req.Metadata.Name) {
			return // another control plane was faster
		}
	}
	if err != nil {
		a.leavePending(fmt.Errorf("still pending: %.80q of %.80q: %w", req.Metadata.Name, req.Spec.Username, err))
		return
	}
	a.approved = append(a.approved, fmt.Sprintf("%q of %q", req.Metadata.Name, req.Spec.Username))
}

// leavePending records why a request remains pending.
func (a *approver) leavePending(why error) {
	if len(a.left) < maxLeft {
		a.left = append(a.left, why)
	} else {
		a.more++
	}
}

// approveRequest approves a request as it was read: the API server rejects the approval
// if the request has changed since, or was created again with its name.
func (a *approver) approveRequest(ctx context.Context, name string, item json.RawMessage) error {
	object := map[string]any{}
	if err := json.Unmarshal(item, &object); err != nil {
		return err
	}
	object["status"] = map[string]any{"conditions": []any{kubeletcsr.ApprovedCondition()}}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	argv := withSuffix(a.job.Put, "/"+url.PathEscape(name)+"/approval")
	return a.Run(ctx, host.Command{Argv: argv, Stdin: bytes.NewReader(body), Stdout: new(host.HeadWriter)})
}

// isPending reports whether a request still waits for approval, as far as is known.
func (a *approver) isPending(ctx context.Context, name string) bool {
	raw, err := a.getFromAPI(ctx, "/"+url.PathEscape(name))
	var e *op.Error
	if errors.As(err, &e) && strings.Contains(e.Detail, "(NotFound)") {
		return false
	}
	var req kubeletcsr.Request
	return err != nil || json.Unmarshal(raw, &req) != nil || req.IsPending()
}
