//go:build linux

package executor

import (
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/op"
)

// reader is a program that reads a file each time it is touched: it counts that up to a
// number, and how often it has failed if it always does, and its metrics tell.
const reader = `
now=$(stat -c %z "$1"); n=$(cat "$2" 2>/dev/null || echo 3)
if [ "$now" != "$(cat "$2.seen" 2>/dev/null)" ] && [ "$n" -lt "$3" ]; then n=$((n+1)); fi
echo "$now" > "$2.seen"; echo "$n" > "$2"
echo 'workqueue_work_duration_seconds_count{name="other"} 900'
echo 'workqueue_work_duration_seconds_count{name="q"}' "$n"
if [ "$4" = fails ]; then echo 'workqueue_retries_total{name="q"}' $((n-3)); fi
`

func (h *testHost) reload(most, failed string) op.TriggerReload {
	h.write("etc/client.crt", "new")
	h.write("etc/kubernetes/manifests/s.yaml",
		"spec:\n  containers:\n  - command:\n    - kube-scheduler\n    - --kubeconfig=/etc/kubernetes/scheduler.conf\n    image: x\n")
	return op.TriggerReload{
		Manifest: "/etc/kubernetes/manifests/s.yaml", File: "/etc/client.crt", Queue: "q", TimeoutSeconds: 60,
		Metrics: []string{"sh", "-c", reader, "sh", h.path("etc/client.crt"), h.path("count"), most, failed},
	}
}

// TestTriggerReload_WaitsForTwoReads checks that the program must read the file twice,
// because the first read may have begun before the change.
func TestTriggerReload_WaitsForTwoReads(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		most, failed string
		queue        string
		fails        string // "" does not
	}{
		{"read", "each touch is a reading", "90", "", "q", ""},
		{"read once", "that may have begun before", "5", "", "q", "it was read 1 times since then"},
		{"never read", "the program does not watch the file", "3", "", "q", "it was read 0 times since then"},
		{"read in vain", "what failed is no reading", "90", "fails", "q", "it was read 0 times since then"},
		{"not told", "it is not known", "90", "", "none", "its metrics have no queue none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			o := h.reload(tc.most, tc.failed)
			if o.Queue = tc.queue; tc.fails != "" {
				o.TimeoutSeconds = 5
			}
			h.pod(77, started(1), "pid:[1]")
			r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
			if tc.fails == "" && (r.Status != op.Changed || r.Error != nil) {
				t.Errorf("%+v: %s", r, tc.reason)
			}
			if tc.fails != "" && (r.Error == nil || !strings.HasSuffix(r.Error.Message, tc.fails)) {
				t.Errorf("%+v, want %q: %s", r, tc.fails, tc.reason)
			}
			if h.read("etc/client.crt") != "new" {
				t.Error("the file is another")
			}
		})
	}
}

// TestTriggerReload_SkipsStoppedOrNewerProgram checks that there is no wait for a program
// that was started after the file was created, or that is not running.
func TestTriggerReload_SkipsStoppedOrNewerProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.reload("3", "")
	h.pod(77, started(1), "pid:[1]")
	h.remove("proc/77/cmdline")
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("not running: %+v", r)
	}
	h.pod(77, started(1<<33), "pid:[1]")
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("started since: %+v", r)
	}
	h.pod(77, started(1), "pid:[1]")
	if r := h.check(o)[0]; r.Summary != "wait until the component has loaded the new certificate" {
		t.Errorf("started before: %+v", r)
	}
}
