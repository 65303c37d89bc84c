package kube_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records/conformance"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/store/kube/archive"
)

func TestStore_Conforms(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		dir := t.TempDir()
		return newSubject(t, kube.Config{
			Client: server.Admin, Namespace: server.NewNamespace(t), BackupDir: filepath.Join(dir, "backups"), TempDir: dir,
			LeaseTime: 2 * time.Second, Patience: 10 * time.Second,
		})
	})
}

func TestStore_ConformsWithArchive(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		dir := t.TempDir()
		return newSubject(t, kube.Config{
			Client: server.Admin, Namespace: server.NewNamespace(t), BackupDir: filepath.Join(dir, "backups"), TempDir: dir,
			LeaseTime: 2 * time.Second, Patience: 10 * time.Second, Archive: openDirectory(t, filepath.Join(dir, "archive")),
		})
	})
}

func newSubject(t *testing.T, c kube.Config) conformance.Subject {
	t.Helper()
	return conformance.Subject{
		Backend: openStore(t, c),
		Again:   func() conformance.Subject { return newSubject(t, c) },
	}
}

func openStore(t *testing.T, c kube.Config) *kube.Store {
	t.Helper()
	s, err := kube.New(c)
	requireNoError(t, err)
	return s
}

func openDirectory(t *testing.T, path string) *archive.Directory {
	t.Helper()
	d, err := archive.OpenDirectory(t.Context(), path)
	requireNoError(t, err)
	t.Cleanup(func() { requireNoError(t, d.Close()) })
	return d
}

// beginOperation saves an operation that creates cluster prod.
func beginOperation(t *testing.T, s *kube.Store) *v1alpha1.Operation {
	t.Helper()
	spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "create"}
	o, err := s.Operations().Create(t.Context(), time.Now(), spec, new(plan.Plan))
	requireNoError(t, err)
	return o
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listParts returns the selected parts of journals.
func listParts(t *testing.T, namespace, selector string) []v1alpha1.OperationLog {
	t.Helper()
	c := rest.CopyConfig(server.Admin)
	c.GroupVersion, c.APIPath = &schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	requireNoError(t, err)
	text, err := client.Get().Namespace(namespace).Resource("operationlogs").Param("labelSelector", selector).Do(t.Context()).Raw()
	requireNoError(t, err)
	var list v1alpha1.OperationLogList
	requireNoError(t, json.Unmarshal(text, &list))
	return list.Items
}

// TestJournal_LimitsItsWrites has one host that writes the burst of parts, and then many hosts at the same time.
func TestJournal_LimitsItsWrites(t *testing.T) {
	dir, writes := t.TempDir(), new(atomic.Int64)
	client := rest.CopyConfig(server.Admin)
	client.Wrap(func(next http.RoundTripper) http.RoundTripper { return countingTransport{next, writes} })
	const perSecond = 10
	s := openStore(t, kube.Config{
		Client: client, Namespace: server.NewNamespace(t), BackupDir: filepath.Join(dir, "backups"), TempDir: dir, PartsPerSecond: perSecond,
	})
	o := beginOperation(t, s)
	j, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	add := func(host int) {
		err := j.Append(event.Event{Type: event.StepStarted, Task: "kubeadm.join", Host: fmt.Sprintf("w%d", host), Operation: o.Name})
		if err := errors.Join(err, j.Sync()); err != nil {
			t.Error(err)
		}
	}
	const hosts, turns = 40, 3
	began := time.Now()
	for range kube.PartsBurst {
		add(0)
	}
	var g sync.WaitGroup
	for host := range hosts {
		g.Go(func() {
			for range turns {
				add(host)
			}
		})
	}
	g.Wait()
	requireNoError(t, j.Close())
	events := 0
	requireNoError(t, s.Journals().ReadEvents(t.Context(), o.Name, func(event.Event) error { events++; return nil }))
	limit := kube.PartsBurst + int64(perSecond*time.Since(began).Seconds()) + 2 // a chunk, and the fraction of a second
	if n := writes.Load(); n > limit || n < kube.PartsBurst || events != kube.PartsBurst+hosts*turns {
		t.Errorf("%d parts were created for %d events, want at most %d", n, events, limit)
	}
}

// A countingTransport counts the requests that create parts of journals.
type countingTransport struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && path.Base(r.URL.Path) == "operationlogs" {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}
