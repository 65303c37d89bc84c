// Package source is what the sources of a bundle have in common: what they are
// asked for, and what they hand over.
package source

import (
	"errors"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/release"
)

// ErrSilent is a source that does not answer, or that lacks what is asked for.
// It does not cover content whose checksum is wrong.
var ErrSilent = errors.New("the source does not answer")

// A Phase is what is being done for a component.
type Phase string

// The phases.
const (
	Fetching  Phase = "fetching"
	Compiling Phase = "compiling"
	Packing   Phase = "packing"
	Cached    Phase = "cached" // taken from the cache: nothing to do
	Done      Phase = "done"
	Note      Phase = "note" // something to tell about the build as a whole
)

// Progress is what a build is doing.
type Progress struct {
	// Component is such as "kubernetes linux/amd64".
	Component string
	Phase     Phase
	// Done and Total count what Unit says; Total 0 is unknown.
	Done, Total int64
	Unit        string // "bytes", "packages" or ""
	Message     string // what exactly: a module, a package, a URL
	// Elapsed is the time since the component was begun.
	Elapsed time.Duration
}

// A Request is what a source is asked for.
type Request struct {
	Release release.Release
	Arches  []string
	// Docker asks for what runtime docker needs besides.
	Docker bool
	// Report takes progress, one call at a time; nil is fine.
	Report func(Progress)
}

// ReportProgress reports progress if anyone listens.
func (r Request) ReportProgress(p Progress) {
	if r.Report != nil {
		r.Report(p)
	}
}

// An Origin is something the content was made from, with its checksum.
type Origin struct {
	// For names the component or image that it is part of.
	For string `json:"for"`
	// Kind is module, package, file, image or tool.
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Sum is "h1:…" of a module, "sha256:…" of anything else.
	Sum string `json:"sum,omitempty"`
}

// A Component is programs for hosts.
type Component struct {
	Name, Version, Arch, Licence string
	File                         pack.File
}

// An Image is a container image. Its layers may be pack.Layers, which are
// taken over without copying.
type Image struct {
	Name, Version, Arch, Licence string
	Ref                          string
	Image                        v1.Image
	// Extra says that a manifest names it; Index is then what its registry says of
	// its architectures, if it has several.
	Extra bool
	Index []byte
}

// Parts are what a bundle is made of.
type Parts struct {
	Components []Component
	Images     []Image
	Origins    []Origin
}

// Append takes over other's parts.
func (p *Parts) Append(other Parts) {
	p.Components = append(p.Components, other.Components...)
	p.Images = append(p.Images, other.Images...)
	p.Origins = append(p.Origins, other.Origins...)
}
