//go:build linux

package helper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/executor"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
	nodep2p "slipway.dev/slipway/internal/node/p2p"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/p2p"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
)

// A field is a manager and hosts with the real helper, but that each has a
// directory for its state. They are reached over real SSH and reach each other
// over TCP, all on loopback.
type field struct {
	t       testing.TB
	shelf   *shelf
	content *p2p.Content
	hosts   []*fieldHost
}

type fieldHost struct {
	name   string
	state  string
	server *remotetest.Server
	conn   remote.Host
	// lender belongs to the last session. Before a session begins, bend may replace
	// its behaviour.
	mu     sync.Mutex
	lender *nodep2p.Lender
	bend   func(h *fieldHost, l remote.Loan, o remote.Offer) (remote.Offer, error)
}

// shelf holds the blobs of the manager. Its uplink sends rate bytes a second; 0 means no
// limit.
type shelf struct {
	blobs map[string][]byte
	rate  int
	line  sync.Mutex // one at a time has the uplink
}

func (s *shelf) addBlob(content []byte) op.FetchBlob {
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	s.blobs[digest] = content
	return op.FetchBlob{Blob: op.Blob{Digest: digest, Size: int64(len(content))}, Name: digest[7:15]}
}

// fillWith adds blobs of these sizes, which nothing makes smaller.
func (s *shelf) fillWith(sizes ...int) (ops op.List, total int64) {
	r := rand.NewChaCha8([32]byte{1})
	for _, n := range sizes {
		content := make([]byte, n)
		_, _ = r.Read(content)
		ops = append(ops, s.addBlob(content))
		total += int64(n)
	}
	return ops, total
}

func (s *shelf) OpenBlob(digest string, offset int64) (io.ReadCloser, error) {
	content, ok := s.blobs[digest]
	if !ok {
		return nil, fmt.Errorf("no blob %s", digest)
	}
	return io.NopCloser(&uplink{bytes.NewReader(content[offset:]), s}), nil
}

type uplink struct {
	io.Reader
	s *shelf
}

func (u *uplink) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if u.s.rate > 0 {
		u.s.line.Lock()
		defer u.s.line.Unlock()
		<-time.After(time.Duration(n) * time.Second / time.Duration(u.s.rate))
	}
	return n, err
}

// newField connects n hosts. With alone, the hosts do not receive each other's addresses.
func newField(t testing.TB, n int, alone bool, adapt func(*fieldHost)) *field {
	t.Helper()
	f := &field{t: t, shelf: &shelf{blobs: map[string][]byte{}}}
	f.content = p2p.New(f.shelf)
	dialer := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	home := t.TempDir()
	addresses := map[string]string{}
	var wg sync.WaitGroup
	for i := range n {
		h := &fieldHost{name: fmt.Sprintf("h%d", i+1), state: memoryDir(t)}
		if adapt != nil {
			adapt(h)
		}
		h.server = remotetest.StartServer(t, remotetest.Config{
			Users:   []remotetest.User{{Name: "root", Password: "pass"}},
			Machine: remotetest.Machine{Handler: h.newHandler},
		})
		f.hosts = append(f.hosts, h)
		addresses[h.name] = "127.0.0.1"
		opts := remote.Options{Blobs: f.content, Home: home, KnownHosts: filepath.Join(home, "known_hosts"), Reconnect: -1}
		wg.Go(func() {
			var err error
			if h.conn, err = dialer.Connect(t.Context(), h.server.HostWith(h.name, v1alpha1.SSH{Password: "pass"}), opts); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, h := range f.hosts {
			if h.conn != nil {
				_ = h.conn.Close()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	if !alone {
		f.content.SetHosts(addresses)
	}
	return f
}

// memoryDir is a directory in memory, where syncing costs nothing.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "slipway-helper-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// newHandler is the helper's, whose loans can be bent.
func (h *fieldHost) newHandler(f wire.Fetcher) wire.Handler {
	real := newHandler(executor.Runner{Root: h.state, State: filepath.Join(h.state, "state")}, "", f)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lender = real.lender
	return bent{real, h}
}

func (h *fieldHost) lenderOf() *nodep2p.Lender {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lender
}

type bent struct {
	handler
	h *fieldHost
}

// Apply behaves like the handler of the helper, but does not save the helper on the host.
func (b bent) Apply(ctx context.Context, batch remote.Batch, _ func(remote.Progress)) []op.Result {
	return b.runner.Apply(ctx, host.Batch{Operation: batch.Operation, Step: batch.Step, Cluster: batch.Cluster, Ops: batch.Ops}, nil)
}

func (b bent) Lend(ctx context.Context, l remote.Loan) (remote.Offer, error) {
	o, err := b.handler.Lend(ctx, l)
	if b.h.bend == nil || err != nil {
		return o, err
	}
	return b.h.bend(b.h, l, o)
}

// fetchBlobs has a host fetch blobs and wants them whole.
func (f *field) fetchBlobs(h *fieldHost, ops op.List) {
	if err := errors.Join(f.applyOps(h, ops), f.verifyBlobs(h, ops)); err != nil {
		f.t.Errorf("%s: %v", h.name, err)
	}
}

func (f *field) applyOps(h *fieldHost, ops op.List) error {
	results, err := h.conn.Apply(f.t.Context(), remote.Batch{Operation: "create-1", Step: "step", Cluster: "demo", Ops: ops}, nil)
	for _, r := range results {
		if r.Status == op.Failed {
			err = errors.Join(err, fmt.Errorf("%s: %s", r.Target, r.Error.Message))
		}
	}
	return err
}

func (f *field) verifyBlobs(h *fieldHost, ops op.List) error {
	for _, o := range ops {
		digest := o.(op.FetchBlob).Digest
		got, err := os.ReadFile(h.blobPath(digest))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, f.shelf.blobs[digest]) {
			return fmt.Errorf("blob %s is something else", digest)
		}
	}
	return nil
}

func (h *fieldHost) blobPath(digest string) string {
	return filepath.Join(h.state, "state", "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

// fetchAll has all hosts fetch at once.
func (f *field) fetchAll(hosts []*fieldHost, ops op.List) {
	var wg sync.WaitGroup
	for _, h := range hosts {
		wg.Go(func() { f.fetchBlobs(h, ops) })
	}
	wg.Wait()
}

// wantSent wants the manager to have sent so many bytes.
func (f *field) wantSent(least, most int64) {
	f.t.Helper()
	if got := f.content.BytesSent(); got < least || got > most {
		f.t.Errorf("the manager has sent %d bytes, want %d to %d", got, least, most)
	}
}
