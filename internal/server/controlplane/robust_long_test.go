//go:build long

package controlplane_test

import "time"

const (
	killCount   = 50
	renewalTime = time.Minute
)
