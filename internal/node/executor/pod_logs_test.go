//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/pods"
	"slipway.dev/slipway/internal/node/op"
)

func (h *testHost) link(to, at string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(at)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(to, h.path(at)); err != nil {
		h.t.Fatal(err)
	}
}

// TestPodLogs_ReadsOnlyLogsOfSystemPods checks that logs of system pods are listed and
// read, also with Docker, and that other files are not, such as links that a pod has
// created in /var/log.
func TestPodLogs_ReadsOnlyLogsOfSystemPods(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := strings.Repeat("0a", 32)
	h.write("var/log/pods/kube-system_a_1/c/0.log", "first\nlast\n")
	h.write("var/log/pods/default_a_1/c/0.log", "another's\n")
	h.write("var/lib/docker/containers/"+id+"/"+id+"-json.log", "of docker\n")
	h.link("/var/lib/docker/containers/"+id+"/"+id+"-json.log", "var/log/pods/kube-system_d_1/c/12.log")
	secret := "/etc/kubernetes/pki/ca.key"
	h.write(secret, "secret\n")
	planted := map[string]string{ // what each is a link to
		"kube-x/a/0.log": secret,
		"kube-x/b/0.log": "/var/lib/docker/containers/../../../../" + secret,
		"kube-x/d/0.log": "/var/lib/docker/containers/" + id + "/" + strings.Repeat("0b", 32) + "-json.log",
		"kube-x/e":       "/etc/kubernetes/pki",
		"kube-y":         "kube-system_a_1",
	}
	for at, to := range planted {
		h.link(to, "var/log/pods/"+at)
	}
	evil := strings.Repeat("0c", 32)
	h.link(secret, "var/lib/docker/containers/"+evil+"/"+evil+"-json.log")
	h.link("/var/lib/docker/containers/"+evil+"/"+evil+"-json.log", "var/log/pods/kube-x/f/0.log")
	if err := os.Mkdir(h.path("var/log/pods/kube-x/g"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(h.path("var/log/pods/kube-x/g/0.log"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(h.path("var/log/pods/kube-system_a_1/c/0.log"), old, old); err != nil {
		t.Fatal(err)
	}
	r := h.check(op.PodLogs{Most: 10})[0]
	var names []string
	if err := json.Unmarshal(r.Output, &names); err != nil || r.Status != op.Unchanged {
		t.Fatalf("%+v, %v", r, err)
	}
	if d := cmp.Diff([]string{"kube-system_d_1/c/12.log", "kube-system_a_1/c/0.log"}, names); d != "" {
		t.Errorf("logs (-want +got):\n%s", d)
	}
	if r := h.check(op.PodLogs{Most: 1})[0]; string(r.Output) != `["kube-system_d_1/c/12.log"]` {
		t.Errorf("the newest: %s", r.Output)
	}
	for name, want := range map[string]string{"kube-system_a_1/c/0.log": "last\n", "kube-system_d_1/c/12.log": "cker\n"} {
		if r := h.check(op.PodLog{Name: name, Bytes: 5})[0]; string(r.Output) != want || r.Error != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, name := range []string{
		"kube-x/a/0.log", "kube-x/b/0.log", "kube-x/d/0.log", "kube-x/e/0.log", "kube-x/f/0.log", "kube-x/g/0.log", "kube-y/c/0.log",
		"../../etc/shadow", "kube-x/../0.log", "default_a_1/c/0.log", "/etc/shadow", "kube-none/c/0.log", "",
	} {
		if r := h.check(op.PodLog{Name: name, Bytes: 100})[0]; r.Error == nil || len(r.Output) > 0 {
			t.Errorf("%s was read: %+v", name, r)
		}
	}
}

// TestPodLogs_IsEmptyOnHostWithoutPods checks that a host that never ran a pod has no
// logs.
func TestPodLogs_IsEmptyOnHostWithoutPods(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("var/log/syslog", "")
	if r := h.check(op.PodLogs{Most: 10})[0]; string(r.Output) != "[]" || r.Error != nil {
		t.Errorf("%+v", r)
	}
}

// TestPodLogs_LimitsNumberOfListedFiles checks that the limit applies to all directories
// together, because pods can create many files, and that the list ends with its context.
func TestPodLogs_LimitsNumberOfListedFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	logs := 0
	for pod := range 3 {
		dir := h.path(fmt.Sprintf("var/log/pods/kube-x_%d/c", pod))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for n := range pods.MostEntriesIn {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.log", n)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			logs++
		}
	}
	s, err := h.r.session(host.Batch{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := pods.PodLogNames(t.Context(), s.Host, op.PodLogs{Most: logs})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := json.Unmarshal(v.Output, &names); err != nil {
		t.Fatal(err)
	}
	const above = 3 + 3 // the directories of pods and of containers count too
	if len(names) != pods.MostEntries-above {
		t.Errorf("%d of %d logs are listed, want %d", len(names), logs, pods.MostEntries-above)
	}
	given := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(given)
	if v, err := pods.PodLogNames(ctx, s.Host, op.PodLogs{Most: 1}); !errors.Is(err, given) {
		t.Errorf("%s, %v, want %v", v.Output, err, given)
	}
}
