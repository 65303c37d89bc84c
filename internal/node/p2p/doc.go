// Package p2p copies content from host to host: a Lender sends its content to hosts that
// present a token from the manager, and Receive fetches it, from several hosts in turn if
// needed, and finally from the manager. The manager decides which host sends to which.
// Both ends identify each other by data from their sessions with the manager: the sender
// by its certificate, the receiver by its token. Everything is in memory and ends with
// the helper.
package p2p

import "time"

const (
	// maxConns limits its connections, including connections without a token yet.
	maxConns = 16
	// loanTime is how long a token is valid.
	loanTime = 2 * time.Minute
	// holdTime is how long content is kept that no host requests or fetches.
	holdTime = 2 * time.Minute

	// dialTime limits the time to connect to a host: one behind a firewall never answers.
	dialTime = 3 * time.Second
	// answerTime limits each step until content arrives.
	answerTime = 5 * time.Second
	// busyTime is how long a new connection waits while the maximum is served: one of the
	// others may have gone away silently.
	busyTime = 2 * time.Second
	// A transfer with less than pace bytes in paceTime is aborted.
	pace     = 1 << 20
	paceTime = 5 * time.Second
)

// The answer of a sender to a token, one byte; content follows accepted.
const (
	accepted = 1
	refused  = 2
)

// requestSize is the size of a token and an offset.
const requestSize = 32 + 8
