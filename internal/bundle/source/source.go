// Package source has the types that the sources of a bundle share: their requests and
// their results.
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

// A Phase is the current step of the work on a component.
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

// Progress describes the current step of a build.
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

// A Request describes the content that a source must provide.
type Request struct {
	Release release.Release
	Arches  []string
	// Docker requests the additional components of runtime docker.
	Docker bool
	// Report is called with progress, one call at a time; it may be nil.
	Report func(Progress)
}

// ReportProgress calls Report if it is set.
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

// An Image is a container image. Layers of type pack.Layer are used without copying.
type Image struct {
	Name, Version, Arch, Licence string
	Ref                          string
	Image                        v1.Image
	// Extra reports whether a manifest names the image. Index is then the registry's list
	// of its architectures, if it has several.
	Extra bool
	Index []byte
}

// Parts holds the parts of a bundle.
type Parts struct {
	Components []Component
	Images     []Image
	Origins    []Origin
}

// Append adds the parts of other.
func (p *Parts) Append(other Parts) {
	p.Components = append(p.Components, other.Components...)
	p.Images = append(p.Images, other.Images...)
	p.Origins = append(p.Origins, other.Origins...)
}
