//go:build linux

package images

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/executor/program"
	"slipway.dev/slipway/internal/node/op"
)

const (
	pinnedLabel   = "io.cri-containerd.pinned=pinned"
	unpinnedLabel = "io.cri-containerd.pinned=" // containerd does not store a label without a value
)

// ImportImagesOp executes op.ImportImages.
type ImportImagesOp struct{ Op op.ImportImages }

// ctrCommand returns the argv of containerd's client, in the namespace of Kubernetes.
func ctrCommand(args ...string) []string {
	return append([]string{"ctr", "--connect-timeout=5s", "--namespace=k8s.io"}, args...)
}

// storedImage is an image in containerd.
type storedImage struct {
	digest string
	pinned bool
}

// ParseImages reads the output of ctr images ls: a table whose first column
// is the name, third the digest and last the labels.
func ParseImages(out string) map[string]storedImage {
	images := map[string]storedImage{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] == "REF" || !strings.HasPrefix(f[2], "sha256:") {
			continue
		}
		labels := strings.Split(f[len(f)-1], ",")
		images[f[0]] = storedImage{digest: f[2], pinned: slices.Contains(labels, pinnedLabel)}
	}
	return images
}

// listImages lists the images in containerd; false if containerd does not answer.
func listImages(ctx context.Context, h *host.Host) (map[string]storedImage, bool, error) {
	if _, err := h.FindProgram("ctr"); err != nil || !host.Exists(h.DiskPath(process.ContainerdSocket)) {
		return nil, false, nil
	}
	out, err := h.Output(ctx, ctrCommand("images", "ls")...)
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, err
		}
		return nil, false, nil // a socket without a listener
	}
	return ParseImages(out), true, nil
}

// imagePlan has the missing images and pins.
type imagePlan struct {
	load []op.Image
	pin  []string
}

func planImages(want []op.Image, have map[string]storedImage) imagePlan {
	var p imagePlan
	for _, img := range want {
		switch got, ok := have[img.Ref]; {
		case !ok || got.digest != img.Manifest.Digest:
			p.load = append(p.load, img)
		case !got.pinned:
			p.pin = append(p.pin, img.Ref)
		}
	}
	return p
}

// broughtImages maps the names of images that will be imported or pinned to their
// manifests.
func (p imagePlan) broughtImages(have map[string]storedImage) map[string]string {
	out := map[string]string{}
	for _, img := range p.load {
		out[img.Ref] = img.Manifest.Digest
	}
	for _, ref := range p.pin {
		out[ref] = have[ref].digest
	}
	return out
}

func (p imagePlan) String() string {
	var parts []string
	if n := len(p.load); n > 0 {
		var refs []string
		for _, img := range p.load {
			refs = append(refs, img.Ref)
		}
		parts = append(parts, "import "+host.Summarize(refs)+", "+hostfs.BlobText(TotalSize(p.load)))
	}
	if len(p.pin) > 0 {
		parts = append(parts, "pin "+host.Summarize(p.pin))
	}
	return strings.Join(parts, "; ")
}

// imageBlobs returns the distinct blobs of images, with the manifests, in order.
func imageBlobs(images []op.Image) []op.Blob {
	seen := map[string]bool{}
	var out []op.Blob
	for _, img := range images {
		for _, b := range append([]op.Blob{img.Manifest}, img.Blobs...) {
			if !seen[b.Digest] {
				seen[b.Digest] = true
				out = append(out, b)
			}
		}
	}
	return out
}

// TotalSize returns the size of all content of images, in bytes.
func TotalSize(images []op.Image) int64 { return sizeOf(imageBlobs(images)) }

func sizeOf(blobs []op.Blob) (total int64) {
	for _, b := range blobs {
		total += b.Size
	}
	return total
}

func checkImageNames(images []op.Image) error {
	for _, img := range images {
		if img.Ref == "" || img.Ref[0] == '-' || strings.ContainsAny(img.Ref, " \t\n") {
			return host.Invalid("%q is not an image name", img.Ref)
		}
		for _, b := range imageBlobs([]op.Image{img}) {
			if err := hostfs.CheckBlobName(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// ImportStep returns the import as an uninterruptible step: containerd keeps the remains
// of an interrupted one for a day.
func ImportStep() op.Exec {
	return op.Exec{
		Name: "import-images", Whole: true, TimeoutSeconds: 1800,
		Argv: ctrCommand("images", "import", "--all-platforms", "--label="+pinnedLabel, "-"),
	}
}

// blobsToFetch returns the blobs of images that are not on this host yet.
func blobsToFetch(h *host.Host, images []op.Image) (out []op.Blob) {
	for _, b := range imageBlobs(images) {
		if !hostfs.HasBlob(h, hostfs.KeptBlobs, b) && !hostfs.HasBlob(h, hostfs.PassingBlobs, b) {
			out = append(out, b)
		}
	}
	return out
}

func checkPrefetch(h *host.Host, o op.ImportImages) (host.CheckResult, error) {
	if err := checkImageNames(o.Images); err != nil {
		return host.CheckResult{}, err
	}
	if missing := blobsToFetch(h, o.Images); len(missing) > 0 {
		return host.CheckResult{Change: "fetch " + hostfs.BlobText(sizeOf(missing))}, nil
	}
	return host.CheckResult{}, nil
}

// applyPrefetch fetches missing content of images; their import uses it later.
func applyPrefetch(ctx context.Context, h *host.Host, o op.ImportImages) error {
	var done int64
	missing := blobsToFetch(h, o.Images)
	for _, b := range missing {
		if _, err := hostfs.GetBlob(ctx, h, b, done, sizeOf(missing)); err != nil {
			return err
		}
		done += b.Size
	}
	return nil
}

func (x *ImportImagesOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if o.Ahead {
		return checkPrefetch(h, o)
	}
	if o.Docker {
		return checkDockerImages(ctx, h, o)
	}
	if err := checkImageNames(o.Images); err != nil {
		return host.CheckResult{}, err
	}
	begun, err := program.StartedUnits(h, ImportStep())
	if err != nil {
		return host.CheckResult{}, err
	}
	have, up, err := listImages(ctx, h)
	change := planImages(o.Images, have).String()
	_, none := h.FindProgram("ctr")
	switch {
	case !up && none == nil && err == nil:
		change = "check again later: containerd is not running" // its content is not known
	case change != "":
	case len(begun) > 0:
		change = "wait for " + begun[0] + " to finish"
	case slices.ContainsFunc(imageBlobs(o.Images), func(b op.Blob) bool { return hostfs.HasBlob(h, hostfs.PassingBlobs, b) }):
		change = "remove the imported content" // a helper was killed before it removed it
	}
	return host.CheckResult{Change: change}, err
}

func (x *ImportImagesOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	if o.Ahead {
		return applyPrefetch(ctx, h, o)
	}
	if o.Docker {
		return applyDockerImages(ctx, h, o)
	}
	if err := settleImports(ctx, h); err != nil {
		return err
	}
	have, up, err := listImages(ctx, h)
	if err != nil {
		return err
	}
	if !up {
		return &op.Error{Reason: "NoRuntime", Message: "containerd does not answer on " + process.ContainerdSocket}
	}
	p := planImages(o.Images, have)
	if err := noteImported(h, false, p.broughtImages(have)); err != nil {
		return err
	}
	if len(p.load) > 0 {
		if err := importImages(ctx, h, p.load); err != nil {
			return err
		}
		if have, _, err = listImages(ctx, h); err != nil {
			return err
		}
		p = planImages(o.Images, have)
		if len(p.load) > 0 {
			return &op.Error{Reason: "CommandFailed", Message: fmt.Sprintf("containerd imported the images, but does not have %s", p.load[0].Ref)}
		}
	}
	for _, ref := range p.pin {
		if _, err := h.Output(ctx, ctrCommand("images", "label", ref, pinnedLabel)...); err != nil {
			return err
		}
	}
	return releaseImages(h, o.Images)
}

// settleImports waits for earlier imports, of any helper. Their results are then visible
// in containerd.
func settleImports(ctx context.Context, h *host.Host) error {
	begun, err := program.StartedUnits(h, ImportStep())
	if err != nil {
		return err
	}
	for _, unit := range begun {
		u, err := program.FollowUnit(ctx, h, ImportStep(), unit)
		if err != nil {
			return err
		}
		if u.HasSucceeded() {
			if err := h.WriteRecord(h.StatePath("exec", ImportStep().Name+".json"), program.ExecRecord{Done: true}); err != nil {
				return err
			}
		}
		if err := program.ForgetUnit(ctx, h, unit); err != nil {
			return err
		}
	}
	return nil
}

// releaseImages removes passing blobs that containerd has.
func releaseImages(h *host.Host, images []op.Image) error {
	for _, b := range imageBlobs(images) {
		if err := hostfs.ReleaseBlob(h, b); err != nil {
			return err
		}
	}
	return nil
}

// importImages fetches missing content and makes containerd import an image layout with
// it.
func importImages(ctx context.Context, h *host.Host, images []op.Image) error {
	layout, err := writeImageLayout(ctx, h, images)
	if err != nil {
		return err
	}
	return program.Execute(ctx, h, ImportStep(), func(w io.Writer) error { return layout(w) }, &op.Result{})
}

// A layoutFile is an additional file in a layout.
type layoutFile struct {
	name    string
	content []byte
}

// writeImageLayout fetches missing content of images, and returns a function that writes
// a layout of them.
func writeImageLayout(ctx context.Context, h *host.Host, images []op.Image) (func(io.Writer, ...layoutFile) error, error) {
	blobs := imageBlobs(images)
	paths := make([]string, len(blobs))
	var done int64
	total := TotalSize(images)
	for i, b := range blobs {
		p, err := hostfs.GetBlob(ctx, h, b, done, total)
		if err != nil {
			return nil, err
		}
		paths[i] = p
		done += b.Size
	}
	index, err := imageIndex(images)
	if err != nil {
		return nil, err
	}
	if err := h.RoomFor(h.StatePath(), total); err != nil {
		return nil, err
	}
	return func(w io.Writer, more ...layoutFile) error {
		return writeLayout(w, append([]layoutFile{{"index.json", index}}, more...), blobs, paths)
	}, nil
}

// blobName returns the path of a blob in a layout.
func blobName(b op.Blob) string { return "blobs/" + strings.Replace(b.Digest, ":", "/", 1) }

// ImageDescriptor describes an image in the index of a layout.
type ImageDescriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
}

// imageIndex returns the index.json of a layout with each image under its name.
func imageIndex(images []op.Image) ([]byte, error) {
	index := struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Manifests     []ImageDescriptor `json:"manifests"`
	}{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json"}
	for _, img := range images {
		index.Manifests = append(index.Manifests, ImageDescriptor{
			MediaType: img.MediaType, Digest: img.Manifest.Digest, Size: img.Manifest.Size,
			Annotations: map[string]string{"io.containerd.image.name": img.Ref},
		})
	}
	raw, err := json.Marshal(index)
	if err != nil {
		return nil, fmt.Errorf("encoding an image index: %w", err)
	}
	return raw, nil
}

func writeLayout(w io.Writer, files []layoutFile, blobs []op.Blob, paths []string) error {
	t := tar.NewWriter(w)
	add := func(name string, size int64, content io.Reader) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(t, content)
		return err
	}
	layout := []byte(`{"imageLayoutVersion":"1.0.0"}`)
	if err := add("oci-layout", int64(len(layout)), bytes.NewReader(layout)); err != nil {
		return err
	}
	for i, b := range blobs {
		f, err := os.Open(paths[i])
		if err != nil {
			return err
		}
		err = add(blobName(b), b.Size, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := add(f.name, int64(len(f.content)), bytes.NewReader(f.content)); err != nil {
			return err
		}
	}
	return t.Close()
}
