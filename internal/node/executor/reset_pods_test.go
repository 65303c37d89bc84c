//go:build linux

package executor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// TestReset_TerminatesListedProgramsBeforeKill checks that a program that holds a resource of the host first
// receives a signal to end, so that it can release it. If it does not end, it is killed,
// like all others.
func TestReset_TerminatesListedProgramsBeforeKill(t *testing.T) {
	for _, tc := range []struct {
		name, reason, called, script string
		tell                         []string
		givesUp                      bool
	}{
		{
			"told", "it removes its address when it ends", "/usr/sbin/keepalived",
			"trap 'echo > DIR/given-up; exit' TERM",
			[]string{"keepalived"},
			true,
		},
		{"deaf", "it is killed when its time is over", "keepalived", "trap '' TERM", []string{"keepalived"}, false},
		{"an ordinary pod", "the reset does not wait for it", "server", "trap 'echo > DIR/given-up; exit' TERM", []string{"keepalived"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			dir := t.TempDir()
			script := strings.ReplaceAll(tc.script+"; echo > DIR/up; while :; do sleep 0.05; done", "DIR", dir)
			pod := &exec.Cmd{Path: "/bin/sh", Args: []string{tc.called, "-c", script}}
			if err := pod.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- pod.Wait() }()
			defer func() { _ = pod.Process.Kill() }()
			for up := time.Now().Add(10 * time.Second); !host.Exists(filepath.Join(dir, "up")); {
				if time.Now().After(up) {
					t.Fatal("the pod does not start")
				}
				if err := host.Pause(t.Context(), 10*time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
			const group = "sys/fs/cgroup/cpu/kubepods/pod1"
			h.write(group+"/cgroup.procs", strconv.Itoa(pod.Process.Pid)+"\n")
			go func() { // as the kernel does when the cgroup is empty
				<-ended
				_ = os.Remove(h.path(group + "/cgroup.procs"))
			}()
			h.apply(op.Reset{Units: []string{"containerd.service"}, TellFirst: tc.tell, Cgroups: []string{"kubepods"}})
			if got := host.Exists(filepath.Join(dir, "given-up")); got != tc.givesUp {
				t.Errorf("it gave up what it held: %t, want %t: %s", got, tc.givesUp, tc.reason)
			}
		})
	}
}

// TestReset_WaitsForGateOnlyWhileServing checks that no program ends before its gate is open, as long as that
// program serves.
func TestReset_WaitsForGateOnlyWhileServing(t *testing.T) {
	t.Parallel()
	says := func(code string) *op.Wait {
		return &op.Wait{Name: "etcd", Program: []string{"sh", "-c", "exit " + code}, TimeoutSeconds: 1}
	}
	for _, tc := range []struct {
		name, reason string
		serves, gate *op.Wait
		ends         bool
	}{
		{"all serve", "it may end", says("0"), says("0"), true},
		{"another does not", "with it the majority would", says("0"), says("1"), false},
		{"it does not serve itself", "an interrupted run has stopped it in part", says("1"), says("1"), true},
		{"nothing is waited for", "as with any other reset", nil, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = 1
			pod := exec.Command("/bin/sleep", "60")
			if err := pod.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- pod.Wait() }()
			const group = "sys/fs/cgroup/cpu/kubepods/pod1"
			h.write(group+"/cgroup.procs", strconv.Itoa(pod.Process.Pid)+"\n")
			gone := make(chan struct{})
			go func() { // as the kernel does when the cgroup is empty
				defer close(gone)
				<-ended
				_ = os.Remove(h.path(group + "/cgroup.procs"))
			}()
			o := op.Reset{Cgroups: []string{"kubepods"}, Serves: tc.serves, Gate: tc.gate}
			r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
			if (r.Error == nil) != tc.ends {
				t.Errorf("%s: %v", tc.reason, r.Error)
			}
			if !tc.ends {
				select {
				case <-gone:
					t.Errorf("it has ended: %s", tc.reason)
				default:
				}
				_ = pod.Process.Kill()
			}
			<-gone
		})
	}
}

// TestReset_KeepsCgroupOfRestartedUnit checks that all programs in the cgroup of a restarted unit end, and
// that this cgroup remains. The cgroup of a pod is removed.
func TestReset_KeepsCgroupOfRestartedUnit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	shim := exec.Command("/bin/sleep", "60")
	if err := shim.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- shim.Wait() }()
	const unit, pod = "sys/fs/cgroup/cpu/system.slice/containerd.service", "sys/fs/cgroup/cpu/kubepods/pod1"
	h.write(unit+"/cgroup.procs", strconv.Itoa(shim.Process.Pid)+"\n")
	if err := os.MkdirAll(h.path(pod), 0o755); err != nil {
		t.Fatal(err)
	}
	h.apply(op.Reset{
		Units: []string{"containerd.service"}, Cgroups: []string{"kubepods"},
		Within: []string{"system.slice/containerd.service"},
	})
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = shim.Process.Kill()
		t.Error("what was in it runs on")
	}
	if !host.Exists(h.path(unit)) || host.Exists(h.path(pod)) {
		t.Errorf("the unit's cgroup is there: %t, the pod's: %t", host.Exists(h.path(unit)), host.Exists(h.path(pod)))
	}
}

// TestReset_StopsSliceWithoutCgroup checks a slice that systemd still has after its cgroups were removed: an interrupted
// reset leaves it, and systemd creates the cgroups again.
func TestReset_StopsSliceWithoutCgroup(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := h.see()
	w.unit("kubepods.slice").Active = true
	h.world(w)
	reset := op.Reset{Cgroups: []string{"kubepods.slice", "kubepods"}}
	h.changes(reset, "stop kubepods.slice")
	h.apply(reset)
	if w := h.see(); w.unit("kubepods.slice").Active {
		t.Error("the slice was not stopped")
	}
	h.changes(reset, "")
}
