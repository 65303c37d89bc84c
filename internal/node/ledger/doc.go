// Package ledger keeps what a host was like before Slipway first changed it,
// so that it can be put back. Linux only.
package ledger
