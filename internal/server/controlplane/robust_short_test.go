//go:build !long

package controlplane_test

import "time"

// The tag long selects the complete tests.
const (
	killCount   = 5
	renewalTime = 25 * time.Second
)
