//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// readyWithin is the time after which a server that is not ready is broken.
const readyWithin = 2 * time.Minute

// A daemon is a running `slipwayd server`.
type daemon struct {
	data, address string
	cmd           *exec.Cmd
	log           string // path
	ended         chan struct{}
	// ready is the time from the start of the process until /readyz is 200, started until the
	// server logs that its start is complete.
	ready, started time.Duration
	reports        *net.UnixConn
	client         *http.Client // of the administrator
}

// daemonPath returns the path of bin/slipwayd.
func daemonPath(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/slipwayd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run `make server` first: %v", err)
	}
	return path
}

// freeAddress returns an address of this host that no program uses at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startServer starts a server on a data directory and waits until it can be used. It is
// killed at the end of the test if it still runs.
func startServer(t *testing.T, data, address string, args ...string) *daemon {
	t.Helper()
	d := &daemon{data: data, address: address, log: filepath.Join(t.TempDir(), "slipwayd.log"), ended: make(chan struct{})}
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(daemonPath(t), append([]string{"server", "--data-dir=" + data, "--listen=" + address}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.reports = listenNotify(t)
	d.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+d.reports.LocalAddr().String())
	start := time.Now()
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait() // the state has the result
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // it may have ended
		<-d.ended
		if t.Failed() {
			text, _ := os.ReadFile(d.log)
			t.Logf("log of slipwayd on %s:\n%s", d.data, textTail(string(text)))
		}
	})
	anyone := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	d.poll(t, "ready", func() bool { return answersOK(anyone, "https://"+address+"/readyz") })
	d.ready = time.Since(start)
	d.poll(t, "started", d.isStarted)
	d.started = time.Since(start)
	d.client = d.newClient(t)
	return d
}

// listenNotify returns the socket to which a service reports its state, as systemd has it.
func listenNotify(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(t.TempDir(), "notify")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// isReported reports whether the server has reported to systemd that its start is complete.
func (d *daemon) isReported() bool {
	report := make([]byte, 4096)
	if err := d.reports.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return false
	}
	n, err := d.reports.Read(report)
	return err == nil && strings.TrimSpace(string(report[:n])) == "READY=1"
}

// isStarted reports whether the server has logged that its start is complete.
func (d *daemon) isStarted() bool {
	text, err := os.ReadFile(d.log)
	return err == nil && bytes.Contains(text, []byte(`msg="the server is ready"`))
}

// poll waits until f returns true. A server that has ended never will.
func (d *daemon) poll(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.After(readyWithin)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-d.ended:
			t.Fatalf("slipwayd ended with %d before it was %s", d.cmd.ProcessState.ExitCode(), what)
		case <-deadline:
			t.Fatalf("slipwayd was not %s within %s", what, readyWithin)
		case <-tick.C:
		}
	}
}

// answersOK reports whether a GET request gets the status 200.
func answersOK(c *http.Client, url string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

// newClient returns a client with the certificate of the administrator.
func (d *daemon) newClient(t *testing.T) *http.Client {
	t.Helper()
	pki := func(name string) string { return filepath.Join(d.data, "pki", name) }
	pair, err := tls.LoadX509KeyPair(pki("admin.crt"), pki("admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(pki("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// request sends a request as the administrator. The status is 0 if there is no response.
func (d *daemon) request(ctx context.Context, method, path string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	if body == nil {
		text = nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+d.address+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	return resp.StatusCode, out, err
}

// mustRequest sends a request that must succeed. As clients of Kubernetes do, it repeats a
// request to which the server responds that it is still filling its caches.
func (d *daemon) mustRequest(t *testing.T, method, path string, body any) []byte {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		status, out, err := d.request(t.Context(), method, path, body)
		switch {
		case status == http.StatusTooManyRequests && time.Now().Before(deadline):
			<-time.After(200 * time.Millisecond)
		case err != nil || status >= 300:
			t.Fatalf("%s %s: %d %v\n%s", method, path, status, err, textTail(string(out)))
		default:
			return out
		}
	}
}

// stop ends the server with SIGTERM.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("slipwayd does not end after SIGTERM")
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("slipwayd ended with %d after SIGTERM", code)
	}
}

// kill ends the server at once.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.ended
}

// usedCPU returns the CPU time of a server that has ended.
func (d *daemon) usedCPU() time.Duration {
	return d.cmd.ProcessState.UserTime() + d.cmd.ProcessState.SystemTime()
}

// residentMiB returns the resident memory of the server: all of it, and the part that is not
// backed by files.
func (d *daemon) residentMiB(t *testing.T) (all, anonymous int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) int {
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name+":" {
				kib, err := strconv.Atoi(fields[1])
				if err != nil {
					t.Fatal(err)
				}
				return kib >> 10
			}
		}
		t.Fatalf("%s is missing in\n%s", name, text)
		return 0
	}
	return read("VmRSS"), read("RssAnon")
}

const (
	clustersPath = "/apis/slipway.dev/v1alpha1/namespaces/default/clusters"
	mapsPath     = "/api/v1/namespaces/default/configmaps"
)

// smallCluster returns a cluster with one host, which no other cluster has, and without the Secret that it needs.
func smallCluster(name string) map[string]any {
	return map[string]any{
		"apiVersion": "slipway.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"ssh":       map[string]any{"privateKeyFile": "id"},
			"filesFrom": []any{map[string]any{"secretRef": map[string]any{"name": "absent"}}},
			"hosts": []any{
				map[string]any{"name": "cp1", "address": name + ".invalid", "roles": []string{"control-plane"}},
			},
		},
	}
}

// configMap returns a ConfigMap with one entry.
func configMap(name string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]string{"is": name},
	}
}

// createClusters creates the clusters with the numbers from, from+1, … below to.
func (d *daemon) createClusters(t *testing.T, from, to int) {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for range cap(errs) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(to); i = next.Add(1) - 1 {
				status, out, err := d.request(t.Context(), http.MethodPost, clustersPath, smallCluster(fmt.Sprintf("small-%05d", i)))
				if err == nil && status != http.StatusCreated {
					err = fmt.Errorf("%d: %s", status, textTail(string(out)))
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	if err, failed := <-errs; failed {
		t.Fatalf("creating clusters: %v", err)
	}
}

// runProgram runs a program to its end, whatever its exit code is.
func runProgram(t *testing.T, env []string, argv ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s hangs\n%s", strings.Join(argv, " "), stderr.String())
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), time.Since(start), maxRSS(cmd.ProcessState)}
}

// mustSucceed runs a program that must succeed, and returns its standard output.
func mustSucceed(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	r := runProgram(t, env, argv...)
	if r.code != 0 {
		t.Fatalf("%s ends with %d\nstdout: %s\nstderr: %s", strings.Join(argv, " "), r.code, textTail(r.stdout), textTail(r.stderr))
	}
	return r.stdout
}

// requireRefusal fails the test unless a command was refused with a message id.
func requireRefusal(t *testing.T, r result, id string) {
	t.Helper()
	if r.code != 2 || !strings.Contains(r.stderr, "["+id+"]") {
		t.Errorf("it ends with %d and does not report %s: %s", r.code, id, textTail(r.stderr))
	}
}

// A kubectl runs kubectl against a server.
type kubectl struct {
	path string
	env  []string
}

// buildKubectl builds kubectl for the tests of the server.
func buildKubectl(t *testing.T, d *daemon) kubectl {
	t.Helper()
	return newKubectl(t, filepath.Join(d.data, "pki", "admin.kubeconfig"))
}

// newKubectl builds kubectl for a kubeconfig.
func newKubectl(t *testing.T, kubeconfig string) kubectl {
	t.Helper()
	dir := t.TempDir()
	k := kubectl{filepath.Join(dir, "kubectl"), []string{"KUBECONFIG=" + kubeconfig, "HOME=" + dir}}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", k.path, "./hack/kubectl")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building kubectl: %v\n%s", err, textTail(string(out)))
	}
	return k
}

func (k kubectl) run(t *testing.T, args ...string) result {
	t.Helper()
	return runProgram(t, k.env, append([]string{k.path}, args...)...)
}

func (k kubectl) must(t *testing.T, args ...string) string {
	t.Helper()
	return mustSucceed(t, k.env, append([]string{k.path}, args...)...)
}
