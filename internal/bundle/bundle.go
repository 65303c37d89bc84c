package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/node/op"
)

// A Bundle is an open bundle. It has no open files and can be used concurrently.
type Bundle struct {
	dir      layout.Dir
	root     v1.Descriptor
	manifest Manifest
	index    v1.IndexManifest
	artifact v1.Manifest
}

// openDir opens the layout in dir and checks that every blob exists with the right size.
// Verify checks the digests of large blobs.
func openDir(dir string) (*Bundle, error) {
	b := &Bundle{dir: layout.Dir(dir)}
	if err := b.loadManifest(); err != nil {
		return nil, explainError(dir, err)
	}
	if base, ok := b.root.Annotations[annotationBase]; ok {
		return nil, newProblem(IDBase, "run `slipway bundle import` on a machine whose cache has the base bundle, to create the full bundle",
			"%s is a delta bundle and needs its base bundle, %s", dir, base)
	}
	var faults diag.List
	sizeOf, done := b.sizes()
	defer done()
	for digest, size := range b.blobSizes() {
		if f := b.checkSize(sizeOf, digest, size); f != "" {
			faults = append(faults, newProblem(IDCorrupt, "copy or build the bundle again", "%s: %s", dir, f)...)
		}
	}
	return b, sortDiagnostics(faults).Err()
}

// loadManifest reads the root index, the bundle's manifest and its config.
func (b *Bundle) loadManifest() error {
	var err error
	if b.root, err = b.dir.ReadRoot(); err != nil {
		return err
	}
	invalid := func(format string, args ...any) error {
		return newProblem(IDInvalid, "use a bundle that `slipway bundle build` created", string(b.dir)+": "+format, args...)
	}
	data, err := b.dir.ReadBlob(b.root.Digest.String(), maxManifest)
	if err != nil {
		return err
	}
	ix, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil || ix.ArtifactType != MediaTypeArtifact || len(ix.Manifests) == 0 {
		return invalid("an OCI image layout, but not a Slipway bundle")
	}
	b.index = *ix
	if data, err = b.dir.ReadBlob(ix.Manifests[0].Digest.String(), maxManifest); err != nil {
		return err
	}
	m, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil || m.Config.MediaType != MediaTypeConfig {
		return invalid("its first manifest is not the manifest of a Slipway bundle")
	}
	b.artifact = *m
	if data, err = b.dir.ReadBlob(m.Config.Digest.String(), maxManifest); err != nil {
		return err
	}
	if b.manifest, err = ParseManifest(data); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// blobSizes returns all blobs of the bundle with their sizes, including the index and the
// manifests.
func (b *Bundle) blobSizes() map[string]int64 {
	out := b.manifest.blobSizes()
	out[b.root.Digest.String()] = b.root.Size
	for _, d := range append(slices.Clone(b.index.Manifests), b.artifact.Config) {
		out[d.Digest.String()] = d.Size
	}
	return out
}

// sizes returns a function that returns the size of a blob, and a function to call at the
// end. A bundle has many blobs, so their directory is opened once.
func (b *Bundle) sizes() (sizeOf func(digest string) (int64, error), done func()) {
	blobs, err := b.dir.OpenBlobs()
	if err != nil {
		return b.dir.BlobSize, func() {} // which reports the error for each blob
	}
	return blobs.Size, func() { _ = blobs.Close() } // it was only read
}

func (b *Bundle) checkSize(sizeOf func(string) (int64, error), digest string, want int64) string {
	got, err := sizeOf(digest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("blob %s is missing%s", digest, b.describeUser(digest))
	case err != nil:
		return err.Error()
	case got != want:
		return fmt.Sprintf("blob %s has %d bytes, expected %d%s", digest, got, want, b.describeUser(digest))
	}
	return ""
}

// describeUser describes for people to what a blob belongs.
func (b *Bundle) describeUser(digest string) string {
	var names []string
	for _, c := range b.manifest.Components {
		if c.Digest == digest {
			names = append(names, c.Name)
		}
	}
	for _, i := range b.manifest.Images {
		if i.Manifest.Digest == digest || slices.ContainsFunc(i.Blobs, func(x op.Blob) bool { return x.Digest == digest }) {
			names = append(names, "image "+i.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// Manifest returns the list of contents.
func (b *Bundle) Manifest() Manifest { return b.manifest }

// Digest identifies the bundle and all its content: "sha256:…".
func (b *Bundle) Digest() string { return b.root.Digest.String() }

// Path returns the directory of the layout.
func (b *Bundle) Path() string { return string(b.dir) }

// Size returns the size of all blobs in bytes, each counted once.
func (b *Bundle) Size() int64 {
	var n int64
	for _, size := range b.blobSizes() {
		n += size
	}
	return n
}

// Component finds a component for an architecture. The error is a diag.List.
func (b *Bundle) Component(name, arch string) (Component, error) {
	if err := b.hasArch(arch); err != nil {
		return Component{}, err
	}
	for _, c := range b.manifest.Components {
		if c.Name == name && c.Arch == arch {
			return c, nil
		}
	}
	return Component{}, b.missingError("component", name, arch)
}

// Components returns all components of the bundle, for all architectures.
func (b *Bundle) Components() []Component { return b.manifest.Components }

// Images returns all images of the bundle, for all architectures.
func (b *Bundle) Images() []Image { return b.manifest.Images }

// Image finds an image by its short name for an architecture. The error is a
// diag.List.
func (b *Bundle) Image(name, arch string) (op.Image, error) {
	if err := b.hasArch(arch); err != nil {
		return op.Image{}, err
	}
	for _, i := range b.manifest.Images {
		if i.Name == name && i.Arch == arch {
			return i.Image, nil
		}
	}
	return op.Image{}, b.missingError("image", name, arch)
}

// CheckDocker returns an error for a bundle that lacks parts for runtime docker on one of
// the architectures.
func (b *Bundle) CheckDocker(arches []string) error {
	for _, arch := range arches {
		for _, name := range []string{"docker", "cri-dockerd"} {
			if !slices.ContainsFunc(b.manifest.Components, func(c Component) bool { return c.Name == name && c.Arch == arch }) {
				return WithoutDocker(b.manifest.Kubernetes, arches, fmt.Sprintf(
					"the bundle for Kubernetes %s does not contain %s for %s; the runtime docker needs it",
					b.manifest.Kubernetes, name, arch))
			}
		}
	}
	return nil
}

// WithoutDocker returns the error that a bundle with Docker is needed.
func WithoutDocker(version string, arches []string, why string) error {
	return newProblem(IDNoDocker,
		fmt.Sprintf("write type: containerd, or build a bundle with Docker: slipway bundle build --kubernetes %s "+
			"--arch %s --runtime docker --source modules (built on another machine, it needs `slipway bundle import`)",
			version, strings.Join(arches, ",")),
		"%s", why)
}

func (b *Bundle) hasArch(arch string) error {
	if slices.Contains(b.manifest.Arches, arch) {
		return nil
	}
	return newProblem(IDArchMissing,
		fmt.Sprintf("run `slipway bundle build --kubernetes %s --arch %s`", b.manifest.Kubernetes,
			strings.Join(append(slices.Clone(b.manifest.Arches), arch), ",")),
		"the bundle of %s is for %s, not for %s", b.manifest.Kubernetes, strings.Join(b.manifest.Arches, ", "), arch)
}

func (b *Bundle) missingError(kind, name, arch string) error {
	// Without --source, a build uses the bundle in the cache.
	return newProblem(IDPartMissing,
		fmt.Sprintf("build the bundle again with this version of Slipway: `slipway bundle build --kubernetes %s --arch %s --source %s`",
			b.manifest.Kubernetes, strings.Join(b.manifest.Arches, ","), cmp.Or(onlySourceOf(name), b.manifest.Source, Modules)),
		"the bundle of %s has no %s %s for %s", b.manifest.Kubernetes, kind, name, arch)
}

// onlySourceOf returns the one source that certainly has an image, if there is only one: some
// images are not published, and the module of kube-vip has no available checksum.
func onlySourceOf(image string) string {
	switch image {
	case "kube-vip":
		return Upstream
	case "keepalived", "apiserver-updater":
		return Modules
	}
	return ""
}

// OpenBlob opens a blob at an offset in bytes.
func (b *Bundle) OpenBlob(digest string, offset int64) (io.ReadCloser, error) {
	r, err := b.dir.OpenBlob(digest, offset)
	if err != nil {
		return nil, explainError(string(b.dir), err)
	}
	return r, nil
}

// openVerified opens the layout in dir and reads every blob of it. The error is a diag.List
// with IDCorrupt if a blob is damaged.
func openVerified(ctx context.Context, dir string) (*Bundle, error) {
	b, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	faults, err := b.findDamaged(ctx)
	if err := errors.Join(err, sortDiagnostics(faults).Err()); err != nil {
		return nil, err
	}
	return b, nil
}

// isCorrupt reports whether content differs from its digest.
func isCorrupt(err error) bool {
	var list diag.List
	return errors.As(err, &list) && slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.ID == IDCorrupt })
}

func (b *Bundle) faultAt(text string) diag.Diagnostic {
	return newProblem(IDCorrupt, "copy or build the bundle again", "%s: %s", b.dir, text)[0]
}

// findDamaged reads every blob and returns the blobs that differ from their digests. The
// error is the error of ctx.
func (b *Bundle) findDamaged(ctx context.Context) (faults diag.List, err error) {
	sizeOf, done := b.sizes()
	defer done()
	for digest, size := range b.blobSizes() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f := b.checkSize(sizeOf, digest, size); f != "" {
			faults = append(faults, b.faultAt(f))
		} else if err := b.dir.VerifyBlob(digest); err != nil {
			faults = append(faults, b.faultAt(err.Error()+b.describeUser(digest)))
		}
	}
	return faults, nil
}

// VerifyBlob reads a blob and compares it with its digest. The error is a diag.List.
func (b *Bundle) VerifyBlob(digest string) error {
	return explainError(string(b.dir), b.dir.VerifyBlob(digest))
}

// Verify reads every byte and compares it with its digest. The error is a
// diag.List of all faults.
func (b *Bundle) Verify(ctx context.Context) error {
	faults, err := b.findDamaged(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for digest := range b.blobSizes() {
		known[digest] = true
	}
	for _, f := range b.checkImages() {
		faults = append(faults, b.faultAt(f))
	}
	strangers, err := b.dir.UnknownFiles(known)
	if err != nil {
		return explainError(string(b.dir), err)
	}
	for _, s := range strangers {
		faults = append(faults, b.faultAt(s+" does not belong to the bundle"))
	}
	return sortDiagnostics(faults).Err()
}

// checkImages compares the images in the config with their manifests.
func (b *Bundle) checkImages() []string {
	var out []string
	for _, i := range b.manifest.Images {
		data, err := b.dir.ReadBlob(i.Manifest.Digest, maxManifest)
		if err != nil {
			continue // reported with its blob
		}
		m, err := v1.ParseManifest(bytes.NewReader(data))
		if err != nil {
			out = append(out, fmt.Sprintf("image %s: its manifest cannot be parsed: %v", i.Name, err))
			continue
		}
		want := []op.Blob{{Digest: m.Config.Digest.String(), Size: m.Config.Size}}
		for _, l := range m.Layers {
			want = append(want, op.Blob{Digest: l.Digest.String(), Size: l.Size})
		}
		if !slices.Equal(want, i.Blobs) {
			out = append(out, fmt.Sprintf("image %s: its manifest and the config of the bundle list different blobs", i.Name))
		}
	}
	return out
}

func sortDiagnostics(l diag.List) diag.List {
	slices.SortFunc(l, func(a, b diag.Diagnostic) int { return strings.Compare(a.Message, b.Message) })
	return l
}
