// Package health checks whether components respond, and waits for them. Linux only.
package health
