//go:build long

package controlplane_test

import "time"

const (
	killCount   = 50
	renewalTime = time.Minute
	// renewedLifetime is renewed after two thirds: every 10 seconds.
	renewedLifetime = 15 * time.Second
)
