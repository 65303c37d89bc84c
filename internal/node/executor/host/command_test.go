//go:build linux

package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

func TestLastErrorLine_ReturnsCauseOfFailure(t *testing.T) {
	const advice = "To see the stack trace of this error execute with --v=5 or higher\n"
	for _, c := range []struct{ name, reason, in, want string }{
		{"nothing", "it said nothing", "", ""},
		{"last", "programs end with what matters", "starting\nno space left\n\n", "no space left"},
		{"advice", "kubeadm ends with advice", "error: timed out\n" + advice, "error: timed out"},
		{
			"preflight", "the lines that are marked are the cause",
			"[WARNING Swap]: swap is on\n[preflight] Some fatal errors occurred:\n\t[ERROR Port-10250]: Port 10250 is in use\n" +
				"\t[ERROR CRI]: no runtime\nerror: preflight checks failed\n" + advice,
			"Port-10250: Port 10250 is in use; CRI: no runtime",
		},
		{"long", "both ends tell", strings.Repeat("é", 200) + "ends", strings.Repeat("é", 75) + " … " + strings.Repeat("é", 73) + "ends"},
	} {
		if got := lastErrorLine(c.in); got != c.want {
			t.Errorf("%s: %q, want %q: %s", c.name, got, c.want, c.reason)
		}
	}
}

func TestDescribeFailure_DetectsFullDisk(t *testing.T) {
	e := &op.Error{
		Reason: "CommandFailed", Message: "ctr exited with 1",
		Detail: "ctr: failed to extract layer: write /var/lib/x: no space left on device",
	}
	DescribeFailure(e)
	want := &op.Error{Reason: "DiskFull", Message: "ctr exited with 1: " + e.Detail, Detail: e.Detail}
	if d := cmp.Diff(want, e); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
