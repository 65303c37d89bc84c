// Package ledger saves the state of a host before Slipway's first change, so that it can
// be restored. Linux only.
package ledger
