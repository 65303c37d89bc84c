//go:build !long

package controller

// runReplica runs a server of a long test instead of the tests.
func runReplica() (code int, ran bool) { return 0, false }
