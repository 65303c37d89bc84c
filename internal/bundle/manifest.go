// Package bundle makes, opens and checks bundles. A bundle is everything a
// cluster needs: an OCI image layout, in a directory or one .tar.zst file, of
// component blobs, container images, and a config blob that lists them. It is
// content-addressed: its digest covers every byte.
package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/node/op"
)

// Media types of a bundle's own parts.
const (
	// MediaTypeArtifact is the artifact type of the bundle's manifest.
	MediaTypeArtifact = "application/vnd.slipway.bundle.v1"
	// MediaTypeConfig is the type of the config blob, a Manifest in JSON.
	MediaTypeConfig = "application/vnd.slipway.bundle.config.v1+json"
)

const schemaVersion = 1

// maxManifest bounds a config blob, in bytes: a real one has some 200 KB.
const maxManifest = 8 << 20

// A Manifest lists what a bundle holds. It has no time in it, so that the same
// content gives the same bytes.
type Manifest struct {
	SchemaVersion int `json:"schemaVersion"`
	// Kubernetes is the version: "v1.37.1".
	Kubernetes string   `json:"kubernetes"`
	Arches     []string `json:"arches"`
	// Source is where the content came from: modules or upstream.
	Source     string      `json:"source"`
	Components []Component `json:"components"`
	Images     []Image     `json:"images"`
	// Origins are the modules, packages and files it was made from.
	Origins []source.Origin `json:"origins,omitempty"`
}

// A Component is programs for hosts: a gzip'd tar.
type Component struct {
	// Name is kubernetes, containerd, crictl, cni-plugins, etcd or nettools.
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
	// Licence is an SPDX expression.
	Licence string `json:"licence"`
	op.Blob
	// Members are the names of files and links in the tar.
	Members []string `json:"members"`
}

// An Image is a container image by its short name: kube-apiserver, etcd…
type Image struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
	Licence string `json:"licence"`
	// Extra says that it is in the bundle because a manifest names it. Index is
	// then what its registry says of its architectures: its digest is the image's,
	// whichever of them are here.
	Extra bool   `json:"extra,omitempty"`
	Index []byte `json:"index,omitempty"`
	op.Image
}

// Size is that of the image's manifest, config and layers, in bytes. Layers
// may be shared with other images.
func (i Image) Size() int64 {
	n := i.Manifest.Size
	for _, b := range i.Blobs {
		n += b.Size
	}
	return n
}

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	nameForm   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	// versionForm is that of versions of Kubernetes: they become names of files.
	versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.-]+)?$`)
)

// Every bundle has these for each of its architectures, whatever it was made from.
var (
	everyComponent = []string{"kubernetes", "containerd", "crictl", "cni-plugins", "etcd"}
	everyImage     = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns", "pause"}
)

// ParseManifest reads a config blob and checks its form. What it returns can
// be trusted to hold well-formed names, digests and sizes.
func ParseManifest(data []byte) (Manifest, error) {
	var m Manifest
	if len(data) > maxManifest {
		return Manifest{}, fmt.Errorf("the config has %d bytes, which is too large", len(data))
	}
	var head struct {
		SchemaVersion int `json:"schemaVersion"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Manifest{}, fmt.Errorf("parsing config: %w", err)
	}
	if head.SchemaVersion != schemaVersion {
		return Manifest{}, fmt.Errorf("the config has schema version %d, but this Slipway reads %d", head.SchemaVersion, schemaVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("parsing config: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Manifest{}, errors.New("parsing config: unexpected data after its end")
	}
	if err := checkTexts(data); err != nil {
		return Manifest{}, err
	}
	return m, m.check()
}

// checkTexts refuses control characters in any text: a bundle that nobody has signed is
// shown to people, too.
func checkTexts(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("parsing config: %w", err)
		}
		if text, ok := token.(string); ok && strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("config: %.80q contains control characters", text)
		}
	}
}

func (m Manifest) check() error {
	if err := m.checkHead(); err != nil {
		return err
	}
	seen := map[string]bool{}
	once := func(kind, name, arch string) error {
		if !nameForm.MatchString(name) || !nameForm.MatchString(arch) {
			return fmt.Errorf("config: %q (%q) is not a valid %s name", name, arch, kind)
		}
		key := kind + " " + name + " " + arch
		if seen[key] {
			return fmt.Errorf("config lists %s more than once", key)
		}
		seen[key] = true
		return nil
	}
	for _, c := range m.Components {
		if err := errors.Join(once("component", c.Name, c.Arch), checkBlob(c.Blob)); err != nil {
			return err
		}
	}
	for _, i := range m.Images {
		err := errors.Join(once("image", i.Name, i.Arch), checkBlob(i.Manifest))
		for _, b := range i.Blobs {
			err = errors.Join(err, checkBlob(b))
		}
		if err == nil && i.Ref == "" {
			err = fmt.Errorf("config: image %s has no reference", i.Name)
		}
		if err != nil {
			return err
		}
	}
	return m.checkWhole(seen)
}

// checkHead refuses what the bundle's name in the cache is not to be made of.
func (m Manifest) checkHead() error {
	if !versionForm.MatchString(m.Kubernetes) {
		return fmt.Errorf("config: %.80q is not a version of Kubernetes", m.Kubernetes)
	}
	if len(m.Arches) == 0 {
		return errors.New("config names no architecture")
	}
	for i, arch := range m.Arches {
		if !slices.Contains(Arches, arch) || slices.Contains(m.Arches[:i], arch) {
			return fmt.Errorf("config: %.80q is not a supported architecture, or is listed more than once", arch)
		}
	}
	return nil
}

// checkWhole refuses a bundle that lacks what every one has: listed is what there is.
func (m Manifest) checkWhole(listed map[string]bool) error {
	for _, arch := range m.Arches {
		for _, name := range everyComponent {
			if !listed["component "+name+" "+arch] {
				return fmt.Errorf("config has no component %s for %s, which every bundle needs", name, arch)
			}
		}
		for _, name := range everyImage {
			if !listed["image "+name+" "+arch] {
				return fmt.Errorf("config has no image %s for %s, which every bundle needs", name, arch)
			}
		}
	}
	return nil
}

func checkBlob(b op.Blob) error {
	if !digestForm.MatchString(b.Digest) || b.Size < 0 {
		return fmt.Errorf("config: %q of %d bytes is not a valid blob", b.Digest, b.Size)
	}
	return nil
}

// blobs are all blobs the manifest names, each once.
func (m Manifest) blobs() map[string]int64 {
	out := map[string]int64{}
	for _, c := range m.Components {
		out[c.Digest] = c.Size
	}
	for _, i := range m.Images {
		out[i.Manifest.Digest] = i.Manifest.Size
		for _, b := range i.Blobs {
			out[b.Digest] = b.Size
		}
	}
	return out
}
