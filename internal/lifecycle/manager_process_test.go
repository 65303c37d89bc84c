//go:build apiserver

package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// managerVariable has the options of a manager that the test binary runs instead of its tests.
const managerVariable = "SLIPWAY_TEST_MANAGER"

// managerOptions are the options of a manager in a separate process.
type managerOptions struct {
	Server, Namespace, Dir, Cache string
	Hosts                         string // the socket of hosts
	Cluster                       *v1alpha1.Cluster
}

// runManager runs a manager instead of tests if the environment has its options.
func runManager(ctx context.Context) {
	text := os.Getenv(managerVariable)
	if text == "" {
		return
	}
	if err := createInProcess(ctx, text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// createInProcess creates a cluster with records in an API. Its hosts are in another process.
func createInProcess(ctx context.Context, text string) (err error) {
	var o managerOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	backend, err := kube.New(kube.Config{
		Client: &rest.Config{Host: o.Server, QPS: -1}, Namespace: o.Namespace, BackupDir: filepath.Join(o.Dir, "backups"), TempDir: o.Dir,
		LeaseTime: killLeaseTime, Patience: 10 * time.Second, PartsPerSecond: fakeParts,
	})
	if err != nil {
		return err
	}
	files, err := backend.Files(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	catalogue, err := release.Load("")
	if err != nil {
		return err
	}
	client, err := jsonrpc.Dial("unix", o.Hosts)
	if err != nil {
		return err
	}
	hosts := &distantHosts{Client: client, socket: o.Hosts}
	p, err := New(Config{
		Records: backend, Files: files, Catalogue: catalogue, Cache: o.Cache, Home: o.Dir,
		Connect: hosts.connect, Dial: hosts.dialAPI, Now: hosts.now,
	}).Prepare(ctx, CreateRequest{Subject: fromFile(o.Cluster, firstFile)}, nil)
	if err != nil {
		return err
	}
	res, err := p.Apply(ctx)
	if err = errors.Join(err, p.Close()); err == nil && res.Outcome != event.Succeeded {
		err = fmt.Errorf("the operation ended as %s: %v", res.Outcome, res.Failures)
	}
	return err
}

// distantHosts are the hosts of a test, in the process of the test.
type distantHosts struct {
	*rpc.Client
	socket string
}

func (d *distantHosts) now() (now time.Time) {
	_ = d.Call("Hosts.Now", struct{}{}, &now) // fails only if the test has ended, which kills this process
	return now
}

func (d *distantHosts) connect(_ context.Context, h v1alpha1.Host, _ remote.Options) (remote.Host, error) {
	return distantHost{d, h.Name}, nil
}

func (d *distantHosts) dialAPI(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dial(ctx, tunnel{Network: network, Address: address})
}

// dial opens a connection through the process of the test.
func (d *distantHosts) dial(ctx context.Context, to tunnel) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", d.socket+tunnels)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(c).Encode(to); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(c, answer); err != nil {
		return nil, errors.Join(fmt.Errorf("dialling %s: %w", to.Address, err), c.Close())
	}
	return c, nil
}

// tunnels is the end of the name of the socket of tunnels.
const tunnels = ".tunnels"

// A tunnel is a connection from a host, or from the manager if Host is "".
type tunnel struct{ Host, Network, Address string }

// A distantHost is a host of a test.
type distantHost struct {
	*distantHosts
	name string
}

// A HostCall is a call of a method of a host. Package net/rpc needs exported names.
type HostCall struct {
	Host     string
	Batch    remote.Batch
	Lock     remote.Lock
	Breaking bool
}

// A LockAnswer is the answer to a call about the lock.
type LockAnswer struct {
	State remote.LockState
	OK    bool
}

func (h distantHost) Name() string { return h.name }

func (distantHost) Close() error { return nil }

func (h distantHost) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return h.dial(ctx, tunnel{h.name, network, address})
}

func (h distantHost) Check(ctx context.Context, ops op.List) (out []op.Result, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return out, h.Call("Hosts.Check", HostCall{Host: h.name, Batch: remote.Batch{Ops: ops}}, &out)
}

func (h distantHost) Apply(ctx context.Context, b remote.Batch, _ func(remote.Progress)) (out []op.Result, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return out, h.Call("Hosts.Apply", HostCall{Host: h.name, Batch: b}, &out)
}

func (h distantHost) ReadLock(context.Context) (remote.LockState, error) {
	var a LockAnswer
	err := h.Call("Hosts.ReadLock", HostCall{Host: h.name}, &a)
	return a.State, err
}

func (h distantHost) TakeLock(_ context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	var a LockAnswer
	err := h.Call("Hosts.TakeLock", HostCall{Host: h.name, Lock: l, Breaking: breaking}, &a)
	return a.State, a.OK, err
}

func (h distantHost) Beat(_ context.Context, l remote.Lock) (bool, error) {
	var a LockAnswer
	err := h.Call("Hosts.Beat", HostCall{Host: h.name, Lock: l}, &a)
	return a.OK, err
}

func (h distantHost) ReleaseLock(_ context.Context, l remote.Lock) error {
	return h.Call("Hosts.ReleaseLock", HostCall{Host: h.name, Lock: l}, &LockAnswer{})
}

// A managerProcess is a manager in a separate process.
type managerProcess struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan struct{}
	cpu    time.Duration
}

// startManager starts a manager that creates the cluster of a world. Its requests go through the
// points.
func startManager(t *testing.T, w *world, namespace string, points *killPoints) *managerProcess {
	t.Helper()
	target := rest.CopyConfig(apiServer.Admin)
	target.Wrap(points.wrap)
	dir := t.TempDir()
	text, err := json.Marshal(managerOptions{
		Server: faultproxy.New(t, target).Config().Host, Namespace: namespace, Dir: dir, Cache: w.cache,
		Hosts: serveHosts(t, w, points), Cluster: w.Manifest(),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &managerProcess{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	m.cmd.Env = append(os.Environ(), managerVariable+"="+string(text))
	m.cmd.Stdout, m.cmd.Stderr = &m.output, &m.output
	points.kill = func() {
		_ = m.cmd.Process.Kill() // it has ended already if this fails
		<-m.ended
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(m.ended)
		_ = m.cmd.Wait() // wait reports the state
		m.cpu = m.cmd.ProcessState.UserTime() + m.cmd.ProcessState.SystemTime()
	}()
	t.Cleanup(points.kill)
	return m
}

// managerTime limits a manager, which takes seconds.
const managerTime = 2 * time.Minute

// wait waits for the end of the manager, and of all that it has begun. It reports whether the manager was
// killed. Otherwise the manager must have finished the operation.
func (m *managerProcess) wait(t *testing.T, w *world, points *killPoints) (killed bool) {
	t.Helper()
	select {
	case <-m.ended:
	case <-time.After(managerTime):
		t.Fatalf("the manager has not ended after %s", managerTime)
	}
	points.running.Wait()
	for _, h := range w.Hosts {
		h.OnChange = nil
	}
	status, ok := m.cmd.ProcessState.Sys().(syscall.WaitStatus)
	killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	if !killed && !m.cmd.ProcessState.Success() {
		t.Fatalf("the manager: %s\n%s", m.cmd.ProcessState, m.output.String())
	}
	if killed != (points.at != "" && points.isDead()) {
		t.Fatalf("killed %t at %q: %s", killed, points.at, m.output.String())
	}
	return killed
}
