package readcache

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An api has objects and counts requests. Its watch can be behind.
type api struct {
	client.Reader // no other calls

	mu       sync.Mutex
	secrets  map[string]*corev1.Secret
	maps     map[string]*corev1.ConfigMap
	watched  map[string]string // versions by kind and name
	requests int
}

var errMissing = apierrors.NewNotFound(corev1.Resource("secrets"), "x")

func (a *api) Get(_ context.Context, key client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch out := out.(type) {
	case *metav1.PartialObjectMetadata:
		version := a.watched[out.Kind+"/"+key.Name]
		if version == "" {
			return errMissing
		}
		out.ResourceVersion = version
		return nil
	case *corev1.Secret:
		a.requests++
		if is := a.secrets[key.Name]; is != nil {
			is.DeepCopyInto(out)
			return nil
		}
	case *corev1.ConfigMap:
		a.requests++
		if is := a.maps[key.Name]; is != nil {
			is.DeepCopyInto(out)
			return nil
		}
	}
	return errMissing
}

// put changes a Secret, and reports it by the watch unless the watch is behind.
func (a *api) put(name, version, text string, behind bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secrets[name] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}, Data: map[string][]byte{"k": []byte(text)},
	}
	if !behind {
		a.watched["Secret/"+name] = version
	}
}

// takeRequests returns the number of requests since the last call.
func (a *api) takeRequests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.requests = 0 }()
	return a.requests
}

func newAPI() *api {
	return &api{secrets: map[string]*corev1.Secret{}, maps: map[string]*corev1.ConfigMap{}, watched: map[string]string{}}
}

func newTestCache(a *api, now *time.Time, size int) *Cache {
	return New(Config{Versions: a, Live: a, Now: func() time.Time { return *now }, Size: size})
}

// read returns the content of a Secret, "" if it does not exist.
func read(t *testing.T, c *Cache, fresh bool, name string) string {
	t.Helper()
	s, err := c.ReadSecret(fresh)(t.Context(), "default", name)
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	text := string(s.Data["k"])
	s.Data["k"][0] = '!' // the caller may change its copy
	return text
}

func TestReader_ReadsOnlyChangedObjects(t *testing.T) {
	a, now := newAPI(), time.Now()
	c := newTestCache(a, &now, 0)
	a.put("x", "1", "one", false)
	for _, tc := range []struct {
		name, reason string
		change       func()
		fresh        bool
		want         string
		requests     int
	}{
		{"first", "nothing is known", func() {}, false, "one", 1},
		{"again", "the version is the same", func() {}, false, "one", 0},
		{"fresh", "a request was demanded", func() {}, true, "one", 1},
		{"changed", "the watch has reported the change", func() { a.put("x", "2", "two", false) }, false, "two", 1},
		{"then", "the new version is known", func() {}, false, "two", 0},
		{"watch behind, fresh", "a request is independent of the watch", func() { a.put("x", "3", "three", true) }, true, "three", 1},
		{"watch behind", "the versions differ", func() {}, false, "three", 1},
		{"watch continues", "the latest version was read", func() { a.put("x", "3", "three", false) }, false, "three", 0},
		{"old", "the watch may be interrupted", func() { now = now.Add(maxAge) }, false, "three", 1},
		{"deleted", "the watch has reported it", func() { delete(a.secrets, "x"); delete(a.watched, "Secret/x") }, false, "", 1},
		{"still deleted", "the watch has reported nothing", func() {}, false, "", 0},
		{"created again", "another object has the name", func() { a.put("x", "9", "nine", false) }, false, "nine", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.change()
			got := read(t, c, tc.fresh, "x")
			if n := a.takeRequests(); got != tc.want || n != tc.requests {
				t.Errorf("%s: %q with %d requests, want %q with %d", tc.reason, got, n, tc.want, tc.requests)
			}
		})
	}
}

func TestReader_DistinguishesKinds(t *testing.T) {
	a, now := newAPI(), time.Now()
	c := newTestCache(a, &now, 0)
	a.put("x", "1", "secret", false)
	a.maps["x"] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "1"}, Data: map[string]string{"k": "map"}}
	a.watched["ConfigMap/x"] = "1"
	for range 3 {
		var is corev1.ConfigMap
		name := types.NamespacedName{Name: "x", Namespace: "default"}
		if err := c.Reader(false).Get(t.Context(), name, &is); err != nil || is.Data["k"] != "map" {
			t.Errorf("%v, %v", is.Data, err)
		}
		if got := read(t, c, false, "x"); got != "secret" {
			t.Errorf("got %q", got)
		}
	}
	if n := a.takeRequests(); n != 2 {
		t.Errorf("%d requests, want one for each object", n)
	}
	var pod corev1.Pod // another kind is not kept
	if err := c.Reader(false).Get(t.Context(), types.NamespacedName{Name: "x"}, &pod); !errors.Is(err, error(errMissing)) {
		t.Errorf("another kind: %v", err)
	}
}

// TestCache_IsBounded reads more than fits. The objects that were used last remain.
func TestCache_IsBounded(t *testing.T) {
	a, now := newAPI(), time.Now()
	const size = 10 << 10
	c := newTestCache(a, &now, 3*(size+metadataSize+1))
	for _, name := range []string{"a", "b", "c", "d"} {
		a.put(name, "1", strings.Repeat(name, size), false)
	}
	a.put("large", "1", strings.Repeat("l", 4*size), false)
	for i, name := range []string{"a", "b", "c", "a", "d", "large", "a", "c", "d", "b"} {
		read(t, c, false, name)
		if c.size > c.Size || c.used.Len() != len(c.entries) || c.used.Len() > 3 {
			t.Errorf("read %d: %d bytes in %d objects, want at most %d bytes", i+1, c.size, c.used.Len(), c.Size)
		}
	}
	if n := a.takeRequests(); n != 6 { // a, b, c, d, large, and b again, which was used least
		t.Errorf("%d requests", n)
	}
}

// TestCache_CanBeSharedByGoroutines reads and changes objects at the same time. No reader sees an older version than
// the watch.
func TestCache_CanBeSharedByGoroutines(t *testing.T) {
	a, now := newAPI(), time.Now()
	c := newTestCache(a, &now, 0)
	a.put("x", "100", "100", false)
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			for range 200 {
				a.mu.Lock()
				least := a.watched["Secret/x"]
				a.mu.Unlock()
				if got := read(t, c, i == 0, "x"); got < least {
					t.Errorf("version %s, but the watch has reported %s", got, least)
				}
			}
		})
	}
	for version := range 100 {
		text := string(rune('1'+version/100)) + string(rune('0'+version/10)) + string(rune('0'+version%10))
		a.put("x", text, text, false)
	}
	g.Wait()
}
