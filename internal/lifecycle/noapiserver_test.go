//go:build !apiserver

package lifecycle

import "testing"

// runTests runs all tests that need no API server.
func runTests(m *testing.M) int { return m.Run() }
