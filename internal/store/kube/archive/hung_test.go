package archive_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"slipway.dev/slipway/internal/store/kube/archive"
)

// hang blocks calls of a directory as a file system whose server does not respond, until the test ends.
// It returns when count calls are blocked.
func hang(t *testing.T, d *archive.Directory, count int) {
	t.Helper()
	blocked, ended, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for range count {
		go func() {
			_ = d.Put(context.WithoutCancel(t.Context()), "clusters_hung", func(io.Writer) error {
				blocked <- struct{}{}
				<-release
				return errCrash
			})
			ended <- struct{}{}
		}()
	}
	for range count {
		<-blocked
	}
	t.Cleanup(func() {
		close(release)
		for range count {
			<-ended
		}
	})
}

// TestDirectory_EndsWithContext requires that no call waits for a file system that hangs, and that few
// goroutines remain.
func TestDirectory_EndsWithContext(t *testing.T) {
	d, _ := openDirectory(t)
	a := newArchive(t, d)
	release := make(chan struct{})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := d.Put(ctx, "clusters_slow", func(io.Writer) error { <-release; return nil }) // one call that hangs in the middle
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put: %v", err)
	}
	hang(t, d, 15) // all other calls that are possible
	before := runtime.NumGoroutine()
	for name, call := range map[string]func(context.Context) error{
		"put":   func(ctx context.Context) error { return a.Put(ctx, newRecord("prod", 0, 3)) },
		"list":  func(ctx context.Context) error { _, _, err := a.List(ctx, "prod"); return err },
		"find":  func(ctx context.Context) error { _, err := a.Find(ctx, "x"); return err },
		"load":  func(ctx context.Context) error { _, _, err := a.Load(ctx, "x", ""); return err },
		"prune": func(ctx context.Context) error { return a.Prune(ctx, []string{"prod"}, archive.Limits{}, began) },
		"ping":  func(ctx context.Context) error { return a.Ping(ctx) },
	} {
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := call(ctx); !archive.IsUnavailable(err) {
				t.Errorf("%s: %v, want a diagnostic", name, err)
			}
			cancel()
		}
	}
	if n := runtime.NumGoroutine() - before; n > 5 {
		t.Errorf("%d more goroutines remain", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := a.List(ended, "prod"); !errors.Is(err, context.Canceled) || archive.IsUnavailable(err) {
		t.Errorf("a cancelled call: %v", err)
	}
}
