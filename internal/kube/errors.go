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
)

// A Reason is a stable word for why a request failed.
type Reason string

// The reasons.
const (
	// ReasonUnreachable: no answer from the API server; it may come back.
	ReasonUnreachable Reason = "APIUnreachable"
	// ReasonUnavailable: it answered, but cannot serve now.
	ReasonUnavailable Reason = "APIUnavailable"
	// ReasonTimeout: the time given for it is over.
	ReasonTimeout Reason = "Timeout"
	// ReasonCertificate: it is not who it should be, or its certificate
	// has expired.
	ReasonCertificate Reason = "CertificateInvalid"
	// ReasonUnauthorized: it does not know us; ReasonForbidden: it does not
	// let us.
	ReasonUnauthorized Reason = "Unauthorized"
	ReasonForbidden    Reason = "Forbidden"
	// ReasonNotFound: what was named is not there.
	ReasonNotFound Reason = "NotFound"
	// ReasonConflict: another has written in between.
	ReasonConflict Reason = "Conflict"
	// ReasonInvalid: the object is refused as it is.
	ReasonInvalid Reason = "Invalid"
	// ReasonFailed: what was waited for has failed and will not come.
	ReasonFailed Reason = "Failed"
	// ReasonOther: anything else the API server said.
	ReasonOther Reason = "APIError"
)

// An Error is a request that failed, in words for people.
type Error struct {
	Reason  Reason
	Message string
	Err     error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Temporary says that the same request may succeed later.
func (e *Error) Temporary() bool {
	return e.Reason == ReasonUnreachable || e.Reason == ReasonUnavailable || e.Reason == ReasonConflict
}

// IsTemporary says that err is a request that may succeed later.
func IsTemporary(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Temporary()
}

func isNotFound(err error) bool { return err != nil && apierrors.IsNotFound(err) }

// words puts an error of the client libraries into words for people.
func (c *Client) words(err error) error {
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
			Message: "the API server does not accept this kubeconfig: its certificate may have expired, or it is of another cluster",
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

// reachError is about errors before the API server said anything.
func (c *Client) reachError(err error) (Reason, string) {
	host := c.server.Host
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		neterr  net.Error
	)
	switch {
	case errors.As(err, &unknown):
		return ReasonCertificate, fmt.Sprintf("the server that answers for %s is not of this cluster: its certificate is signed by another authority", host)
	case errors.As(err, &name):
		return ReasonCertificate, fmt.Sprintf("the API server's certificate is not for %s: %v", host, name)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return ReasonCertificate, fmt.Sprintf("the API server's certificate is not valid now (valid from %s to %s)",
			invalid.Cert.NotBefore.UTC().Format(time.DateTime), invalid.Cert.NotAfter.UTC().Format(time.DateTime))
	case errors.As(err, &invalid):
		return ReasonCertificate, "the API server's certificate is not valid: " + invalid.Error()
	case errors.Is(err, context.Canceled):
		return ReasonTimeout, "it was cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout, fmt.Sprintf("the API server at %s did not answer in time", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonUnreachable, fmt.Sprintf("nothing listens for the API at %s", host)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return ReasonUnreachable, fmt.Sprintf("the API server at %s closed the connection", host)
	case errors.As(err, &neterr):
		var u *url.Error
		if errors.As(err, &u) { // the URL has been said
			err = u.Err
		}
		return ReasonUnreachable, fmt.Sprintf("the API server at %s cannot be reached: %v", host, err)
	}
	return "", ""
}
