// Package upstream makes the parts of a bundle from official releases, with
// their published checksums, and from images in registries.
package upstream

import (
	"context"

	"slipway.dev/slipway/internal/bundle/source"
)

// Options say where releases and images are downloaded from.
type Options struct {
	// Mirror is a preset: "" for the official sites, "cn" for mirrors in
	// China.
	Mirror string
	// Sites replaces base URLs of the preset, by name.
	Sites map[string]string
}

// Mirrors are the presets by name.
func Mirrors() []string { return []string{"cn"} }

// A Source downloads.
type Source struct {
	opts  Options
	cache string
}

// New makes a source that keeps downloads below cache.
func New(o Options, cache string) *Source { return &Source{opts: o, cache: cache} }

// Probe says whether the release site answers.
func (s *Source) Probe(context.Context, source.Request) error { return source.ErrSilent }

// Ready says whether all files are in the cache.
func (s *Source) Ready(context.Context, source.Request) bool { return false }

// Parts downloads everything.
func (s *Source) Parts(context.Context, source.Request) (source.Parts, error) {
	return source.Parts{}, source.ErrSilent
}
