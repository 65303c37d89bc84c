//go:build linux

package executor

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// image returns an image of a bundle.
func (h *testHost) image(ref string) op.Image {
	return op.Image{
		Ref: ref, MediaType: "application/x", Manifest: h.blobs.add([]byte("manifest of " + ref)),
		Blobs: []op.Blob{h.blobs.add([]byte("config of " + ref)), h.blobs.add([]byte("a layer"))},
	}
}

// pinned returns the images that are pinned in containerd.
func (h *testHost) pinned() []string {
	images := h.see().Images
	maps.DeleteFunc(images, func(_ string, img fakeImage) bool { return !img.Pinned })
	return slices.Sorted(maps.Keys(images))
}

// changes checks the summary of a check.
func (h *testHost) changes(o op.Op, want string) {
	h.t.Helper()
	if r := h.check(o)[0]; r.Error != nil || r.Summary != want || (r.Status == op.Changed) != (want != "") {
		h.t.Errorf("%s (%q) %v, want %q", r.Status, r.Summary, r.Error, want)
	}
}

// TestPrune_UnpinsOnlyImagesThatSlipwayPinned checks that imported images lose their pin when they are no longer
// wanted. Images that other software has pinned keep it, whatever their name.
func TestPrune_UnpinsOnlyImagesThatSlipwayPinned(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("run/containerd/containerd.sock", "")
	w := h.see()
	stays := h.image("registry.example/pause:3")
	theirs := h.image("registry.example/theirs:1")
	w.Images["registry.example/theirs:1"] = fakeImage{Digest: theirs.Manifest.Digest, Pinned: true}
	w.Images["registry.example/cut:1"] = fakeImage{Digest: h.image("registry.example/cut:1").Manifest.Digest}
	w.Images["registry.example/other:1"] = fakeImage{Digest: "sha256:other", Pinned: true}
	h.world(w)
	older := []op.Image{stays, theirs, h.image("registry.example/a:1"), h.image("registry.example/b:1"), h.image("registry.example/cut:1")}
	h.apply(op.ImportImages{Images: older})
	retire := op.Prune{Images: []string{stays.Ref, "registry.example/a:2"}}
	h.apply(op.ImportImages{Images: []op.Image{stays, h.image("registry.example/a:2")}})
	w = h.see()
	w.Images["registry.example/b:1"] = fakeImage{Digest: "sha256:theirs by now", Pinned: true}
	h.world(w)

	h.changes(retire, "unpin 2 images of earlier bundles")
	h.apply(retire)
	want := []string{
		"registry.example/a:2", "registry.example/b:1", "registry.example/other:1",
		"registry.example/pause:3", "registry.example/theirs:1",
	}
	if d := cmp.Diff(want, h.pinned()); d != "" {
		t.Errorf("pinned (-want +got):\n%s", d)
	}
	if n := len(h.see().Images); n != 7 {
		t.Errorf("it has %d images: none is to be removed", n)
	}
	h.changes(retire, "")

	// An image that other software pins after Slipway has unpinned it keeps its pin.
	w = h.see()
	w.Images["registry.example/a:1"] = fakeImage{Digest: w.Images["registry.example/a:1"].Digest, Pinned: true}
	h.world(w)
	h.changes(retire, "")
	h.apply(op.ImportImages{Images: older}, op.Prune{Images: []string{stays.Ref}})
	if p := h.pinned(); !slices.Contains(p, "registry.example/a:1") {
		t.Errorf("pinned: %v", p)
	}
}

// TestPrune_IgnoresImagesWithoutRecord checks that images that were imported before there was a record
// are not treated as imported.
func TestPrune_IgnoresImagesWithoutRecord(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	retire := op.Prune{}
	h.changes(retire, "")
	h.write("run/containerd/containerd.sock", "")
	w := h.see()
	w.Images["registry.example/a:1"] = fakeImage{Digest: "sha256:a", Pinned: true}
	h.world(w)
	h.changes(retire, "")
	// Images of another runtime are gone with that runtime.
	h.write("var/lib/slipway/imported.json", `{"docker": true, "images": {"registry.example/a:1": "sha256:a"}}`)
	h.changes(retire, "")
	h.write("var/lib/slipway/imported.json", "{")
	if r := h.check(retire)[0]; r.Error == nil {
		t.Errorf("with a damaged record: %s (%s)", r.Status, r.Summary)
	}
}

func TestPrune_RemovesUnwantedBlobs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	stays, goes := h.blobs.add([]byte("containerd 2")), h.blobs.add([]byte("kubernetes 1"))
	h.apply(op.FetchBlob{Blob: stays, Name: "containerd"}, op.FetchBlob{Blob: goes, Name: "kubernetes"})
	at := func(b op.Blob) string {
		return filepath.Join("var/lib/slipway/blobs/sha256", strings.TrimPrefix(b.Digest, "sha256:"))
	}
	h.write(at(stays)+".part", "conta")
	h.write(at(h.blobs.add([]byte("never came")))+".part", "never")
	retire := op.Prune{Blobs: []string{stays.Digest}}
	h.changes(retire, "remove 2 blobs of earlier bundles, 17 B")
	h.apply(retire)
	left, err := filepath.Glob(h.path("var/lib/slipway/blobs/sha256/*"))
	if want := []string{h.path(at(stays)), h.path(at(stays) + ".part")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v, %v: want %v", left, err, want)
	}
	h.changes(retire, "")
}

// TestPrune_ContinuesAfterCrashAtAnyStep checks that a prune continues after the helper was killed at any step,
// and that nothing is forgotten.
func TestPrune_ContinuesAfterCrashAtAnyStep(t *testing.T) {
	t.Parallel()
	for at := 1; ; at += everyStep {
		h := newHost(t)
		h.write("run/containerd/containerd.sock", "")
		blob := h.blobs.add([]byte("kubernetes 1"))
		ops := op.List{
			op.FetchBlob{Blob: blob, Name: "kubernetes"},
			op.ImportImages{Images: []op.Image{h.image("registry.example/a:1"), h.image("registry.example/b:1")}},
			op.Prune{},
		}
		more := h.crash(at, ops...)
		h.apply(ops...)
		if p := h.pinned(); len(p) > 0 {
			t.Errorf("killed after step %d: %v is still pinned", at, p)
		}
		if h.r.State = filepath.Join(h.r.Root,
			"var/lib/slipway"); host.Exists(filepath.Join(h.r.State, "blobs/sha256", strings.TrimPrefix(blob.Digest, "sha256:"))) {
			t.Errorf("killed after step %d: the blob is still there", at)
		}
		if !more {
			return
		}
	}
}

func TestPrune_NeedsRunningRuntime(t *testing.T) {
	t.Parallel()
	for _, docker := range []bool{false, true} {
		h := newHost(t)
		retire := op.Prune{Docker: docker}
		h.write("run/docker.sock", "")
		record, what := `{"images": {"registry.example/a:1": "sha256:a"}}`, "containerd"
		if docker {
			record, what = `{"docker": true, "images": {"registry.example/a:1": "sha256:a"}}`, "Docker"
		}
		h.write("var/lib/slipway/imported.json", record)
		h.changes(retire, "check again later: "+what+" is not running")
		if r := h.r.Apply(t.Context(), h.batch(retire), nil)[0]; r.Error == nil || r.Error.Reason != "NoRuntime" {
			t.Errorf("apply: %+v", r)
		}
		if h.read("var/lib/slipway/imported.json") != record {
			t.Error("the record is another")
		}
	}
}

// TestPrune_KeepsDockerImagesInUse checks that images in Docker are removed, except images in use. They
// are removed when they are no longer in use.
func TestPrune_KeepsDockerImagesInUse(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := &fakeDocker{t: t, images: map[string]string{}, used: "registry.example/pause:1", late: "registry.example/late:1"}
	h.docker(d)
	older := h.dockerImages("registry.example/a:1", "registry.example/b:1", "registry.example/c:1",
		"registry.example/late:1", "registry.example/pause:1", "registry.example/theirs:1", "registry.example/stays:1")
	d.images["registry.example/theirs:1"] = older.Images[5].Blobs[0].Digest
	h.apply(older)
	d.images["registry.example/b:1"] = "sha256:another"
	delete(d.images, "registry.example/c:1")
	retire := op.Prune{Docker: true, Images: []string{"registry.example/stays:1"}}
	h.changes(retire, "remove 3 images of earlier bundles, except images that are in use then")

	d.broken = "registry.example/a:1"
	if r := h.r.Apply(t.Context(), h.batch(retire), nil)[0]; r.Error == nil || r.Error.Reason != "CommandFailed" {
		t.Errorf("with an image that cannot be removed: %+v", r)
	}
	d.broken = ""
	h.apply(retire)
	want := []string{
		"registry.example/b:1", "registry.example/late:1", "registry.example/pause:1",
		"registry.example/stays:1", "registry.example/theirs:1",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(d.images))); diff != "" {
		t.Errorf("what it has (-want +got):\n%s", diff)
	}
	d.late = ""
	h.changes(retire, "remove 2 images of earlier bundles, except images that are in use then")
	h.apply(retire)
	h.changes(retire, "")
	d.used = ""
	h.changes(retire, "remove 1 image of earlier bundles")
	h.apply(retire)
	want = []string{"registry.example/b:1", "registry.example/stays:1", "registry.example/theirs:1"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(d.images))); diff != "" {
		t.Errorf("what it has (-want +got):\n%s", diff)
	}
}
