//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A writer writes, reads and watches objects through a worker's endpoint until
// it is stopped; see client.
type writer struct {
	b      *balanced
	worker string
	label  string
	// failures is how many of its requests failed, once it is stopped.
	failures int
}

// Where a writer has its files on its worker.
const (
	clientBinary = "/root/client"
	clientConfig = "/root/by-name.conf"
	clientSeen   = "/root/client.json"
)

func (b *balanced) startWriter(t *testing.T, label string) *writer {
	t.Helper()
	return b.writingBy(t, label, b.mustExec(t, b.controlPlanes[0], "cat", "/etc/kubernetes/admin.conf"))
}

// writingBy writes by a kubeconfig, which may name files of the worker.
func (b *balanced) writingBy(t *testing.T, label, content string) *writer {
	t.Helper()
	w := &writer{b: b, worker: b.workers[0], label: label}
	kubeconfig := filepath.Join(b.home, "by-name.conf")
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	b.copyTo(t, w.worker, kubeconfig, clientConfig)
	b.copyTo(t, w.worker, b.buildClient(t), clientBinary)
	b.mustExec(t, w.worker, "rm", "-f", clientSeen)
	// When it is stopped it waits for its watch, which may be a while behind an API
	// that was away.
	b.mustExec(t, w.worker, "systemd-run", "--unit="+w.unitName(), "--property=TimeoutStopSec=90", clientBinary,
		clientConfig, label, clientSeen)
	// Delays before the first write do not count as a gap between two writes.
	eventually(t, 30*time.Second, "the writer has written", func() error {
		if r := b.runSlipway(t, "sandbox", "exec", w.worker, "--", "test", "-s", clientSeen); r.code != 0 {
			return errors.New(textTail(b.runSlipway(t, "sandbox", "exec", w.worker, "--", "journalctl", "--unit="+w.unitName(), "--lines=5").stdout))
		}
		return nil
	})
	return w
}

func (w *writer) unitName() string { return "writer-" + w.label }

// buildClient is the program, which is compiled once for a user.
func (u *user) buildClient(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(u.home, "client")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./client")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// stopWriter ends the writer. It requires that every acknowledged object exists, was found
// when it was read, and was reported by the watch. It returns the number of acknowledged
// writes, and the longest time without one.
func (w *writer) stopWriter(t *testing.T) (acknowledged int, gap time.Duration) {
	t.Helper()
	w.b.mustExec(t, w.worker, "systemctl", "stop", w.unitName())
	var seen struct {
		Written, Unread, Unwatched []string
		Read                       int
		Writing, Reading, Watching float64
		Failures                   int
		Failed                     []string
	}
	report := w.b.mustExec(t, w.worker, "cat", clientSeen)
	if err := json.Unmarshal([]byte(report), &seen); err != nil {
		t.Fatalf("the writer says %q: %v", report, err)
	}
	w.failures = seen.Failures
	there := map[string]bool{}
	for name := range strings.FieldsSeq(w.b.mustKubectl(t, w.b.name, "get", "configmaps", "-o", "name")) {
		there[strings.TrimPrefix(name, "configmap/")] = true
	}
	for _, name := range seen.Written {
		if !there[name] {
			t.Errorf("%s was acknowledged and is lost", name)
		}
	}
	for _, name := range seen.Unread {
		t.Errorf("%s was acknowledged, and not there when it was read", name)
	}
	for _, name := range seen.Unwatched {
		t.Errorf("%s was acknowledged, and the watch never told of it", name)
	}
	if len(seen.Written) == 0 || seen.Read == 0 {
		t.Errorf("%d were written and %d read: %s", len(seen.Written), seen.Read, seen.Failed)
	}
	t.Logf("%s: %d read back, %.1f s without; a watch that told of all, %.1f s without; %d requests failed; the last:\n%s",
		w.label, seen.Read, seen.Reading, seen.Watching, seen.Failures, strings.Join(seen.Failed, "\n"))
	return len(seen.Written), time.Duration(seen.Writing * float64(time.Second))
}
