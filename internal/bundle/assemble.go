package bundle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/node/op"
)

// assembleLayout writes a bundle's layout to dir from its parts.
func assembleLayout(dir string, head Manifest, parts source.Parts) error {
	d, err := layout.Create(dir)
	if err != nil {
		return err
	}
	m := head
	m.SchemaVersion = schemaVersion
	m.Origins = parts.Origins
	for _, c := range parts.Components {
		if err := d.AddFile(c.File.Digest, c.File.Path); err != nil {
			return fmt.Errorf("adding %s: %w", c.Name, err)
		}
		m.Components = append(m.Components, Component{
			Name: c.Name, Version: c.Version, Arch: c.Arch, Licence: c.Licence,
			Blob: op.Blob{Digest: c.File.Digest, Size: c.File.Size}, Members: c.File.Members,
		})
	}
	var images []v1.Descriptor
	for _, i := range parts.Images {
		got, desc, err := addImage(d, i.Image)
		if err != nil {
			return fmt.Errorf("adding image %s: %w", i.Name, err)
		}
		got.Ref = i.Ref
		m.Images = append(m.Images,
			Image{Name: i.Name, Version: i.Version, Arch: i.Arch, Licence: i.Licence, Extra: i.Extra, Index: i.Index, Image: got})
		desc.Annotations = map[string]string{annotationName: i.Name, annotationRef: i.Ref}
		desc.Platform = &v1.Platform{OS: "linux", Architecture: i.Arch}
		images = append(images, desc)
	}
	sortContents(&m, images)
	return addManifest(d, m, images)
}

// sortContents makes the bytes independent of the order in which sources run.
func sortContents(m *Manifest, images []v1.Descriptor) {
	slices.SortFunc(m.Components, func(a, b Component) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch))
	})
	slices.SortFunc(m.Images, func(a, b Image) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch))
	})
	slices.SortFunc(images, func(a, b v1.Descriptor) int {
		return cmp.Or(cmp.Compare(a.Annotations[annotationName], b.Annotations[annotationName]),
			cmp.Compare(a.Platform.Architecture, b.Platform.Architecture))
	})
	slices.SortFunc(m.Origins, func(a, b source.Origin) int {
		return cmp.Or(cmp.Compare(a.For, b.For), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Sum, b.Sum))
	})
	m.Origins = slices.Compact(m.Origins)
}

const (
	annotationName = "dev.slipway.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// addManifest writes config, artifact manifest and index, and makes the index
// the root.
func addManifest(d layout.Dir, m Manifest, images []v1.Descriptor) error {
	config, err := addJSON(d, m, MediaTypeConfig)
	if err != nil {
		return err
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: MediaTypeArtifact, Config: config}
	seen := map[string]bool{}
	for _, c := range m.Components {
		if seen[c.Digest] {
			continue
		}
		seen[c.Digest] = true
		h, err := v1.NewHash(c.Digest)
		if err != nil {
			return err
		}
		manifest.Layers = append(manifest.Layers, v1.Descriptor{
			MediaType: types.OCILayer, Digest: h, Size: c.Size,
			Annotations: map[string]string{annotationName: c.Name},
		})
	}
	first, err := addJSON(d, manifest, types.OCIManifestSchema1)
	if err != nil {
		return err
	}
	first.ArtifactType = MediaTypeArtifact
	raw, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex, ArtifactType: MediaTypeArtifact,
		Manifests:   append([]v1.Descriptor{first}, images...),
		Annotations: map[string]string{"dev.slipway.kubernetes": m.Kubernetes},
	})
	if err != nil {
		return err
	}
	return addRoot(d, raw)
}

func addRoot(d layout.Dir, index []byte) error {
	root, err := addRaw(d, index, types.OCIImageIndex)
	if err != nil {
		return err
	}
	return d.SetRoot(root)
}

func addJSON(d layout.Dir, v any, media types.MediaType) (v1.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return addRaw(d, data, media)
}

func addRaw(d layout.Dir, data []byte, media types.MediaType) (v1.Descriptor, error) {
	digest, err := d.AddBytes(data)
	if err != nil {
		return v1.Descriptor{}, err
	}
	h, err := v1.NewHash(digest)
	return v1.Descriptor{MediaType: media, Digest: h, Size: int64(len(data))}, err
}

// addImage stores an image and returns its description for hosts.
func addImage(d layout.Dir, img v1.Image) (op.Image, v1.Descriptor, error) {
	desc, m, err := d.AddImage(img)
	if err != nil {
		return op.Image{}, v1.Descriptor{}, err
	}
	out := op.Image{
		Manifest:  op.Blob{Digest: desc.Digest.String(), Size: desc.Size},
		MediaType: string(desc.MediaType),
		Blobs:     []op.Blob{{Digest: m.Config.Digest.String(), Size: m.Config.Size}},
	}
	for _, l := range m.Layers {
		out.Blobs = append(out.Blobs, op.Blob{Digest: l.Digest.String(), Size: l.Size})
	}
	return out, desc, nil
}

func isDiagnostic(err error) bool {
	var d diag.List
	return errors.As(err, &d)
}
