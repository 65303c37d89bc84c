package controlplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	killSeed    = 22
	killWriters = 4
	// killRunning and killStarting limit the time after which the server is killed: after it
	// was ready, and after its process has started.
	killRunning, killStarting = 1500 * time.Millisecond, 2500 * time.Millisecond
)

// TestRobustKill_LosesNoAcknowledgedWrite kills the server at random moments under writes, also
// while it starts. Acknowledged writes are there afterwards, and a watch sees every object.
func TestRobustKill_LosesNoAcknowledgedWrite(t *testing.T) {
	data, listen := t.TempDir()+"/a server", freeAddress(t)
	random := rand.New(rand.NewPCG(killSeed, killSeed))
	c := startChild(t, data, listen, serverOptions{})
	t.Logf("first start: %s, %s of the processors", c.took, c.cpu)
	config := c.config(t)

	ctx, stopAll := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() {
		stopAll()
		running.Wait()
	}()
	seen := &sightings{names: map[string]bool{}}
	watched := mapsOf(t, config)
	running.Go(func() { seen.follow(ctx, watched) })
	writing, stopWriters := context.WithCancel(ctx)
	var writers sync.WaitGroup
	written := make([]*writes, killWriters)
	for i := range written {
		written[i] = &writes{prefix: fmt.Sprintf("writer-%d", i)}
		maps := mapsOf(t, config)
		writers.Go(func() { written[i].run(writing, maps) })
	}
	defer func() {
		stopWriters()
		writers.Wait()
	}()

	var took, cpu []time.Duration
	for i := range killCount {
		pause(ctx, time.Duration(random.Int64N(int64(killRunning))))
		c.kill()
		if i%3 == 2 { // again, while it starts
			starting, _ := spawnChild(t, data, listen, serverOptions{})
			pause(ctx, time.Duration(random.Int64N(int64(killStarting))))
			starting.kill()
		}
		c = startChild(t, data, listen, serverOptions{})
		took, cpu = append(took, c.took), append(cpu, c.cpu)
	}
	for _, w := range written {
		eventually(t, "a writer has written nothing", w.hasStored)
	}
	stopWriters()
	writers.Wait()

	slices.Sort(took)
	slices.Sort(cpu)
	t.Logf("%d restarts: median %s, longest %s; of the processors: median %s, longest %s", killCount,
		took[killCount/2], took[killCount-1], cpu[killCount/2], cpu[killCount-1])
	have := listMaps(t, config)
	lost := 0
	for _, w := range written {
		lost += w.compare(t, have)
	}
	t.Logf("%d objects, %d acknowledged writes lost", len(have), lost)
	eventually(t, "the watch has not seen all objects", func() error { return seen.compare(have) })
	begun := time.Now()
	c.stop(t)
	t.Logf("the stop with a watch took %s", time.Since(begun))
	stopAll()
	running.Wait()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	t.Logf("the watch was resumed %d times, and listed %d times", seen.resumed, seen.listed)
}

// mapsOf returns a client for the objects of the test, with its own connection.
func mapsOf(t *testing.T, config *rest.Config) corev1client.ConfigMapInterface {
	t.Helper()
	client, err := kubernetes.NewForConfigAndClient(config, mustHTTP(t, config))
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
}

// mustHTTP returns an HTTP client that shares no connections.
func mustHTTP(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	own := rest.CopyConfig(config)
	own.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // a function is not shared
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// listMaps returns the objects of the test and their counts.
func listMaps(t *testing.T, config *rest.Config) map[string]int {
	t.Helper()
	maps := mapsOf(t, config)
	var list *corev1.ConfigMapList
	err := repeatIfBusy(t.Context(), func() (err error) {
		list, err = maps.List(t.Context(), metav1.ListOptions{LabelSelector: "test=kill"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for _, item := range list.Items {
		have[item.Name], _ = strconv.Atoi(item.Data["count"])
	}
	return have
}

// writes are the acknowledged writes of one writer: new objects, and the counter of one of them.
type writes struct {
	prefix string
	names  []string
	count  int
	stored atomic.Bool // there is a name
}

// hasStored returns an error if no write was acknowledged.
func (w *writes) hasStored() error {
	if !w.stored.Load() {
		return fmt.Errorf("%s has no acknowledged write", w.prefix)
	}
	return nil
}

// run writes until ctx ends. A write without a response is tried again under another name.
func (w *writes) run(ctx context.Context, maps corev1client.ConfigMapInterface) {
	newMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "kill"}},
			Data:       map[string]string{"count": "0"},
		}
	}
	counter := w.prefix + "-counter"
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", w.prefix, i)
		if _, err := maps.Create(ctx, newMap(name), metav1.CreateOptions{}); err != nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		w.names = append(w.names, name)
		w.stored.Store(true)
		object, err := maps.Get(ctx, counter, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			object, err = maps.Create(ctx, newMap(counter), metav1.CreateOptions{})
		}
		if err != nil {
			continue
		}
		count, _ := strconv.Atoi(object.Data["count"])
		object.Data["count"] = strconv.Itoa(count + 1)
		if _, err := maps.Update(ctx, object, metav1.UpdateOptions{}); err == nil {
			w.count = count + 1
		}
	}
}

// compare reports lost writes.
func (w *writes) compare(t *testing.T, have map[string]int) (lost int) {
	t.Helper()
	for _, name := range w.names {
		if _, ok := have[name]; !ok {
			t.Errorf("%s was acknowledged and is lost", name)
			lost++
		}
	}
	if got := have[w.prefix+"-counter"]; got < w.count {
		t.Errorf("the counter of %s is %d, but %d was acknowledged", w.prefix, got, w.count)
		lost++
	}
	if len(w.names) == 0 {
		t.Errorf("%s has written nothing", w.prefix)
	}
	return lost
}

// sightings are the objects that a watch has seen.
type sightings struct {
	mu              sync.Mutex
	names           map[string]bool
	version         string // of the last event; "" if the objects must be listed
	listed, resumed int
}

// follow watches until ctx ends: from the last version, or after a new list.
func (s *sightings) follow(ctx context.Context, maps corev1client.ConfigMapInterface) {
	for ctx.Err() == nil {
		if err := s.watchOnce(ctx, maps); err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				s.version = ""
			}
			pause(ctx, 20*time.Millisecond)
		}
	}
}

func (s *sightings) watchOnce(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	if s.version == "" {
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "test=kill"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			s.add(list.Items[i].Name, "")
		}
		s.add("", list.ResourceVersion)
		s.count(1, 0)
	} else {
		s.count(0, 1)
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "test=kill", ResourceVersion: s.version})
	if err != nil {
		s.count(0, -1)
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		object, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			return apierrors.FromObject(event.Object)
		}
		s.add(object.Name, object.ResourceVersion)
	}
	return nil
}

// count adds to the numbers of lists and of resumed watches.
func (s *sightings) count(listed, resumed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed += listed
	s.resumed += resumed
}

func (s *sightings) add(name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" {
		s.names[name] = true
	}
	if version != "" {
		s.version = version
	}
}

// compare returns an error if an object was not seen.
func (s *sightings) compare(have map[string]int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range have {
		if !s.names[name] {
			return fmt.Errorf("%s was not seen", name)
		}
	}
	return nil
}
