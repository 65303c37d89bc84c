//go:build e2e && long

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLongServerTakeover kills a server while it changes a cluster. The command line is refused until the lock is stale,
// takes the cluster over, and begins to delete it. The server starts again, and refuses to continue: the cluster has another
// manager. The command line then completes the deletion.
func TestLongServerTakeover(t *testing.T) {
	u := newUser(t)
	const name = "e2e-takeover"
	machines := []string{name + "-1", name + "-2"}
	file := u.createMachines(t, name, len(machines))
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.takeSnapshot(t, m)
	}
	data, address := filepath.Join(t.TempDir(), "data"), freeAddress(t)
	d := startServer(t, data, address, "--cache-dir="+cacheDir())
	o := objectUser{kubectl: buildKubectl(t, d), name: name, spec: readSpec(t, file)}
	o.createKey(t)
	o.apply(t, machines)
	o.waitForApplied(t, "create")

	childMap(childMap(childMap(o.spec, "kubernetes"), "kubelet"), "config")["maxPods"] = 77
	o.apply(t, machines)
	operation, _ := o.waitForProcess(t)
	d.kill(t)
	killed := time.Now()
	u.takeOverInPart(t, file, killed)

	d = startServer(t, data, address, "--cache-dir="+cacheDir())
	const path = "jsonpath={.status.state}: {.status.message}"
	eventually(t, 3*time.Minute, "the server to refuse the cluster", func() error {
		is := o.must(t, "get", "operation", operation, "-o", path)
		if !strings.HasPrefix(is, "Failed: ") {
			return fmt.Errorf("operation %s is %s", operation, is)
		}
		if !strings.Contains(is, "a command line with other records manages cluster "+name) {
			t.Errorf("operation %s is %s: it does not name the other manager", operation, is)
		}
		return nil
	})
	u.mustExit(t, 0, "resume", name, "--yes")
	for _, m := range machines {
		requireSame(t, m+" after the takeover", "touched", before[m], u.takeSnapshot(t, m))
	}
	d.stop(t)
}

// takeOverInPart deletes the cluster of a server that was killed, as soon as that is possible, and kills the command line
// after the first step of a host.
func (u *user) takeOverInPart(t *testing.T, file string, killed time.Time) {
	t.Helper()
	refusals := 0
	eventually(t, 3*time.Minute, "the command line to take the cluster over", func() error {
		o := u.startOperation(t, "delete", "cluster", "-f", file, "--take-over", "--yes", "--allow-removal")
		begun := &moment{name: "the first step", at: func(h happening) bool { return h.Type == "step.finished" && h.Host != "" }}
		if o.readUntil(newMoments(begun)) != nil {
			if !o.killManager() {
				t.Fatalf("the command line ended before it was killed:\n%s", textTail(o.stderr.String()))
			}
			return nil
		}
		if code := o.waitForExit(); code != 5 || !strings.Contains(o.stderr.String(), "[locked]") {
			t.Fatalf("delete ends with %d:\n%s", code, textTail(o.stderr.String()))
		}
		refusals++
		return errors.New(textTail(o.stderr.String()))
	})
	silent := time.Since(killed)
	t.Logf("figure: %d refusals after the server was killed, its cluster taken over after %.0f s", refusals, silent.Seconds())
	if refusals == 0 || silent < 45*time.Second { // 60 after the last heartbeat, which is sent every 10
		t.Errorf("the cluster of the killed server was taken over after %s, with %d refusals", silent, refusals)
	}
}
