//go:build !apiserver

package lifecycle

import (
	"context"
	"testing"
)

// runTests runs all tests that need no API server.
func runTests(m *testing.M) int { return m.Run() }

// runManager does nothing: only tests with an API server run managers in separate processes.
func runManager(context.Context) {}
