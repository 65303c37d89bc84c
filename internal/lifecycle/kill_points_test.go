//go:build apiserver

package lifecycle

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// killPoints are the points that a manager reaches, and kill it at one of them: before and after each
// write to the API, before each change of a host, and before the answer of a host.
type killPoints struct {
	at      string // the point, "" for none
	kill    func()
	running sync.WaitGroup // requests of the manager

	mu      sync.Mutex
	isOver  bool
	seen    []string
	count   map[string]int
	applied map[string][]string // the steps that have changed a host
}

func newKillPoints(at string) *killPoints {
	return &killPoints{at: at, count: map[string]int{}, applied: map[string][]string{}}
}

// pass is called when the manager reaches a point. It returns true if the manager is dead, after it has
// killed it if this is its point.
func (k *killPoints) pass(name string) (dead bool) {
	k.mu.Lock()
	if k.isOver {
		k.mu.Unlock()
		return true
	}
	k.count[name]++
	name = fmt.Sprintf("%s %d", name, k.count[name])
	k.seen = append(k.seen, name)
	k.isOver = name == k.at
	dead = k.isOver
	k.mu.Unlock()
	if dead {
		k.kill()
	}
	return dead
}

func (k *killPoints) isDead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.isOver
}

// wrap returns a transport with two points for each write.
func (k *killPoints) wrap(next http.RoundTripper) http.RoundTripper {
	return &killingTransport{next, k}
}

type killingTransport struct {
	http.RoundTripper
	points *killPoints
}

func (t *killingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.points.running.Add(1)
	defer t.points.running.Done()
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return t.RoundTripper.RoundTrip(r)
	}
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/")
	_, path, _ = strings.Cut(path, "/") // without the namespace of the test
	resource, name, _ := strings.Cut(path, "/")
	if resource != "operationlogs" && resource != "operations" { // other names are the same in each run
		resource += " " + name
	}
	write := r.Method + " " + strings.TrimSpace(resource)
	if t.points.pass(write + " sent") {
		return nil, errKilled
	}
	// The server executes a request whose client ends.
	answer, err := t.RoundTripper.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	if err == nil && t.points.pass(write+" answered") {
		_ = answer.Body.Close() // the client has ended
		return nil, errKilled
	}
	return answer, err
}

// Hosts serves the hosts of a world to a manager.
type Hosts struct {
	w      *world
	points *killPoints
	ctx    context.Context // of all calls that change a host; it ends with the manager
}

// serveHosts serves the hosts of a world on a socket until the test ends.
func serveHosts(t *testing.T, w *world, points *killPoints) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "h") // names of sockets are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "hosts")
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	h := &Hosts{w, points, ctx}
	for name, m := range w.Hosts {
		m.OnChange = func(what string) {
			if points.pass(name + " " + what + " change") {
				stop()
			}
		}
	}
	server := rpc.NewServer()
	if err := server.Register(h); err != nil {
		t.Fatal(err)
	}
	serveSocket(t, socket, func(c net.Conn) { server.ServeCodec(jsonrpc.NewServerCodec(c)) })
	serveSocket(t, socket+tunnels, h.serveTunnel)
	return socket
}

// serveSocket calls serve for each connection to a socket until the test ends.
func serveSocket(t *testing.T, path string, serve func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	g.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil { // closed
				return
			}
			g.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.Wait()
	})
}

// serveTunnel passes on what a manager sends to an address that it or a host reaches.
func (h *Hosts) serveTunnel(c net.Conn) {
	var to tunnel
	line, err := bufio.NewReader(c).ReadBytes('\n') // the manager sends nothing else before the answer
	if err != nil || json.Unmarshal(line, &to) != nil {
		return
	}
	dial := h.w.Dial
	if to.Host != "" {
		conn, err := h.connect(to.Host)
		if err != nil {
			return
		}
		defer conn.Close()
		dial = conn.DialContext
	}
	there, err := dial(context.Background(), to.Network, to.Address)
	if err != nil {
		return
	}
	defer there.Close()
	if _, err := c.Write([]byte{'+'}); err != nil {
		return
	}
	var g sync.WaitGroup
	g.Go(func() { // ends with either connection
		_, _ = io.Copy(there, c)
		_ = there.Close()
	})
	_, _ = io.Copy(c, there)
	_ = c.Close()
	g.Wait()
}

func (h *Hosts) connect(name string) (remote.Host, error) {
	return h.w.Connect(context.Background(), v1alpha1.Host{Name: name}, remote.Options{})
}

// A lockingHost is a host that keeps a part of the lock.
type lockingHost interface {
	remote.Host
	remote.Locker
}

// call calls a method of a host, unless the manager is dead.
func (h *Hosts) call(c *HostCall, do func(lockingHost) error) error {
	h.points.running.Add(1)
	defer h.points.running.Done()
	if h.points.isDead() {
		return errKilled
	}
	conn, err := h.connect(c.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(conn.(lockingHost))
}

// Now returns the time of the world.
func (h *Hosts) Now(_ struct{}, now *time.Time) error {
	*now = h.w.Now()
	return nil
}

// Check checks operations on a host.
func (h *Hosts) Check(c *HostCall, out *[]op.Result) error {
	return h.call(c, func(host lockingHost) (err error) {
		*out, err = host.Check(context.Background(), c.Batch.Ops)
		return err
	})
}

// Apply applies operations on a host. It ends before the next change when the manager is dead.
func (h *Hosts) Apply(c *HostCall, out *[]op.Result) error {
	return h.call(c, func(host lockingHost) (err error) {
		*out, err = host.Apply(h.ctx, c.Batch, nil)
		h.points.noteApplied(c.Host, c.Batch.Step, *out)
		if err == nil && h.points.pass(c.Host+" "+c.Batch.Step+" answer") {
			return errKilled
		}
		return err
	})
}

// noteApplied notes that a step has changed a host.
func (k *killPoints) noteApplied(host, step string, results []op.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := slices.ContainsFunc(results, func(r op.Result) bool { return r.Status == op.Changed })
	if steps := k.applied[host]; changed && (len(steps) == 0 || steps[len(steps)-1] != step) {
		k.applied[host] = append(steps, step)
	}
}

// ReadLock returns the lock on a host.
func (h *Hosts) ReadLock(c *HostCall, a *LockAnswer) error {
	return h.call(c, func(host lockingHost) (err error) {
		a.State, err = host.ReadLock(context.Background())
		return err
	})
}

// TakeLock takes the lock on a host.
func (h *Hosts) TakeLock(c *HostCall, a *LockAnswer) error {
	return h.call(c, func(host lockingHost) (err error) {
		if a.State, a.OK, err = host.TakeLock(h.ctx, c.Lock, c.Breaking); err == nil && h.points.pass(c.Host+" lock answer") {
			return errKilled
		}
		return err
	})
}

// Beat renews the lock on a host.
func (h *Hosts) Beat(c *HostCall, a *LockAnswer) error {
	return h.call(c, func(host lockingHost) (err error) {
		a.OK, err = host.Beat(context.Background(), c.Lock)
		return err
	})
}

// ReleaseLock releases the lock on a host.
func (h *Hosts) ReleaseLock(c *HostCall, _ *LockAnswer) error {
	return h.call(c, func(host lockingHost) error {
		if h.points.pass(c.Host + " release change") {
			return errKilled
		}
		return host.ReleaseLock(context.Background(), c.Lock)
	})
}
