package kube_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// newLargeCluster returns a cluster.
func newLargeCluster() *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1", Address: "198.18.0.2", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}}}
	return c
}

// newLargeText returns a text of 2 MiB that cannot be compressed much, so that it needs several Secrets.
func newLargeText(seed uint64) []byte {
	random, text := rand.New(rand.NewPCG(seed, 1)), make([]byte, 2<<20)
	for i := range text {
		text[i] = byte(' ' + random.IntN(90))
	}
	return text
}

// TestLargeContent_IsOneOfSeveralWriters saves large contents at the same time. A reader sees one of them
// completely, and a removal leaves nothing.
func TestLargeContent_IsOneOfSeveralWriters(t *testing.T) {
	t.Parallel()
	c := newConfig(t, faultproxy.New(t, server.Admin))
	const writers, rounds = 3, 3
	texts := map[string]bool{}
	var all sync.WaitGroup
	errs := make(chan error, writers*rounds)
	for w := range uint64(writers) {
		s, text := openStore(t, c), newLargeText(w)
		texts[string(text)] = true
		all.Go(func() {
			for range rounds {
				errs <- s.Clusters().Save(t.Context(), newLargeCluster(), &records.Source{Text: text})
			}
		})
	}
	all.Wait()
	for range writers * rounds {
		requireNoError(t, <-errs)
	}
	s := openStore(t, c)
	source, err := s.Clusters().LoadSource(t.Context(), "prod")
	requireNoError(t, err)
	if !texts[string(source.Text)] {
		t.Error("the content is not the one of a writer")
	}
	requireNoError(t, s.Clusters().Remove(t.Context(), "prod"))
	left, err := server.Client(t).CoreV1().Secrets(c.Namespace).List(t.Context(), metav1.ListOptions{})
	requireNoError(t, err)
	for _, secret := range left.Items {
		t.Errorf("Secret %s is left", secret.Name)
	}
	if _, err := s.Clusters().LoadSource(t.Context(), "prod"); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("after the removal: %v", err)
	}
}
