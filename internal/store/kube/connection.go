package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/records"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idDamaged    = "record-damaged"     // as in package store
	idUnwritable = "records-unwritable" // as in package store
	idForeign    = "records-foreign"    // as in package store
)

// requestTime limits one request.
const requestTime = 15 * time.Second

// A connection is a configuration with its clients.
type connection struct {
	Config
	core      kubernetes.Interface
	own       rest.Interface // the kinds of Slipway
	leases    coordinationv1.LeasesGetter
	sightings leaseSightings
	archive   archiveReader
	deleted   schedule
}

// repeat calls f until it succeeds, fails for a reason that does not end on its own, or the patience
// ends. f must give the same result if an earlier call had an effect although it failed: a request
// can time out after it was executed.
func (c *connection) repeat(ctx context.Context, f func(ctx context.Context) error) error {
	return c.repeatEach(ctx, min(requestTime, c.Patience), f)
}

// repeatEach is repeat with another limit for each call.
func (c *connection) repeatEach(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	patient, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	last := context.Cause(patient)
	_ = backoff.DelayFunc().Until(patient, true, true, func(context.Context) (bool, error) { // last has its error
		request, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		last = f(request)
		return last == nil || ctx.Err() != nil || !isTemporary(last), nil
	})
	if last != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return explainError(last)
}

// isTemporary reports whether a request that failed can succeed later: the server asks for it, or
// no answer has arrived.
func isTemporary(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return !isFull(err) && (apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
			apierrors.IsTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
			apierrors.IsUnexpectedServerError(err))
	}
	var (
		request     *url.Error
		certificate *tls.CertificateVerificationError
		network     net.Error
	)
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &certificate):
		return false
	case errors.As(err, &request), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return true
	}
	return strings.Contains(err.Error(), "when reading response body") // of client-go
}

// isFull reports whether an API server has no room for a write: its answer is 507, or the error of
// etcd with its quota used up.
func isFull(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == http.StatusInsufficientStorage {
		return true
	}
	return err != nil && strings.Contains(err.Error(), "database space exceeded")
}

// explainError adds a hint to an error after which nothing can be saved.
func explainError(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", records.ErrNotFound, err)
	case isFull(err):
		return diag.Refuse(idUnwritable, "the API server has no room to save records: "+err.Error(),
			"delete objects that are not needed or give the API server more space, then continue with a retry of the operation")
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return diag.Refuse(idUnwritable, "the API server refuses access to records: "+err.Error(),
			"give the account of this program the rights of Slipway's controllers in this namespace")
	}
	return err
}

// damagedError returns the error for an object that cannot be read. Its content is not guessed.
func damagedError(what string, err error) error {
	if errors.As(err, new(diag.List)) {
		return err // the content is not the problem
	}
	return diag.Refuse(idDamaged, fmt.Sprintf("%s is damaged: %v", what, err), "restore the object from a backup")
}
