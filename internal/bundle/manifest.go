// Package bundle creates, opens and checks bundles. A bundle has everything that a
// cluster needs: an OCI image layout, in a directory or one .tar.zst file, with component
// blobs, container images, and a config blob that lists them. It is content-addressed:
// its digest covers every byte.
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

// Media types of the parts of a bundle.
const (
	// MediaTypeArtifact is the artifact type of the bundle's manifest.
	MediaTypeArtifact = "application/vnd.slipway.bundle.v1"
	// MediaTypeConfig is the type of the config blob, a Manifest in JSON.
	MediaTypeConfig = "application/vnd.slipway.bundle.config.v1+json"
)

const schemaVersion = 1

// maxManifest limits a config blob, in bytes: a real one has about 200 KB.
const maxManifest = 8 << 20

// A Manifest lists the content of a bundle. It has no time, so that the same content
// gives the same bytes.
type Manifest struct {
	SchemaVersion int `json:"schemaVersion"`
	// Kubernetes is the version: "v1.37.1".
	Kubernetes string   `json:"kubernetes"`
	Arches     []string `json:"arches"`
	// Source is the source of the content: modules or upstream.
	Source     string      `json:"source"`
	Components []Component `json:"components"`
	Images     []Image     `json:"images"`
	// Origins lists the modules, packages and files of its content.
	Origins []source.Origin `json:"origins,omitempty"`
}

// A Component has programs for hosts: a gzip-compressed tar.
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

// An Image is a container image with its short name: kube-apiserver, etcd…
type Image struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
	Licence string `json:"licence"`
	// Extra reports whether a manifest added the image to the bundle. Index is then the
	// image index of its registry: its digest is the digest of the image, whatever
	// architectures the bundle has.
	Extra bool   `json:"extra,omitempty"`
	Index []byte `json:"index,omitempty"`
	op.Image
}

// Size returns the size of the image's manifest, config and layers, in bytes. Other
// images can share layers.
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
	// versionForm matches Kubernetes versions, which become file names.
	versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.-]+)?$`)
)

// Every bundle has these for each of its architectures, whatever its source.
var (
	everyComponent = []string{"kubernetes", "containerd", "crictl", "cni-plugins", "etcd"}
	everyImage     = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns", "pause"}
)

// ParseManifest parses a config blob and checks it. The names, digests and sizes in the
// result are well-formed.
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
	return m, m.checkValid()
}

// checkTexts rejects control characters in any text, because the text of unsigned bundles
// is also printed.
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

func (m Manifest) checkValid() error {
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

// checkHead rejects values that must not be part of the bundle's name in the cache.
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

// checkWhole rejects a bundle that lacks a part which every bundle needs; listed has its
// parts.
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

// blobSizes returns all blobs of the manifest, each once.
func (m Manifest) blobSizes() map[string]int64 {
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
