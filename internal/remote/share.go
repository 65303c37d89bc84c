package remote

import (
	"context"
	"fmt"
	"io"
)

// A Spreader is a Blobs that has hosts get content from each other, too.
type Spreader interface {
	Blobs
	// Want begins the wish of a host for a blob of so many bytes; its End
	// ends it.
	Want(by Lender, digest string, size int64) Wish
}

// A Wish is a host that wants a blob. Its methods are not called concurrently.
type Wish interface {
	// Next answers where the host gets the content from offset on. Called
	// again, the host got no further with what was answered before. It waits
	// for a host that has the content only while waiting is worth it.
	Next(ctx context.Context, offset int64) (Source, error)
	// End says what became of it.
	End(Outcome)
}

// A Source is where a host gets content.
type Source struct {
	// Offer is another host's. Without one, Content is what the manager
	// sends; whoever takes it closes it.
	Offer   *Offer
	Content io.ReadCloser
	// Share asks the host to hold the content for others and to say what
	// became of it.
	Share bool
}

// An Outcome is what became of a blob at the host that wanted it.
type Outcome string

// The outcomes.
const (
	// Unknown is that of a host that is gone, or asks no more.
	Unknown Outcome = ""
	// Whole content was verified, and is held for others.
	Whole Outcome = "whole"
	// Wrong content came to its end and is something else.
	Wrong Outcome = "wrong"
	// Next is no outcome yet: the source was of no use.
	Next Outcome = "next"
)

// A Lender is a host that gives content to others, as long as the manager's
// session with it lasts. Its methods may be called concurrently.
type Lender interface {
	// Name is the host's name in the cluster.
	Name() string
	// Lend has the host give a blob to one that shows the loan's token. An
	// offer without an address is that of a host that holds it no more. It
	// does not outlast ctx, whatever the host does.
	Lend(ctx context.Context, l Loan) (Offer, error)
	// Done is closed when the session is over.
	Done() <-chan struct{}
}

// LoansAtOnce is how many others a host gives content to at once.
const LoansAtOnce = 3

// A Loan is content that a host is to give to another, once.
type Loan struct {
	Digest string `json:"digest,omitempty"`
	// Address is the host's own IP address, by which others reach it: it
	// listens there and nowhere else.
	Address string `json:"address,omitempty"`
	// Token ends with its use, or after two minutes.
	Token Token `json:"token,omitempty"`
}

// An Offer is content that another host gives, once.
type Offer struct {
	// Address is where it listens, with the port.
	Address string `json:"address,omitempty"`
	// Certificate is the SHA-256 of the certificate that it shows.
	Certificate []byte `json:"certificate,omitempty"`
	Token       Token  `json:"token,omitempty"`
}

// A Token is a secret of TokenSize random bytes. It prints as nothing of use.
type Token []byte

// TokenSize is the size of tokens, in bytes.
const TokenSize = 32

// Format hides the token from all that prints.
func (Token) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "(token)") }
