package bundle

import (
	"context"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"slipway.dev/slipway/internal/bundle/layout"
)

// Merge combines several bundles for different architectures into one bundle in the
// cache, as if they had been built together: the same content gives the same digest.
// Their signatures are dropped. Every byte is compared with its digest. The error is a
// diag.List if the user can fix it.
func Merge(ctx context.Context, cache string, parts ...*Bundle) (*Bundle, error) {
	m, images, err := uniteManifests(parts)
	if err != nil {
		return nil, err
	}
	b, err := createInCache(ctx, cache, nil, func(d layout.Dir) error {
		for _, p := range parts {
			for digest := range p.manifest.blobSizes() {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := copyBlob(d, p, digest); err != nil {
					return err
				}
			}
		}
		return addManifest(d, m, images)
	})
	return b, explainError(cache, err)
}

// uniteManifests combines the manifests of all parts, which must match.
func uniteManifests(parts []*Bundle) (Manifest, []v1.Descriptor, error) {
	first := parts[0].manifest
	m := Manifest{SchemaVersion: schemaVersion, Kubernetes: first.Kubernetes, Source: first.Source}
	var images []v1.Descriptor
	for _, p := range parts {
		refuse := func(format string, args ...any) error {
			return newProblem(IDMerge, "name bundles of the same version and source, each for different architectures", format, args...)
		}
		switch {
		case p.manifest.Kubernetes != m.Kubernetes:
			return Manifest{}, nil, refuse("one bundle has Kubernetes %s, another has %s", m.Kubernetes, p.manifest.Kubernetes)
		case p.manifest.Source != m.Source:
			return Manifest{}, nil, refuse("one bundle is from %s, another is from %s", m.Source, p.manifest.Source)
		}
		for _, arch := range p.manifest.Arches {
			if slices.Contains(m.Arches, arch) {
				return Manifest{}, nil, refuse("more than one of the bundles is for %s", arch)
			}
			m.Arches = append(m.Arches, arch)
		}
		for _, c := range p.manifest.Components {
			if other := recordedVersion(m, c); other != c.Version {
				return Manifest{}, nil,
					refuse("one bundle has %s %s, another has %s: build both with the same version of Slipway", c.Name, other, c.Version)
			}
		}
		m.Components = append(m.Components, p.manifest.Components...)
		m.Images = append(m.Images, p.manifest.Images...)
		m.Origins = append(m.Origins, p.manifest.Origins...)
		images = append(images, p.index.Manifests[1:]...)
	}
	slices.SortFunc(m.Arches, strings.Compare)
	sortContents(&m, images)
	return m, images, nil
}

// recordedVersion returns the version of a component that the manifest already has for another
// architecture; without one, the version of c.
func recordedVersion(m Manifest, c Component) string {
	for _, have := range m.Components {
		if have.Name == c.Name {
			return have.Version
		}
	}
	return c.Version
}
