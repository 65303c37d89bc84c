//go:build linux

package executor

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/images"
	"slipway.dev/slipway/internal/node/op"
)

// fakeCtr imports image layouts as the client of containerd does.
func fakeCtr(w *world, args []string) (string, error) {
	if len(args) < 4 || args[0] != "--connect-timeout=5s" || args[1] != "--namespace=k8s.io" || args[2] != "images" {
		return "", fmt.Errorf("unexpected: ctr %q", args)
	}
	switch args = args[3:]; {
	case slices.Equal(args, []string{"ls"}):
		out := "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"
		for ref, img := range w.Images {
			labels := "-"
			if img.Pinned {
				labels = "a=b,io.cri-containerd.pinned=pinned"
			}
			out += fmt.Sprintf("%s application/x %s 1.0 MiB linux/amd64 %s\n", ref, img.Digest, labels)
		}
		return out, nil
	case len(args) == 3 && args[0] == "label" && args[2] == "io.cri-containerd.pinned=pinned":
		img := w.Images[args[1]]
		img.Pinned = true
		w.Images[args[1]] = img
		return "", nil
	case len(args) == 3 && args[0] == "label" && args[2] == "io.cri-containerd.pinned=":
		img, ok := w.Images[args[1]]
		if !ok {
			return "", fmt.Errorf("image %q: not found", args[1])
		}
		img.Pinned = false
		w.Images[args[1]] = img
		return "", nil
	case slices.Equal(args, []string{"import", "--all-platforms", "--label=io.cri-containerd.pinned=pinned", "-"}):
		return "unpacking\n", takeLayout(w, os.Stdin)
	}
	return "", fmt.Errorf("unexpected: ctr %q", args)
}

func takeLayout(w *world, r io.Reader) error {
	t := tar.NewReader(r)
	have := map[string]bool{}
	var index struct {
		Manifests []images.ImageDescriptor `json:"manifests"`
	}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		have[strings.Replace(strings.TrimPrefix(h.Name, "blobs/"), "/", ":", 1)] = true
		if h.Name == "index.json" {
			if err := json.NewDecoder(t).Decode(&index); err != nil {
				return err
			}
		}
	}
	if !have["oci-layout"] {
		return errors.New("not an image layout")
	}
	for _, m := range index.Manifests {
		if !have[m.Digest] {
			return fmt.Errorf("the manifest %s is missing", m.Digest)
		}
		w.Images[m.Annotations["io.containerd.image.name"]] = fakeImage{Digest: m.Digest, Pinned: true}
	}
	return nil
}

// TestImportImages_ContinuesWithoutManager checks that an import continues after its
// manager has disconnected, and that the next apply uses its result.
func TestImportImages_ContinuesWithoutManager(t *testing.T) {
	for name, operation := range map[string]string{"the same operation": "create-1", "another": "other"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write("run/containerd/containerd.sock", "")
			images := op.ImportImages{Images: []op.Image{{
				Ref:      "registry.example/pause:3",
				Manifest: h.blobs.add([]byte("{}")), MediaType: "application/x",
			}}}
			w := h.see()
			w.OnRun = "linger"
			h.world(w)
			ctx, cancel := context.WithCancel(t.Context())
			b := h.batch(images)
			b.Operation = operation
			r := h.r.Apply(ctx, b, func(_ int, p host.Progress) {
				if len(p.Output) > 0 {
					cancel()
				}
			})
			if r[0].Error == nil || r[0].Error.Reason != "Interrupted" {
				t.Fatalf("the first manager: %+v", r[0])
			}
			if r := h.check(images)[0]; r.Status != op.Changed {
				t.Errorf("an import that is still running is %s (%s)", r.Status, r.Summary)
			}
			w = h.see()
			w.settle()
			h.world(w)

			h.apply(images)
			if r := h.check(images)[0]; r.Status != op.Unchanged {
				t.Errorf("after: %s (%s)", r.Status, r.Summary)
			}
			imports := slices.DeleteFunc(h.see().Calls,
				func(call string) bool { return !strings.HasPrefix(call, "ctr ") || !strings.Contains(call, " import ") })
			if len(imports) != 1 {
				t.Errorf("imported %d times", len(imports))
			}
			if record := h.read("var/lib/slipway/exec/import-images.json"); !strings.Contains(record, `"done": true`) {
				t.Errorf("the record is %s", record)
			}
			if left, err := os.ReadDir(filepath.Join(h.r.State, "run")); err != nil || len(left) > 0 {
				t.Errorf("left: %v %v", left, err)
			}
		})
	}
}

// TestImportImages_NeedsRunningContainerd checks that the images in containerd are unknown while it does not
// run.
func TestImportImages_NeedsRunningContainerd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	images := op.ImportImages{Images: []op.Image{{
		Ref: "registry.example/pause:3", Manifest: h.blobs.add([]byte("{}")),
		MediaType: "application/x",
	}}}
	if r := h.check(images)[0]; r.Summary != "check again later: containerd is not running" {
		t.Errorf("check says %q", r.Summary)
	}
	h.write("run/containerd/containerd.sock", "")
	if r := h.check(images)[0]; r.Summary != "import registry.example/pause:3, 2 B" {
		t.Errorf("when it runs, check says %q", r.Summary)
	}
}

// TestImportImages_UsesContentFetchedAhead checks that an import uses the content that was fetched ahead, and then
// removes it.
func TestImportImages_UsesContentFetchedAhead(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	manifest, layer := h.blobs.add([]byte("{}")), h.blobs.add([]byte("layer"))
	images := []op.Image{{Ref: "registry.example/pause:3", Manifest: manifest, MediaType: "application/x", Blobs: []op.Blob{layer}}}
	ahead := op.ImportImages{Images: images, Ahead: true}
	if r := h.check(ahead)[0]; r.Summary != "fetch 7 B" {
		t.Errorf("check says %q", r.Summary)
	}
	h.apply(ahead)
	if r := h.check(ahead)[0]; r.Status != op.Unchanged {
		t.Errorf("it is there, and check says %q", r.Summary)
	}
	clear(h.blobs) // no manager has it now
	h.write("run/containerd/containerd.sock", "")
	h.apply(op.ImportImages{Images: images})
	if r := h.check(ahead)[0]; r.Summary != "fetch 7 B" {
		t.Errorf("it is imported, and the content is still there: %q", r.Summary)
	}
}

// TestImportImages_RemovesContentLeftByKilledHelper checks that content of imported
// images is removed if the helper was killed before it could do that.
func TestImportImages_RemovesContentLeftByKilledHelper(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("run/containerd/containerd.sock", "")
	images := op.ImportImages{Images: []op.Image{{
		Ref: "registry.example/pause:3", Manifest: h.blobs.add([]byte("{}")),
		MediaType: "application/x",
	}}}
	h.apply(images)
	// A helper that is killed at the end of the import leaves this file.
	passing := filepath.Join("var/lib/slipway/passing/sha256", strings.TrimPrefix(images.Images[0].Manifest.Digest, "sha256:"))
	h.write(passing, "{}")
	if r := h.check(images)[0]; r.Summary != "remove the imported content" {
		t.Errorf("check says %q", r.Summary)
	}
	h.apply(images)
	if host.Exists(h.path(passing)) {
		t.Error("it is still there")
	}
}
