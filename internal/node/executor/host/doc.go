// Package host gives operations access to one host during a list of operations: its
// files, programs, state directory and ledger. Linux only.
package host
