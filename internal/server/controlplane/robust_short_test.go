//go:build !long

package controlplane_test

import "time"

// The tag long selects the complete tests.
const (
	killCount   = 3
	renewalTime = 40 * time.Second
	// renewedLifetime is renewed after two thirds, and leaves a third for other programs
	// that compile at the same time.
	renewedLifetime = 45 * time.Second
)
