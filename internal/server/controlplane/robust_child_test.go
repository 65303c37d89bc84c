package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/server/certificates"
	"slipway.dev/slipway/internal/server/controlplane"
)

// optionsVariable has the serverOptions of a server that the binary runs instead of its tests.
const optionsVariable = "SLIPWAYD_TEST_OPTIONS"

// brokenTime is after how long a server that does not start or stop is broken.
const brokenTime = 3 * time.Minute

// serverOptions are the options of a server in another process.
type serverOptions struct {
	Quota      int64
	Compaction time.Duration
	Defragment time.Duration
	Serving    time.Duration // lifetime of the serving certificate
	Etcd       controlplane.ExternalEtcd
}

// changeFromEnvironment changes the configuration of a server to the options of the test that
// runs it. The server ends with that test.
func changeFromEnvironment(c *controlplane.Config) {
	text := os.Getenv(optionsVariable)
	if text == "" {
		return
	}
	c.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	var o serverOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		c.Log.Error("the options of the test cannot be read", "error", err)
	}
	c.EtcdQuota, c.CompactionInterval, c.DefragmentInterval, c.Etcd = o.Quota, o.Compaction, o.Defragment, o.Etcd
	if o.Serving > 0 {
		made, err := certificates.Open(certificates.Options{
			Dir: c.Dir.Path("pki"), Server: "https://" + c.Listener.Addr().String(), Log: c.Log,
			Lifetimes: certificates.Lifetimes{Serving: o.Serving},
		})
		if err != nil {
			c.Log.Error("the certificates of the test cannot be opened", "error", err)
		} else {
			c.Certificates = made
		}
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the test ends
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
}

// A child is a server in another process.
type child struct {
	data, address string
	took          time.Duration // until it was ready
	cpu           time.Duration // the same, of the processors

	command *exec.Cmd
	stdin   io.Closer
	log     *lockedBuffer
	ended   chan struct{}
	end     error
}

// A lockedBuffer collects the log of a process.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// spawnChild starts a server in another process, and does not wait for it. listen can be "".
func spawnChild(t *testing.T, data, listen string, o serverOptions) (*child, <-chan string) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{data: data, log: &lockedBuffer{}, ended: make(chan struct{})}
	c.command = exec.Command(os.Args[0])
	c.command.Env = append(os.Environ(), serverVariable+"="+data, listenVariable+"="+listen, optionsVariable+"="+string(text))
	c.command.Stderr = c.log
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.stdin, err = c.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() { // ends with the process
		defer close(c.ended)
		lines := bufio.NewScanner(stdout)
		if lines.Scan() {
			ready <- lines.Text()
		}
		_, _ = io.Copy(io.Discard, stdout)
		c.end = c.command.Wait()
	}()
	t.Cleanup(c.kill)
	return c, ready
}

// startChild starts a server in another process and waits until it is ready. It tries again while
// another program uses the port.
func startChild(t *testing.T, data, listen string, o serverOptions) *child {
	t.Helper()
	for range attempts {
		if c := startChildOnce(t, data, listen, o); c != nil {
			return c
		}
		pause(t.Context(), attemptPause)
	}
	t.Fatalf("another program uses %s", listen)
	return nil
}

// startChildOnce starts a server in another process and waits until it is ready. It returns nil if
// another program uses the port.
func startChildOnce(t *testing.T, data, listen string, o serverOptions) *child {
	t.Helper()
	begun := time.Now()
	c, ready := spawnChild(t, data, listen, o)
	limit := time.NewTimer(brokenTime)
	defer limit.Stop()
	select {
	case c.address = <-ready:
	case <-c.ended:
		if c.command.ProcessState.ExitCode() == portInUseCode {
			t.Logf("port in use: %s", c.log)
			return nil
		}
		t.Fatalf("the server has ended: %v\n%s", c.end, c.log)
	case <-limit.C:
		t.Fatalf("the server is not ready after %s\n%s", brokenTime, c.log)
	}
	c.took, c.cpu = time.Since(begun), processorTime(c.command.Process.Pid)
	return c
}

// processorTime returns the time of the processors that a process has used.
func processorTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] { // utime and stime
		n, _ := strconv.Atoi(field)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// kill kills the process and waits for its end.
func (c *child) kill() {
	_ = c.command.Process.Kill() // it may have ended
	<-c.ended
}

// stop stops the server in an orderly way.
func (c *child) stop(t *testing.T) {
	t.Helper()
	if err := c.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("the server has ended before: %v\n%s", err, c.log)
	}
	limit := time.NewTimer(brokenTime)
	defer limit.Stop()
	select {
	case <-c.ended:
		if c.end != nil {
			t.Errorf("stopping the server: %v\n%s", c.end, c.log)
		}
	case <-limit.C:
		t.Fatalf("the server has not stopped after %s\n%s", brokenTime, c.log)
	}
}

// mustRun fails the test if the server has ended.
func (c *child) mustRun(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
		t.Fatalf("the server has ended: %v\n%s", c.end, c.log)
	default:
	}
}

// config returns the configuration of the administrator's client.
func (c *child) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.data, "pki", "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // not throttled
	config.Timeout = time.Minute
	return config
}

// client returns a client of the administrator.
func (c *child) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// firstPort is the first of portCount ports that the kernel gives to no program: by default, the
// range net.ipv4.ip_local_port_range begins above them.
const firstPort, portCount = 20000, 10000

// freeAddress returns an address on which no program listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l := listenFree(t)
	defer l.Close()
	return l.Addr().String()
}

// listenFree listens on a port that the kernel gives to no other program afterwards.
func listenFree(t *testing.T) net.Listener {
	t.Helper()
	var problem error
	for range attempts {
		l, err := controlplane.Listen(t.Context(), fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(portCount)))
		if err == nil {
			return l
		}
		problem = err
	}
	t.Fatal(problem)
	return nil
}

// eventually calls f until it returns no error.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), brokenTime)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		if !pause(ctx, 200*time.Millisecond) {
			t.Fatalf("%s: %v", what, errors.Join(ctx.Err(), err))
		}
	}
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// namespaceOf returns a namespace.
func namespaceOf(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
