//go:build linux

package executor

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/images"
	"slipway.dev/slipway/internal/node/op"
)

// fakeDocker knows images by name, and loads the images in the manifest.json of a layout.
// It rejects all other requests.
type fakeDocker struct {
	t      *testing.T
	mu     sync.Mutex
	images map[string]string // name → digest of its config
	loads  int
	refuse string // the response to a load
	used   string // the image of its only container
	// late is an image that a container starts to use just before its removal, and broken
	// is an image that cannot be removed.
	late, broken string
}

func (d *fakeDocker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/images/"), "/json")
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/containers/json" && r.URL.Query().Get("all") == "1":
		out := "[]"
		if d.used != "" && r.URL.Query().Get("filters") == fmt.Sprintf(`{"ancestor":[%q]}`, d.used) {
			out = `[{"Id":"c1"}]`
		}
		fmt.Fprint(w, out)
	case r.Method == http.MethodGet && ok && d.images[name] == "":
		http.Error(w, `{"message":"No such image"}`, http.StatusNotFound)
	case r.Method == http.MethodGet && ok:
		fmt.Fprintf(w, `{"Id":%q}`, d.images[name])
	case r.Method == http.MethodDelete && d.images[strings.TrimPrefix(r.URL.Path, "/images/")] != "" && r.URL.RawQuery == "":
		switch name := strings.TrimPrefix(r.URL.Path, "/images/"); name {
		case d.used, d.late:
			http.Error(w, `{"message":"conflict"}`, http.StatusConflict)
		case d.broken:
			http.Error(w, `{"message":"broken"}`, http.StatusInternalServerError)
		default:
			delete(d.images, name)
		}
	case r.Method == http.MethodPost && r.URL.Path == "/images/load" && r.Header.Get("Content-Type") == "application/x-tar":
		d.loads++
		if d.refuse != "" {
			fmt.Fprint(w, d.refuse)
			return
		}
		if err := d.load(r.Body); err != nil {
			d.t.Error(err)
		}
	default:
		d.t.Errorf("unexpected: %s %s", r.Method, r.URL)
	}
}

func (d *fakeDocker) load(r io.Reader) error {
	t, have := tar.NewReader(r), map[string]bool{}
	var list []struct {
		Config           string
		RepoTags, Layers []string
	}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		have[h.Name] = true
		if h.Name == "manifest.json" {
			if err := json.NewDecoder(t).Decode(&list); err != nil {
				return err
			}
		}
	}
	for _, img := range list {
		for _, name := range append(img.Layers, img.Config) {
			if !have[name] {
				return fmt.Errorf("%s is missing", name)
			}
		}
		for _, tag := range img.RepoTags {
			if strings.Contains(tag, "@") {
				return fmt.Errorf("invalid tag %q", tag)
			}
			d.images[tag] = strings.Replace(strings.TrimPrefix(img.Config, "blobs/"), "/", ":", 1)
		}
	}
	return nil
}

// docker starts a fake Docker on a socket of the host. The path of a socket has a length
// limit, so the host has a link to a socket elsewhere.
func (h *testHost) docker(d *fakeDocker) {
	h.t.Helper()
	dir, err := os.MkdirTemp("", "docker")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		h.t.Fatal(err)
	}
	srv := &http.Server{Handler: d}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	h.t.Cleanup(func() { srv.Close(); <-done })
	if err := os.MkdirAll(h.path("run"), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "s"), h.path("run/docker.sock")); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHost) dockerImages(names ...string) op.ImportImages {
	o := op.ImportImages{Docker: true}
	for _, name := range names {
		o.Images = append(o.Images, op.Image{
			Ref: name, MediaType: "application/x", Manifest: h.blobs.add([]byte("manifest of " + name)),
			Blobs: []op.Blob{h.blobs.add([]byte("config of " + name)), h.blobs.add([]byte("a layer"))},
		})
	}
	return o
}

func TestImportImages_LoadsOnlyMissingImagesIntoDocker(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	wanted := h.dockerImages("registry.example/a:1", "registry.example/b:2")
	if r := h.check(wanted)[0]; r.Summary != "import registry.example/a:1, registry.example/b:2, "+
		hostfs.BlobText(images.TotalSize(wanted.Images)) {
		t.Errorf("before Docker is there, check says %q", r.Summary)
	}
	config := func(i int) string { return wanted.Images[i].Blobs[0].Digest }
	d := &fakeDocker{t: t, images: map[string]string{"registry.example/a:1": config(0), "registry.example/b:2": "sha256:another"}}
	h.docker(d)
	if r := h.check(wanted)[0]; !strings.HasPrefix(r.Summary, "import registry.example/b:2, ") {
		t.Errorf("check says %q", r.Summary)
	}
	h.apply(wanted)
	want := map[string]string{"registry.example/a:1": config(0), "registry.example/b:2": config(1)}
	if diff := cmp.Diff(want, d.images); diff != "" {
		t.Errorf("what it has (-want +got):\n%s", diff)
	}
	if r := h.check(wanted)[0]; r.Status != op.Unchanged {
		t.Errorf("after: %s (%s)", r.Status, r.Summary)
	}
	h.apply(wanted)
	if d.loads != 1 {
		t.Errorf("loaded %d times", d.loads)
	}
	if left, err := filepath.Glob(h.path("var/lib/slipway/passing/sha256/*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}

	// A helper that is killed after it loaded the images leaves this file.
	passing := filepath.Join("var/lib/slipway/passing/sha256", strings.TrimPrefix(config(0), "sha256:"))
	h.write(passing, "config of registry.example/a:1")
	if r := h.check(wanted)[0]; r.Summary != "remove the imported content" {
		t.Errorf("check says %q", r.Summary)
	}
	h.apply(wanted)
	if host.Exists(h.path(passing)) {
		t.Error("it is still there")
	}
}

func TestImportImages_ReportsFailedLoadOfDocker(t *testing.T) {
	for name, answer := range map[string]string{
		"an error in its answer": `{"errorDetail":{"message":"no space left on device"},"error":"no space left on device"}`,
		"nothing came of it":     "",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			d := &fakeDocker{t: t, images: map[string]string{}, refuse: answer + " "}
			h.docker(d)
			r := h.r.Apply(t.Context(), h.batch(h.dockerImages("registry.example/a:1")), nil)[0]
			if r.Error == nil || r.Error.Reason != "CommandFailed" {
				t.Fatalf("got %+v", r)
			}
			if answer != "" && !strings.Contains(r.Error.Message, "no space left on device") {
				t.Errorf("it says %q", r.Error.Message)
			}
			d.refuse = ""
			h.apply(h.dockerImages("registry.example/a:1"))
		})
	}
}

func TestImportImages_NeedsRunningDocker(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("run/docker.sock", "")
	images := h.dockerImages("registry.example/a:1")
	if r := h.check(images)[0]; r.Summary != "check again later: Docker is not running" {
		t.Errorf("check says %q", r.Summary)
	}
	r := h.r.Apply(t.Context(), h.batch(images), nil)[0]
	if r.Error == nil || r.Error.Reason != "NoRuntime" {
		t.Errorf("apply: %+v", r)
	}
}
