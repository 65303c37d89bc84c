package remote

import (
	"context"
	"fmt"
	"io"
)

// A Spreader is a Blobs that also lets hosts fetch content from each other.
type Spreader interface {
	Blobs
	// Want registers the request of a host for a blob of this size; End of the Wish ends
	// it.
	Want(by Lender, digest string, size int64) Wish
}

// A Wish is the request of a host for a blob. Its methods are not called concurrently.
type Wish interface {
	// Next returns a source for the content from offset on. A second call means that the
	// previous source did not work. It waits for a host that has the content only as long
	// as waiting is useful.
	Next(ctx context.Context, offset int64) (Source, error)
	// End reports the result.
	End(Outcome)
}

// A Source is a source of content for a host.
type Source struct {
	// Offer is a grant by another host. Without one, the manager sends Content; the
	// receiver closes it.
	Offer   *Offer
	Content io.ReadCloser
	// Share asks the host to keep the content for others and to report the result.
	Share bool
}

// An Outcome is the result of a request for a blob.
type Outcome string

// The outcomes.
const (
	// Unknown means that the host is gone, or no longer requests the blob.
	Unknown Outcome = ""
	// The content was verified, and is kept for others.
	Whole Outcome = "whole"
	// Wrong means that the content was complete, but had another digest.
	Wrong Outcome = "wrong"
	// Next is not a result yet: the source did not work.
	Next Outcome = "next"
)

// A Lender is a host that sends content to others, as long as the manager's session with
// it lasts. Its methods can be called concurrently.
type Lender interface {
	// Name is the name of the host in the cluster.
	Name() string
	// Lend makes the host send a blob to a host that presents the token of the loan. An
	// offer without an address means that the host no longer has the blob. The offer ends
	// with ctx, whatever the host does.
	Lend(ctx context.Context, l Loan) (Offer, error)
	// Done is closed at the end of the session.
	Done() <-chan struct{}
}

// LoansAtOnce limits to how many other hosts a host sends content at the same time.
const LoansAtOnce = 3

// A Loan is content that a host must send to another host once.
type Loan struct {
	Digest string `json:"digest,omitempty"`
	// Address is the IP address of the host for other hosts: it listens only there.
	Address string `json:"address,omitempty"`
	// Token is valid for one use, at most for two minutes.
	Token Token `json:"token,omitempty"`
}

// An Offer is content that another host sends once.
type Offer struct {
	// Address is its listen address with the port.
	Address string `json:"address,omitempty"`
	// Certificate is the SHA-256 of its certificate.
	Certificate []byte `json:"certificate,omitempty"`
	Token       Token  `json:"token,omitempty"`
}

// A Token is a secret of TokenSize random bytes. Printing it does not reveal it.
type Token []byte

// TokenSize is the size of tokens, in bytes.
const TokenSize = 32

// Format hides the token from all print functions.
func (Token) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "(token)") }
