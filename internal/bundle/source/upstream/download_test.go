package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/diag"
)

var (
	content = bytes.Repeat([]byte("0123456789abcdef"), 4096)
	sum     = func() string { s := sha256.Sum256(content); return hex.EncodeToString(s[:]) }()
)

// A server serves one file; each request for it is answered by the next of
// the given ways, the last over and over.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	ways   []func(http.ResponseWriter, *http.Request)
	ranges []string
}

func serveContent(t *testing.T, sums string, ways ...func(http.ResponseWriter, *http.Request)) *server {
	s := &server{ways: ways}
	mux := http.NewServeMux()
	mux.HandleFunc("/file.sum", func(w http.ResponseWriter, _ *http.Request) {
		if sums == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write([]byte(sums))
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		way := s.ways[0]
		if len(s.ways) > 1 {
			s.ways = s.ways[1:]
		}
		s.mu.Unlock()
		way(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func rangeStart(r *http.Request) int {
	var n int
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &n)
	return n
}

// sendWhole sends the requested range.
func sendWhole(w http.ResponseWriter, r *http.Request) { sendRange(w, r, content, len(content)) }

// breakAfter sends n bytes and closes the connection.
func breakAfter(n int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		sendRange(w, r, content, n)
		panic(http.ErrAbortHandler)
	}
}

func sendRange(w http.ResponseWriter, r *http.Request, data []byte, n int) {
	from := rangeStart(r)
	if from >= len(data) {
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(data)-from))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(data[from:min(len(data), from+n)])
	if n < len(data) {
		w.(http.Flusher).Flush()
	}
}

// ignoreRange sends the whole content for any range.
func ignoreRange(w http.ResponseWriter, _ *http.Request) { w.Write(content) }

// sendDamaged sends other bytes.
func sendDamaged(w http.ResponseWriter, r *http.Request) {
	sendRange(w, r, bytes.ToUpper(content), len(content))
}

func sendStatus(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestGetPublished_ResumesAndVerifiesDownloads(t *testing.T) {
	type way = func(http.ResponseWriter, *http.Request)
	tests := map[string]struct {
		reason string
		sums   string
		ways   []way
		part   []byte // left by an earlier run
		ranges []string
		id     string
		silent bool
	}{
		"plain": {"one request", sum, []way{sendWhole}, nil, []string{""}, "", false},
		"in a list": {
			"as sha256sum writes it", strings.Repeat("0", 64) + "  other\n" + sum + " *file\n",
			[]way{sendWhole},
			nil,
			[]string{""},
			"", false,
		},
		"resumed": {
			"where the connection broke", sum,
			[]way{breakAfter(4096), breakAfter(4096), sendWhole},
			nil,
			[]string{"", "bytes=4096-", "bytes=8192-"},
			"", false,
		},
		"earlier run":   {"what an earlier run left is used", sum, []way{sendWhole}, content[:1000], []string{"bytes=1000-"}, "", false},
		"no ranges":     {"a server that starts anew is understood", sum, []way{ignoreRange}, content[:1000], []string{"bytes=1000-"}, "", false},
		"all was there": {"only the last step was missing", sum, []way{sendWhole}, content, []string{"bytes=65536-"}, "", false},
		"wrong part": {
			"of another file: once more from the start", sum,
			[]way{sendWhole},
			[]byte("rubbish"),
			[]string{"bytes=7-", ""},
			"", false,
		},
		"busy":             {"an error that passes", sum, []way{sendStatus(503), sendWhole}, nil, []string{"", ""}, "", false},
		"damaged":          {"never used", sum, []way{sendDamaged}, nil, []string{""}, IDChecksum, false},
		"no checksum":      {"no checksum, no use", "", nil, nil, nil, IDDownload, true},
		"another checksum": {"one of another file is none", sum + "  other\n" + sum + "  another\n", nil, nil, nil, IDNoChecksum, false},
		"gone": {
			"six tries, then the site counts as silent", sum,
			[]way{sendStatus(404)},
			nil,
			[]string{"", "", "", "", "", ""},
			IDDownload, true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := serveContent(t, tt.sums, tt.ways...)
			d := &downloader{client: s.Client(), dir: t.TempDir(), delay: time.Microsecond}
			if tt.part != nil {
				if err := os.WriteFile(filepath.Join(d.dir, sum+".part"), tt.part, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := d.getPublished(t.Context(), s.URL+"/file", s.URL+"/file.sum", func(source.Progress) {})
			if !slices.Equal(s.ranges, tt.ranges) {
				t.Errorf("%s: ranges %q, want %q", tt.reason, s.ranges, tt.ranges)
			}
			if tt.id != "" {
				var l diag.List
				if !errors.As(err, &l) || l[0].ID != tt.id || errors.Is(err, source.ErrSilent) != tt.silent {
					t.Errorf("%s: got %v", tt.reason, err)
				}
				if _, ok := d.findCached(s.URL + "/file"); ok {
					t.Errorf("%s: it counts as downloaded", tt.reason)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if data, err := os.ReadFile(got.path); err != nil || !bytes.Equal(data, content) || got.sum != sum {
				t.Errorf("%s: %d bytes, %v", tt.reason, len(data), err)
			}
			s.Close()
			if _, err := d.getPublished(t.Context(), s.URL+"/file", s.URL+"/file.sum", func(source.Progress) {}); err != nil {
				t.Errorf("%s: again, without the server: %v", tt.reason, err)
			}
		})
	}
}

func TestGetPublished_StopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serveContent(t, sum, func(w http.ResponseWriter, r *http.Request) {
		sendRange(w, r, content, 10)
		cancel()
		<-r.Context().Done()
	})
	d := &downloader{client: s.Client(), dir: t.TempDir(), delay: time.Hour}
	_, err := d.getPublished(ctx, s.URL+"/file", s.URL+"/file.sum", func(source.Progress) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestGetPublished_FetchesDamagedFileAgain: a file that has changed in the cache is
// downloaded again.
func TestGetPublished_FetchesDamagedFileAgain(t *testing.T) {
	s := serveContent(t, sum, sendWhole)
	d := &downloader{client: s.Client(), dir: t.TempDir(), delay: time.Microsecond}
	for range 2 {
		got, err := d.getPublished(t.Context(), s.URL+"/file", s.URL+"/file.sum", func(source.Progress) {})
		if err != nil {
			t.Fatal(err)
		}
		if err := verifyFile(got.path, sum); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(got.path, []byte("damage"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzFindSum(f *testing.F) {
	f.Add(sum+"  file\n", "file")
	f.Add(sum, "file")
	f.Add("garbage", "file")
	f.Fuzz(func(t *testing.T, text, file string) {
		if got, ok := findSum(text, file); ok && (!sumForm.MatchString(got) || !strings.Contains(text, got)) {
			t.Errorf("found %q", got)
		}
	})
}

func TestNewSites_UsesOfficialSitesUnlessMirrored(t *testing.T) {
	s, err := newSites(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.fileURL("kubernetes", "1.37.1", "arm64",
		"kubelet"), "https://dl.k8s.io/release/v1.37.1/bin/linux/arm64/kubelet"; got != want {
		t.Errorf("official: %s", got)
	}
	if got := s.pullReference("registry.k8s.io/coredns/coredns:v1.14.6"); got != "registry.k8s.io/coredns/coredns:v1.14.6" {
		t.Errorf("official image: %s", got)
	}
	f, err := readSites()
	if err != nil {
		t.Fatal(err)
	}
	for _, mirror := range MirrorNames() {
		m, err := newSites(Options{Mirror: mirror, Sites: map[string]string{"ghcr.io": "mirror.example/ghcr"}})
		if err != nil {
			t.Fatal(err)
		}
		if m["kubernetes"] == s["kubernetes"] {
			t.Errorf("%s: the same as the official site", mirror)
		}
		if got := m.pullReference("ghcr.io/flannel-io/flannel:v1"); got != "mirror.example/ghcr/flannel-io/flannel:v1" {
			t.Errorf("%s with a site replaced: %s", mirror, got)
		}
		for name := range f.Mirrors[mirror] {
			if _, ok := f.Official[name]; !ok {
				t.Errorf("mirror %s has unknown site %s", mirror, name)
			}
		}
	}
	if len(f.Mirrors) != len(MirrorNames()) {
		t.Errorf("%d mirrors in the data, %d named", len(f.Mirrors), len(MirrorNames()))
	}
}
