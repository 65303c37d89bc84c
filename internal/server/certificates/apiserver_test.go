package certificates

import (
	"bytes"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// changeSignal receives a value when an API server has loaded other files.
type changeSignal chan struct{}

// Enqueue implements dynamiccertificates.Listener.
func (s changeSignal) Enqueue() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// TestRenewal_ReachesAPIServer: the loader of an API server finds each new pair without the
// check that it makes once a minute.
func TestRenewal_ReachesAPIServer(t *testing.T) {
	c, _ := makeAt(t, startTime)
	loader, err := dynamiccertificates.NewDynamicServingContentFromFiles("test", c.ServingCertFile(), c.ServingKeyFile())
	if err != nil {
		t.Fatal(err)
	}
	changed := make(changeSignal, 1)
	loader.AddListener(changed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		loader.Run(t.Context(), 1)
	}()
	t.Cleanup(func() { <-done })
	now := startTime
	c.options.Now = func() time.Time { return now }
	broken := time.After(50 * time.Second)
	for renewal := range 20 {
		now = c.NextRenewal()
		if err := c.renewDue(); err != nil {
			t.Fatal(err)
		}
		for {
			cert, key := loader.CurrentCertKeyContent()
			if bytes.Equal(cert, c.serving.text) && bytes.Equal(key, c.serving.keyText) {
				break
			}
			select {
			case <-changed:
			case <-broken:
				t.Fatalf("renewal %d was not loaded", renewal)
			}
		}
	}
}
