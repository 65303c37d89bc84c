//go:build linux

package executor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// check sets the status and evidence of a result.
func (s *session) check(ctx context.Context, o op.Op, res *op.Result) {
	v, err := s.runCheck(ctx, o)
	if err != nil {
		res.Status, res.Error = op.Failed, host.FailureOf(fmt.Errorf("checking %s %s: %w", o.Kind(), o.Target(), err))
		return
	}
	res.Status = op.Unchanged
	if v.Change != "" {
		res.Status = op.Changed
	}
	res.Summary, res.Diff = v.Change, v.Diff
	res.Output, res.Missing, res.Secret = v.Output, v.Missing, v.Secret
	if s.Planning {
		for p, state := range v.Wrote {
			if _, will := s.Predicted[p]; will || v.Change != "" { // else it is not changed
				s.Predicted[p] = state
			}
		}
	}
}

func (s *session) runCheck(ctx context.Context, o op.Op) (host.CheckResult, error) {
	x, err := s.OperationOf(o)
	if err != nil {
		return host.CheckResult{}, err
	}
	if x, ok := x.(host.PathUser); ok {
		if err := requireCleanPaths(x.Paths()); err != nil {
			return host.CheckResult{}, err
		}
	}
	return x.Check(ctx, s.Host)
}

// apply applies one operation. res has the result of the check.
func (s *session) apply(ctx context.Context, o op.Op, res *op.Result) error {
	x, err := s.OperationOf(o)
	if x, ok := x.(host.Changer); ok {
		err = x.Apply(ctx, s.Host, res)
	} else if err == nil {
		err = host.Invalid("operations of kind %q cannot change anything", o.Kind())
	}
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", o.Kind(), o.Target(), err)
	}
	return nil
}

// requireCleanPaths rejects paths that are not in canonical form.
func requireCleanPaths(paths []string) error {
	for _, p := range paths {
		if !filepath.IsAbs(p) || strings.ContainsRune(p, 0) || filepath.Clean(p) != p {
			return host.Invalid("%q is not a clean absolute path", p)
		}
	}
	return nil
}
