//go:build linux

package executor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// verdict is the result of a check.
type verdict struct {
	// change describes the change in one line; "" if there is none.
	change string
	diff   string
	output []byte
	// missing and secret are as in op.Result.
	missing, secret bool
	// wrote has the resulting states of paths.
	wrote map[string]string
}

// check sets the status and evidence of a result.
func (s *session) check(ctx context.Context, o op.Op, res *op.Result) {
	v, err := s.look(ctx, o)
	if err != nil {
		res.Status, res.Error = op.Failed, failure(fmt.Errorf("checking %s %s: %w", o.Kind(), o.Target(), err))
		return
	}
	res.Status = op.Unchanged
	if v.change != "" {
		res.Status = op.Changed
	}
	res.Summary, res.Diff = v.change, v.diff
	res.Output, res.Missing, res.Secret = v.output, v.missing, v.secret
	if s.planning {
		for p, state := range v.wrote {
			if _, will := s.predicted[p]; will || v.change != "" { // else it is not changed
				s.predicted[p] = state
			}
		}
	}
}

// stateOf returns the state of a path, now or after the earlier operations.
func (s *session) stateOf(path string) (string, error) {
	if state, ok := s.predicted[path]; ok {
		return state, nil
	}
	return ledger.State(s.path(path))
}

func (s *session) look(ctx context.Context, o op.Op) (verdict, error) {
	x, err := s.operationOf(o)
	if err != nil {
		return verdict{}, err
	}
	if x, ok := x.(pathUser); ok {
		if err := requireCleanPaths(x.Paths()); err != nil {
			return verdict{}, err
		}
	}
	return x.Check(ctx, s)
}

// apply applies one operation. res has the result of the check.
func (s *session) apply(ctx context.Context, o op.Op, res *op.Result) error {
	x, err := s.operationOf(o)
	if x, ok := x.(changer); ok {
		err = x.Apply(ctx, s, res)
	} else if err == nil {
		err = invalid("operations of kind %q cannot change anything", o.Kind())
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
			return invalid("%q is not a clean absolute path", p)
		}
	}
	return nil
}

// named returns the given paths.
func named(paths ...string) []string {
	return slices.DeleteFunc(paths, func(p string) bool { return p == "" })
}
