package kube

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"slipway.dev/slipway/api/v1alpha1"
)

// A Reason is a stable word for the reason why a request failed.
type Reason string

// The reasons.
const (
	// ReasonUnreachable: the API server does not respond; this may be temporary.
	ReasonUnreachable Reason = "APIUnreachable"
	// ReasonUnavailable: it responded, but cannot serve the request now.
	ReasonUnavailable Reason = "APIUnavailable"
	// ReasonTimeout: the time limit was reached.
	ReasonTimeout Reason = "Timeout"
	// ReasonCertificate: its certificate is not trusted or not valid.
	ReasonCertificate Reason = "CertificateInvalid"
	// ReasonUnauthorized: it does not accept the credentials. ReasonForbidden: the user
	// lacks the permission.
	ReasonUnauthorized Reason = "Unauthorized"
	ReasonForbidden    Reason = "Forbidden"
	// ReasonNotFound: the object does not exist.
	ReasonNotFound Reason = "NotFound"
	// ReasonConflict: another client changed the object in the meantime.
	ReasonConflict Reason = "Conflict"
	// ReasonInvalid: the object is invalid.
	ReasonInvalid Reason = "Invalid"
	// ReasonFailed: the object that was waited for has failed permanently.
	ReasonFailed Reason = "Failed"
	// ReasonOther: any other error of the API server.
	ReasonOther Reason = "APIError"
)

// An Error is a failed request with a message for users.
type Error struct {
	Reason  Reason
	Message string
	Err     error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether the same request may succeed later.
func (e *Error) Temporary() bool {
	return e.Reason == ReasonUnreachable || e.Reason == ReasonUnavailable || e.Reason == ReasonConflict
}

// ErrorCode returns the error code of an operation that fails because of the request.
func (e *Error) ErrorCode() v1alpha1.ErrorCode {
	switch e.Reason {
	case ReasonUnreachable, ReasonUnavailable, ReasonTimeout:
		return v1alpha1.ErrorUnreachable
	case ReasonUnauthorized, ReasonForbidden, ReasonCertificate:
		return v1alpha1.ErrorCredentials
	case ReasonConflict:
		return v1alpha1.ErrorConflict
	}
	return v1alpha1.ErrorInternal
}

// IsTemporary reports whether err is a request that may succeed later.
func IsTemporary(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Temporary()
}

func isNotFound(err error) bool { return err != nil && apierrors.IsNotFound(err) }

// describeError converts an error of the client libraries into an *Error with a plain message.
func (c *connection) describeError(err error) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	if reason, msg := c.reachError(err); reason != "" {
		return &Error{Reason: reason, Message: msg, Err: err}
	}
	if meta.IsNoMatchError(err) {
		return &Error{Reason: ReasonNotFound, Message: "the cluster does not know this kind: " + err.Error(), Err: err}
	}
	reason := ReasonOther
	switch {
	case apierrors.IsUnauthorized(err):
		return &Error{
			Reason: ReasonUnauthorized, Err: err,
			Message: "the API server does not accept this kubeconfig: its certificate may have expired, or it may belong to another cluster",
		}
	case apierrors.IsForbidden(err):
		reason = ReasonForbidden
	case apierrors.IsNotFound(err):
		reason = ReasonNotFound
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		reason = ReasonConflict
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		reason = ReasonInvalid
	case apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err),
		apierrors.IsTimeout(err), apierrors.IsInternalError(err):
		reason = ReasonUnavailable
	}
	return &Error{Reason: reason, Message: err.Error(), Err: err}
}

// reachError handles errors that occur before the API server responds.
func (c *connection) reachError(err error) (Reason, string) {
	host := c.server.Host
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		neterr  net.Error
	)
	switch {
	case errors.As(err, &unknown):
		return ReasonCertificate, fmt.Sprintf("the server at %s does not belong to this cluster: its certificate was signed by another CA", host)
	case errors.As(err, &name):
		return ReasonCertificate, fmt.Sprintf("the API server's certificate is not for %s: %v", host, name)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return ReasonCertificate, fmt.Sprintf("the API server's certificate is not valid now (valid from %s to %s)",
			invalid.Cert.NotBefore.UTC().Format(time.DateTime), invalid.Cert.NotAfter.UTC().Format(time.DateTime))
	case errors.As(err, &invalid):
		return ReasonCertificate, "the API server's certificate is not valid: " + invalid.Error()
	case errors.Is(err, context.Canceled):
		return ReasonTimeout, "the request was cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout, fmt.Sprintf("the API server at %s did not respond in time", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonUnreachable, fmt.Sprintf("no API server is listening at %s", host)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return ReasonUnreachable, fmt.Sprintf("the API server at %s closed the connection", host)
	case errors.As(err, &neterr):
		var u *url.Error
		if errors.As(err, &u) { // the message already has the address
			err = u.Err
		}
		return ReasonUnreachable, fmt.Sprintf("the API server at %s is unreachable: %v", host, err)
	}
	return "", ""
}
