// Package hostconn connects to the hosts of clusters for queries and for work outside of
// operations.
package hostconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// MaxParallel limits the number of hosts that are queried at the same time.
const MaxParallel = 100

// connectTimeout limits each step of connecting for a query.
const connectTimeout = 10 * time.Second

// A Dialer connects to hosts.
type Dialer struct {
	// Connect connects to a host.
	Connect func(context.Context, v1alpha1.Host, remote.Options) (remote.Host, error)
	// KnownHosts is the file with the host keys. Home is the user's home, for SSH keys.
	KnownHosts, Home string
	Log              *slog.Logger
}

// QueryOptions returns the options for queries and work outside of operations: a host that
// does not respond is not waited for.
func (d Dialer) QueryOptions() remote.Options {
	return remote.Options{KnownHosts: d.KnownHosts, Home: d.Home, Log: d.Log, Timeout: connectTimeout, Reconnect: -1}
}

// Dial connects to a host of a cluster for a query.
func (d Dialer) Dial(ctx context.Context, c *v1alpha1.Cluster, h v1alpha1.Host) (remote.Host, error) {
	return d.Connect(ctx, WithSSH(c, h), d.QueryOptions())
}

// WithSSH returns a host with all its SSH settings.
func WithSSH(c *v1alpha1.Cluster, h v1alpha1.Host) v1alpha1.Host {
	h.SSH = spec.MergeSSH(c.Spec.SSH, h.SSH)
	return h
}

// ForEach calls do for all elements of a list in parallel, and waits for the calls.
func ForEach[T any](list []T, do func(T)) {
	var g errgroup.Group
	g.SetLimit(MaxParallel)
	for _, x := range list {
		g.Go(func() error { do(x); return nil })
	}
	_ = g.Wait() // do keeps the errors
}

// Diagnose converts an error of a host into a diagnostic.
func Diagnose(err error) *diag.Diagnostic {
	d := &diag.Diagnostic{Severity: diag.Error, Message: err.Error()}
	var broken *transfer.BrokenError
	if errors.As(err, &broken) {
		d.Message = broken.Err.Error()
	}
	var e *remote.Error
	if errors.As(err, &e) {
		d.ID, d.Message, d.Hint = string(e.Reason), e.Cause, e.Remedy
	}
	if broken != nil {
		d.Message += "; the received part is kept in " + broken.Part + ", and the next copy to the same place uses it"
	}
	return d
}

// Unresponsive is the error for a host that does not respond in time, although it may be
// connected.
func Unresponsive(host string, limit time.Duration) error {
	return &remote.Error{
		Host: host, Reason: remote.Unreachable, Cause: fmt.Sprintf("the host did not respond within %s", limit), Err: context.DeadlineExceeded,
		Remedy: "check whether the host or its disk is overloaded: slipway ssh " + host,
	}
}

// TimeoutCause returns the cause of a time-out instead of the resulting error.
func TimeoutCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, context.DeadlineExceeded) {
		return cause
	}
	return err
}

// queryTimeout limits Query and QueryResult.
const queryTimeout = 30 * time.Second

// Query returns the output of a read-only operation on a host.
func Query(ctx context.Context, host remote.Host, o op.Op) ([]byte, error) {
	result, err := QueryResult(ctx, host, o)
	return result.Output, err
}

// QueryResult returns the result of a read-only operation on a host.
func QueryResult(ctx context.Context, host remote.Host, o op.Op) (op.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, Unresponsive(host.Name(), queryTimeout))
	defer cancel()
	results, err := host.Check(ctx, op.List{o})
	switch {
	case err != nil:
		return op.Result{}, TimeoutCause(ctx, err)
	case len(results) != 1:
		return op.Result{}, fmt.Errorf("the node helper returned %d results for one operation", len(results))
	case results[0].Error != nil:
		return op.Result{}, results[0].Error
	}
	return results[0], nil
}
