//go:build long

package controller

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
)

// A hostRequest is the first line of a connection to simulated hosts: for the helper of a host, or for an address that is
// dialled from the host. Without a host, it is dialled from the management plane.
type hostRequest struct {
	Cluster       int
	Host, Address string
}

// serveHosts lets other processes reach simulated clusters through a socket, and returns its path.
func serveHosts(t *testing.T, clusters []*lifecycletest.Cluster) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hosts.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		serving.Wait()
	})
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serveHost(ctx, conn, clusters) })
		}
	}()
	return path
}

// serveHost serves one connection. After an error, the other process sees the end of the connection.
func serveHost(ctx context.Context, conn net.Conn, clusters []*lifecycletest.Cluster) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	in := bufio.NewReader(conn)
	line, err := in.ReadBytes('\n')
	var r hostRequest
	if err != nil || json.Unmarshal(line, &r) != nil || r.Cluster >= len(clusters) {
		return
	}
	c := clusters[r.Cluster]
	if r.Host == "" {
		to, err := c.Dial(ctx, "tcp", r.Address)
		forward(conn, in, to, err)
		return
	}
	host, err := c.Connect(ctx, v1alpha1.Host{Name: r.Host}, remote.Options{})
	if err != nil {
		return
	}
	defer host.Close()
	if r.Address != "" {
		to, err := host.DialContext(ctx, "tcp", r.Address)
		forward(conn, in, to, err)
		return
	}
	simulated := host.(*lifecycletest.Conn)
	handler := remotetest.Handler{
		OnCheck: func(ctx context.Context, ops op.List) []op.Result {
			out, _ := simulated.Check(ctx, ops)
			return out
		},
		OnApply: func(ctx context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result {
			out, _ := simulated.Apply(ctx, b, emit)
			return out
		},
		OnLock: func(call string, l remote.Lock, breaking bool) (state remote.LockState, ok bool, err error) {
			switch call {
			case "read":
				state, err = simulated.ReadLock(ctx)
			case "take":
				return simulated.TakeLock(ctx, l, breaking)
			case "beat":
				ok, err = simulated.Beat(ctx, l)
			default:
				err = simulated.ReleaseLock(ctx, l)
			}
			return state, ok, err
		},
	}
	server := wire.Server{Handler: func(wire.Fetcher) wire.Handler { return handler }}
	_ = server.Serve(ctx, bufferedConn{conn, in})
}

// A bufferedConn is a connection of which a part was read into a buffer.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (c bufferedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// forward copies in both directions until one of them ends.
func forward(a net.Conn, fromA io.Reader, b net.Conn, err error) {
	if err != nil {
		return
	}
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(b, fromA); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(a, b); ended <- struct{}{} }()
	<-ended
	_ = b.Close()
	_ = a.Close()
	<-ended
}

// A hostSocket reaches simulated clusters of another process. Their addresses begin with 10, and then with the number of
// the cluster: "10.1.44." is cluster 300.
type hostSocket struct{ path string }

// subnetOf returns the first part of the addresses of a cluster.
func subnetOf(cluster int) string { return fmt.Sprintf("10.%d.%d", cluster/256, cluster%256) }

// clusterOf returns the number of the cluster with an address.
func clusterOf(address string) (n int, err error) {
	var high, low, host int
	if _, err := fmt.Sscanf(address, "10.%d.%d.%d", &high, &low, &host); err != nil {
		return 0, fmt.Errorf("address %q: %w", address, err)
	}
	return high*256 + low, nil
}

func (s hostSocket) open(ctx context.Context, r hostRequest) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.path)
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = conn.Write(append(line, '\n'))
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Dial dials an address from the management plane.
func (s hostSocket) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	n, err := clusterOf(address)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, hostRequest{Cluster: n, Address: address})
}

// Connect connects to a host.
func (s hostSocket) Connect(ctx context.Context, h v1alpha1.Host, o remote.Options) (remote.Host, error) {
	n, err := clusterOf(h.Address)
	if err != nil {
		return nil, err
	}
	at := hostRequest{Cluster: n, Host: h.Name}
	conn, err := s.open(ctx, at)
	if err != nil {
		return nil, err
	}
	client, err := wire.NewClient(ctx, h.Name, conn, nil, o.Blobs)
	if err != nil {
		return nil, err
	}
	return socketHost{client, s, at}, nil
}

// A socketHost is a host that other connections are dialled from.
type socketHost struct {
	*wire.Client
	socket hostSocket
	at     hostRequest
}

func (h socketHost) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	at := h.at
	at.Address = address
	return h.socket.open(ctx, at)
}
