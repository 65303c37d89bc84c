package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestKillAll_EndsFrozenProcesses freezes a process as a container runtime does, and kills it.
func TestKillAll_EndsFrozenProcesses(t *testing.T) {
	requireroot.Need(t, "cgroups")
	groups, err := findCgroups("test-frozen")
	if err != nil {
		t.Fatal(err)
	}
	freezer, frozen := "cgroup.freeze", "1"
	tree := groups.hierarchies[0]
	if !groups.isV2() {
		i := slices.IndexFunc(groups.hierarchies, func(h hierarchy) bool { return h.Options == "freezer" })
		if i < 0 {
			t.Fatal("no tree has the controller freezer")
		}
		freezer, frozen, tree = "freezer.state", "FROZEN", groups.hierarchies[i]
	}
	freezer = filepath.Join(tree.Mount, groups.name, "machine", freezer)
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		_ = sleep.Wait() // the test reads its state
		close(ended)
	}()
	t.Cleanup(func() {
		groups.thawProcesses("machine")
		_ = sleep.Process.Kill() // it may have ended
		<-ended
		if err := groups.removePart(""); err != nil {
			t.Error(err)
		}
	})
	if err := groups.joinPart("machine", sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(freezer, []byte(frozen), 0); err != nil {
		t.Fatal(err)
	}
	for state := ""; state != frozen; {
		text, err := os.ReadFile(freezer)
		if err != nil {
			t.Fatal(err)
		}
		state = strings.TrimSpace(string(text))
	}
	if n := killAll(groups, "machine"); n != 1 {
		t.Errorf("%d processes were found, want 1", n)
	}
	select {
	case <-ended:
		if got := sleep.ProcessState.String(); got != "signal: killed" {
			t.Errorf("the process has ended with %s", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a frozen process does not end")
	}
}
