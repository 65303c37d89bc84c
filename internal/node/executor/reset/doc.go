// Package reset removes Kubernetes from this host, and restores the host from the ledger.
// Linux only.
package reset
