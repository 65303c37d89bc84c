//go:build linux

package executor

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

const limitsFile = "/etc/security/limits.d/90-slipway.conf"

// limitsHost returns a host with pam_limits, on which a process opens at most 4096 files.
func limitsHost(t *testing.T) *testHost {
	t.Helper()
	h := newHost(t)
	h.write("etc/security/limits.conf", "# none\n")
	h.write("proc/sys/fs/nr_open", "4096\n")
	return h
}

func TestLimits_AreWrittenAndRestored(t *testing.T) {
	t.Parallel()
	h := limitsHost(t)
	step := op.RevertStep{Step: "step"}
	before := h.outside()
	limits := op.Limits{File: limitsFile, Limits: []op.Limit{
		{Item: "nofile", Soft: "1024", Hard: "4096"}, {Item: "core", Soft: "0", Hard: "0"},
	}}
	h.apply(limits, step)
	want := "* soft nofile 1024\n* hard nofile 4096\nroot soft nofile 1024\nroot hard nofile 4096\n" +
		"* soft core 0\n* hard core 0\nroot soft core 0\nroot hard core 0\n"
	if d := cmp.Diff(want, h.read(limitsFile)); d != "" {
		t.Errorf("the limits apply to all users, and root is not in the wildcard (-want +got):\n%s", d)
	}
	if r := h.check(limits)[0]; r.Status != op.Unchanged {
		t.Errorf("after that: %s (%s)", r.Status, r.Summary)
	}
	limits.Limits = limits.Limits[:1]
	h.apply(limits, step)
	if strings.Contains(h.read(limitsFile), "core") {
		t.Error("the file still has a removed limit")
	}
	h.apply(step)
	if d := cmp.Diff(before, h.outside()); d != "" {
		t.Errorf("a removed setting must leave nothing (-want +got):\n%s", d)
	}
}

func TestLimits_RefuseWhatThisHostCannotHave(t *testing.T) {
	limits := func(hard string, most uint64) op.Limits {
		return op.Limits{File: limitsFile, OpenFilesMax: most, Limits: []op.Limit{{Item: "nofile", Soft: "1024", Hard: hard}}}
	}
	for _, tc := range []struct {
		name, reason string
		limits       op.Limits
		why          string
	}{
		{"the highest", "the kernel allows it", limits("4096", 0), ""},
		{"too many open files", "no session could begin", limits("4097", 0), "LimitTooHigh"},
		{"no limit", "the kernel has one", limits("unlimited", 0), "LimitTooHigh"},
		{"raised before", "an earlier operation sets fs.nr_open", limits("8192", 8192), ""},
		{"lowered before", "an earlier operation sets fs.nr_open", limits("4096", 2048), "LimitTooHigh"},
		{"two lines", "a value must not add another limit", limits("1\n* hard nproc 0", 0), "Invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			why := ""
			if r := limitsHost(t).check(tc.limits)[0]; r.Error != nil {
				why = r.Error.Reason
			}
			if why != tc.why {
				t.Errorf("%s: reason %q, want %q", tc.reason, why, tc.why)
			}
		})
	}
	h := limitsHost(t)
	h.write("proc/self/status", "CapEff:\t0000000000000000\n")
	h.write("proc/self/limits", "Max core file size        0                    unlimited            bytes     \n"+
		"Max open files            1024                 2048                 files     \n")
	for hard, fails := range map[string]bool{"2048": false, "2049": true} {
		if r := h.check(limits(hard, 0))[0]; (r.Error != nil) != fails {
			t.Errorf("a container that cannot raise its limit of 2048 to %s: %+v", hard, r)
		}
	}
	core := op.Limits{File: limitsFile, Limits: []op.Limit{{Item: "core", Soft: "0", Hard: "unlimited"}, {Item: "rss", Soft: "1", Hard: "1"}}}
	if r := h.check(core)[0]; r.Error != nil {
		t.Errorf("limits that the session already has: %+v", r)
	}
	if r := newHost(t).check(limits("1024", 0))[0]; r.Error == nil || r.Error.Reason != "NoPAM" {
		t.Errorf("without pam_limits: %+v, want an error", r)
	}
	h = limitsHost(t)
	r := h.r.Apply(context.Background(), h.batch(limits("8192", 8192)), nil)[0]
	if r.Error == nil || r.Error.Reason != "LimitTooHigh" {
		t.Errorf("fs.nr_open was not raised as planned: %+v, want an error before the file is written", r)
	}
}
