//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/images"
	"slipway.dev/slipway/internal/node/op"
)

// A fakeRegistry admits one user, over TLS, and counts uploads and mounts.
type fakeRegistry struct {
	*httptest.Server
	mu        sync.Mutex
	word      string
	open      bool // it admits all users
	uploads   int
	mounts    int
	full      bool
	in        map[string]bool // repository and blob
	elsewhere string          // where it has uploads go
}

func newRegistry(t *testing.T) *fakeRegistry {
	t.Helper()
	f := &fakeRegistry{word: "right", in: map[string]bool{}}
	keeps := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if u, p, _ := r.BasicAuth(); !f.open && (u != "slipway" || p != f.word) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		put := r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/")
		repository, rest, _ := strings.Cut(r.URL.Path, "/blobs/")
		switch {
		case r.Method == http.MethodHead && strings.HasPrefix(rest, "sha256:") && !f.in[repository+rest]: // in another one
			w.WriteHeader(http.StatusNotFound)
			return
		case put && f.full:
			http.Error(w, "no space left on device", http.StatusInternalServerError)
			return
		case put:
			f.uploads++
			f.in[repository+r.URL.Query().Get("digest")] = true
		case r.Method == http.MethodPost && r.URL.Query().Has("mount"):
			f.mounts++
			f.in[repository+r.URL.Query().Get("mount")] = true
			w.WriteHeader(http.StatusCreated)
			return
		case r.Method == http.MethodPost && f.elsewhere != "":
			w.Header().Set("Location", f.elsewhere)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		keeps.ServeHTTP(w, r)
	}))
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(f.Close)
	return f
}

// change runs a function while the registry handles no request. The registry can still
// handle a request after the client has cancelled it.
func (f *fakeRegistry) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// counts returns how many blobs were uploaded, and how many were mounted.
func (f *fakeRegistry) counts() (uploads, mounts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uploads, f.mounts
}

// client returns the settings to connect to the registry.
func (f *fakeRegistry) client(h *testHost) op.RegistryClient {
	h.write("etc/ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})))
	return op.RegistryClient{
		Address: strings.TrimPrefix(f.URL, "https://"), Name: "example.com",
		CAFile: "/etc/ca.crt", Username: "slipway", Password: []byte("right"),
	}
}

// pushed returns an image of layers under a name.
func pushed(t *testing.T, h *testHost, repository, tag string, layers ...string) op.PushedImage {
	t.Helper()
	const config, layer = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar+gzip"
	type descriptor struct {
		MediaType string            `json:"mediaType"`
		Digest    string            `json:"digest"`
		Size      int64             `json:"size"`
		Platform  map[string]string `json:"platform,omitempty"`
	}
	of := func(media string, b op.Blob) descriptor {
		return descriptor{MediaType: media, Digest: b.Digest, Size: b.Size}
	}
	conf := h.blobs.add([]byte(`{"architecture":"amd64","os":"linux","of":"` + repository + `"}`))
	img := op.Image{Ref: repository + ":" + tag, MediaType: "application/vnd.oci.image.manifest.v1+json", Blobs: []op.Blob{conf}}
	m := map[string]any{"schemaVersion": 2, "mediaType": img.MediaType, "config": of(config, conf)}
	var list []descriptor
	for _, text := range layers {
		b := h.blobs.add([]byte(text))
		img.Blobs, list = append(img.Blobs, b), append(list, of(layer, b))
	}
	m["layers"] = list
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	img.Manifest = h.blobs.add(raw)
	d := of(img.MediaType, img.Manifest)
	d.Platform = map[string]string{"os": "linux", "architecture": "amd64"}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": images.MediaIndex, "manifests": []descriptor{d}})
	if err != nil {
		t.Fatal(err)
	}
	return op.PushedImage{Repository: repository, Tag: tag, Index: index, Platforms: []op.Image{img}}
}

// refuses applies an operation that must fail, and returns its error.
func (h *testHost) refuses(o op.Op) *op.Error {
	h.t.Helper()
	r := h.r.Apply(h.t.Context(), h.batch(o), nil)
	if r[0].Status != op.Failed {
		h.t.Fatalf("it succeeds: %+v", r[0])
	}
	return r[0].Error
}

// TestPushImages_SendsOnlyMissingContent checks that content that a registry does not have is sent once, and that other
// content is not sent.
func TestPushImages_SendsOnlyMissingContent(t *testing.T) {
	t.Parallel()
	h, f := newHost(t), newRegistry(t)
	o := op.PushImages{RegistryClient: f.client(h), Images: []op.PushedImage{
		pushed(t, h, "registry.k8s.io/a", "v1", "base", "a"), pushed(t, h, "registry.k8s.io/b", "v1", "base", "b"),
	}}
	if got := h.check(o)[0].Summary; !strings.HasPrefix(got, "push registry.k8s.io/a:v1") {
		t.Errorf("it plans %q", got)
	}
	h.apply(o)
	if uploads, mounts := f.counts(); uploads != 5 || mounts != 1 { // two configurations, base, a, b
		t.Errorf("%d uploads, %d mounted from another repository", uploads, mounts)
	}
	if got := h.check(o)[0]; got.Status != op.Unchanged {
		t.Errorf("pushed, it still plans %q", got.Summary)
	}
	o.Images = append(o.Images, pushed(t, h, "registry.k8s.io/c", "", "base", "c"))
	if got := h.check(o)[0].Summary; got != "push registry.k8s.io/c" {
		t.Errorf("of one more it plans %q", got)
	}
	h.apply(o)
	if uploads, _ := f.counts(); uploads > 8 {
		t.Errorf("%d uploads for one more image", uploads)
	}
	for _, digest := range []string{o.Images[0].Platforms[0].Manifest.Digest, o.Images[2].Platforms[0].Blobs[1].Digest} {
		if p := h.path("var/lib/slipway/passing/sha256/" + strings.TrimPrefix(digest, "sha256:")); host.Exists(p) {
			t.Errorf("%s is left", p)
		}
	}
	o.Images = nil
	if got := h.check(o)[0]; got.Status != op.Changed {
		t.Error("what is not known yet counts as there")
	}
}

// TestPushImages_ReportsFailureWithoutPassword checks that each failure is reported, and that the login is not sent to
// another host.
func TestPushImages_ReportsFailureWithoutPassword(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		spoil      func(*fakeRegistry, *op.PushImages)
	}{
		{"another password", "rejects the login of slipway", func(_ *fakeRegistry, o *op.PushImages) { o.Password = []byte("wrong") }},
		{"another name", "certificate is valid for", func(_ *fakeRegistry, o *op.PushImages) { o.Name = "registry.example.org" }},
		{"a full disk", "500", func(f *fakeRegistry, _ *op.PushImages) { f.full = true }},
		{"uploads elsewhere", "to another host", func(f *fakeRegistry, _ *op.PushImages) { f.elsewhere = "https://thief.example.com/upload" }},
		{"a blob that nobody has", "blob", func(_ *fakeRegistry, o *op.PushImages) {
			o.Images[0].Platforms[0].Blobs[0].Digest = "sha256:" + strings.Repeat("0", 64)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, f := newHost(t), newRegistry(t)
			o := op.PushImages{RegistryClient: f.client(h), Images: []op.PushedImage{pushed(t, h, "a", "v1", "layer")}}
			tc.spoil(f, &o)
			if got := h.check(o)[0]; got.Status != op.Changed {
				t.Errorf("it plans nothing: %+v", got)
			}
			got := h.refuses(o)
			if text := got.Message + got.Detail; !strings.Contains(text, tc.want) || strings.Contains(text, "right") {
				t.Errorf("it says %q, want %q", text, tc.want)
			}
		})
	}
}

// TestRegistryServes_RefusesOpenRegistryAndWrongLogin waits for a registry that admits only the one user.
func TestRegistryServes_RefusesOpenRegistryAndWrongLogin(t *testing.T) {
	t.Parallel()
	h, f := newHost(t), newRegistry(t)
	o := op.RegistryServes{RegistryClient: f.client(h), TimeoutSeconds: 1}
	if got := h.check(o)[0]; got.Status != op.Unchanged {
		t.Errorf("it waits: %+v", got)
	}
	f.change(func() { f.open = true })
	if got := h.refuses(o); got.Reason != op.ReasonRegistryLogin {
		t.Errorf("for an open registry: %+v", got)
	}
	f.change(func() { f.open, f.word = false, "another" })
	if got := h.refuses(o); got.Reason != op.ReasonRegistryLogin || !strings.Contains(got.Message, "rejects the login") {
		t.Errorf("for another password: %+v", got)
	}
	f.Close()
	if got := h.refuses(o); got.Reason != "Timeout" {
		t.Errorf("without a registry: %+v", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	s, err := h.r.session(host.Batch{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := images.ApplyRegistryServes(ctx, s.Host, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, it says %v", err)
	}
}
