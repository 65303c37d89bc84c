//go:build linux

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// scratchStart limits the start of a temporary etcd; it reads a large database
	// completely first.
	scratchStart = 3 * time.Minute
	// ScratchMemory is the memory for it in addition to its database, in bytes.
	ScratchMemory = 512 << 20
	// nowhere is its advertised address, which nothing can reach.
	nowhere = "http://127.0.0.1:1"
)

// A Scratch is a temporary etcd: it listens only on sockets in its directory, which only
// root can access, and on no address.
type Scratch struct {
	s *host.Host
	op.EtcdPrograms
	Dir string
}

// NewScratch returns a temporary etcd in a directory. It does not start it.
func NewScratch(h *host.Host, p op.EtcdPrograms, dir string) Scratch { return Scratch{h, p, dir} }

func (c Scratch) dataDir() string { return filepath.Join(c.Dir, "data") }

func (c Scratch) socketURL() string { return "unix://" + filepath.Join(c.Dir, "client.sock") }

// ScopeName returns the name of its scope, derived from the directory, so that a cleanup
// after an interruption finds it.
func (c Scratch) ScopeName() string {
	return systemctl.UnitPrefix + "scratch-" + filepath.Base(c.Dir) + ".scope"
}

// RemoveScope removes its scope. Not every systemd detects the end of the last process in
// a scope: with cgroup v1 in a container it does not.
func (c Scratch) RemoveScope(ctx context.Context) error {
	is, err := systemctl.ShowUnit(ctx, c.s, c.ScopeName())
	if err != nil || !is.IsRunning() {
		return err
	}
	if err = systemctl.RunSystemctl(ctx, c.s, "stop", "--", c.ScopeName()); err == nil {
		return nil
	}
	if is, asked := systemctl.ShowUnit(ctx, c.s, c.ScopeName()); asked == nil && !is.IsRunning() { // it was just ending
		return nil
	}
	return err
}

// MemoryLimit returns the memory limit for an etcd with a database of this size, in
// bytes. The host must have that free.
func (c Scratch) MemoryLimit(size int64) (int64, error) {
	need := ScratchMemory + 2*size
	free, err := freeMemory()
	if err == nil && free < need {
		return 0, &op.Error{
			Reason:  op.ReasonScratchMemory,
			Message: fmt.Sprintf("the host has %d MiB of free memory, but %d MiB are needed", free>>20, need>>20),
		}
	}
	return need, err
}

// freeMemory returns the memory that is free without taking any from other programs.
func freeMemory() (int64, error) {
	raw, err := bounded.ReadFile("/proc/meminfo", bounded.Proc)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the kernel does not report the available memory")
}

// Serve runs the etcd while use runs. It ends with this process, however that ends, and
// has the lowest priority on the host.
func (c Scratch) Serve(ctx context.Context, size int64, use func(context.Context) error, more ...string) error {
	memory, err := c.MemoryLimit(size)
	if err != nil {
		return err
	}
	if err := c.RemoveScope(ctx); err != nil { // of a killed helper
		return err
	}
	argv := append([]string{
		"systemd-run", "--scope", "--unit=" + c.ScopeName(), "--collect", "--quiet", "--no-ask-password", "--description=Slipway: temporary etcd",
		"--property=MemoryMax=" + strconv.FormatInt(memory, 10), "--property=CPUWeight=10", "--property=IOWeight=10", "--",
		c.Server, "--name=scratch", "--data-dir=" + c.dataDir(),
		"--listen-client-urls=" + c.socketURL(), "--advertise-client-urls=" + nowhere,
		"--listen-peer-urls=unix://" + filepath.Join(c.Dir, "peer.sock"), "--initial-advertise-peer-urls=" + nowhere,
		"--initial-cluster=scratch=" + nowhere,
		"--enable-grpc-gateway=false", "--log-level=warn", "--quota-backend-bytes=" + strconv.FormatInt(2*size+WalRoom, 10),
	}, more...)
	running, stop := context.WithCancel(ctx)
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(gone)
		ended <- c.s.Run(running, host.Command{Argv: argv, Env: []string{"GOMEMLIMIT=" + strconv.FormatInt(memory*3/4, 10)}})
	}()
	if err = c.awaitReady(ctx, ended); err == nil {
		err = use(ctx)
	}
	stop()
	<-gone // its end was requested
	return errors.Join(err, c.RemoveScope(context.WithoutCancel(ctx)))
}

// awaitReady waits until the etcd serves. It may exit instead.
func (c Scratch) awaitReady(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, scratchStart)
	defer cancel()
	for {
		_, err := c.readStatus(ctx)
		if err == nil {
			return nil
		}
		select {
		case is := <-ended:
			if is == nil {
				is = errors.New("it stopped")
			}
			return &op.Error{
				Reason: op.ReasonScratchFailed, Message: "etcd cannot serve these data: " + is.Error(),
				Detail: host.FailureOf(is).Detail,
			}
		case <-ctx.Done():
			return &op.Error{Reason: op.ReasonScratchFailed, Message: fmt.Sprintf("etcd did not serve these data within %s: %v", scratchStart, err)}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// queryEtcd queries it with etcdctl.
func (c Scratch) queryEtcd(ctx context.Context, args ...string) (string, error) {
	return c.s.Output(ctx,
		append([]string{c.Program, "--endpoints=" + c.socketURL(), "--dial-timeout=3s", "--command-timeout=60s"}, args...)...)
}

// A scratchState is its status.
type scratchState struct {
	Header struct {
		Revision int64 `json:"revision"`
	} `json:"header"`
	Version string `json:"version"`
	Leader  uint64 `json:"leader"`
}

// readStatus reads its status.
func (c Scratch) readStatus(ctx context.Context) (is scratchState, err error) {
	out, err := c.queryEtcd(ctx, "endpoint", "status", "-w", "json")
	if err != nil {
		return is, err
	}
	var all []struct{ Status scratchState }
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		return is, fmt.Errorf("etcdctl returned %.100q", out)
	}
	if is = all[0].Status; is.Leader == 0 {
		return is, errors.New("it has no leader yet")
	}
	return is, nil
}
