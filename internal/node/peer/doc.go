// Package peer moves content from host to host: a Lender gives what its host
// holds to those who show a token that the manager has announced, and Receive
// takes it, from one host after another if need be, and from the manager in the
// end. The manager decides who gives to whom; both ends know each other by what
// it told them, over their sessions with it: the giver by its certificate, the
// taker by its token. All of it lives in memory and ends with the helper.
package peer

import "time"

const (
	// maxConns is how many connections it has, those included that have not
	// shown a token yet.
	maxConns = 16
	// loanTime is how long a token waits for its use.
	loanTime = 2 * time.Minute
	// holdTime is how long content is held that nobody wants or takes.
	holdTime = 2 * time.Minute

	// dialTime is for reaching a host: one behind a firewall never answers.
	dialTime = 3 * time.Second
	// answerTime is for each step until content comes.
	answerTime = 5 * time.Second
	// busyTime is how long one waits who comes while as many are served as may
	// be: one of them may have gone away without a word.
	busyTime = 2 * time.Second
	// A transfer that brings less than pace bytes in paceTime is given up.
	pace     = 1 << 20
	paceTime = 5 * time.Second
)

// What a giver answers to a token, one byte; content follows accepted.
const (
	accepted = 1
	refused  = 2
)

// requestSize is a token and an offset.
const requestSize = 32 + 8
