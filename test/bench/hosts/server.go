//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	serverAddress = "127.0.0.1:7443"
	// serverTime limits the start and the stop of a server.
	serverTime = 3 * time.Minute
	// maxAnswer limits an answer of the server, in bytes.
	maxAnswer = 256 << 20
	// recordsNamespace has the records of one run, and no others.
	recordsNamespace = "bench"
)

// A server is the management server in a separate process. It keeps the records of one manager.
type server struct {
	cmd        *exec.Cmd
	dir        string
	kubeconfig string
	client     *http.Client
}

// withServer starts a server with an empty database, calls fn, and stops the server.
func (l *lab) withServer(ctx context.Context, fn func(*server) error) (err error) {
	s := &server{}
	if s.dir, err = os.MkdirTemp(l.Home, "server-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	data := filepath.Join(s.dir, "data")
	s.kubeconfig = filepath.Join(data, "pki", "admin.kubeconfig")
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.CommandContext(ctx, l.Server, "server", "--data-dir="+data, "--listen="+serverAddress)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = log, log, serverTime
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	defer func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it has ended already if this fails
		if end := s.cmd.Wait(); end != nil && ctx.Err() == nil {
			text, _ := os.ReadFile(log.Name()) // only for the message
			err = errors.Join(err, fmt.Errorf("the server: %w\n%s", end, lastOutput(string(text))))
		}
	}()
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	body := `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "` + recordsNamespace + `"}}`
	if _, err := s.request(ctx, http.MethodPost, "/api/v1/namespaces", body); err != nil {
		return err
	}
	return fn(s)
}

// waitReady waits until the server answers.
func (s *server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.connect()
		if err == nil {
			_, err = s.request(ctx, http.MethodGet, "/readyz", "")
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the server: %w", err)
		case <-tick.C:
		}
	}
}

func (s *server) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err == nil {
		s.client, err = rest.HTTPClientFor(config)
	}
	return err
}

// request sends a request as the administrator, and returns the body of the answer.
func (s *server) request(ctx context.Context, method, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+serverAddress+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && answer.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return text, err
}

// A reading has the resources that the server has used since its start.
type reading struct {
	// Writes are requests to etcd that write, by resource, from the server's metrics.
	Writes map[string]int64
	// Revision is the revision of etcd's data: each write that changes something adds one.
	Revision int64
	CPU      time.Duration
}

// read returns the current values.
func (s *server) read(ctx context.Context) (r reading, err error) {
	metrics, err := s.request(ctx, http.MethodGet, "/metrics", "")
	if err != nil {
		return r, err
	}
	if r.Writes, err = parseWrites(metrics); err != nil {
		return r, err
	}
	list, err := s.request(ctx, http.MethodGet, "/api/v1/namespaces?limit=1", "")
	if err != nil {
		return r, err
	}
	var parsed struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(list, &parsed); err != nil {
		return r, err
	}
	if r.Revision, err = strconv.ParseInt(parsed.Metadata.ResourceVersion, 10, 64); err != nil {
		return r, fmt.Errorf("reading the revision of etcd: %w", err)
	}
	r.CPU, err = cpuTime(s.cmd.Process.Pid)
	return r, err
}

// etcdRequests is a line of the metrics of an API server.
var etcdRequests = regexp.MustCompile(
	`(?m)^etcd_request_duration_seconds_count\{group="([^"]*)",operation="([^"]*)",resource="([^"]*)"\} (\S+)$`)

// parseWrites returns the requests to etcd that write, by resource.
func parseWrites(metrics []byte) (map[string]int64, error) {
	out := map[string]int64{}
	found := etcdRequests.FindAllSubmatch(metrics, -1)
	if found == nil {
		return nil, errors.New("the metrics of the server have no requests to etcd")
	}
	for _, m := range found {
		switch operation := string(m[2]); operation {
		case "create", "update", "delete":
			n, err := strconv.ParseFloat(string(m[4]), 64)
			if err != nil {
				return nil, fmt.Errorf("reading the metrics of the server: %w", err)
			}
			out[string(m[3])] += int64(n)
		}
	}
	return out, nil
}

// clockTicks is how many times a second the kernel counts in /proc.
const clockTicks = 100

// cpuTime returns the user and system time of a process.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(text, []byte(") ")) // the name of the program can have spaces
	fields := strings.Fields(string(rest))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}

// forgetPeak sets the peak memory of the server to its current memory.
func (s *server) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0)
}

// peak returns the most memory that the server has had, in bytes.
func (s *server) peak() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("the kernel does not tell the memory of the server")
}
