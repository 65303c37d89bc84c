//go:build e2e && long

package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A killedServer is a server that is killed while it changes a cluster.
type killedServer struct {
	*user
	o       objectUser
	d       *daemon
	data    string
	address string
	random  *rand.Rand
	kills   int
}

// TestLongServerKill creates, scales, upgrades and deletes a cluster through its object, while the server is killed at 20
// random moments and starts again. Each operation ends once and successfully, and the hosts are clean in the end.
func TestLongServerKill(t *testing.T) {
	const name, older, newer = "e2e-kill", "v1.36.4", "v1.37.1"
	t.Setenv("KUBERNETES", older)
	s := &killedServer{
		user: newUser(t), data: filepath.Join(t.TempDir(), "data"), address: freeAddress(t),
		random: rand.New(rand.NewPCG(24, uint64(time.Now().UnixNano()))),
	}
	s.prepareBundles(t, older, newer)
	machines := []string{name + "-1", name + "-2", name + "-3"}
	file := s.createMachines(t, name, len(machines))
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = s.takeSnapshot(t, m)
	}
	s.start(t)
	s.o = objectUser{kubectl: buildKubectl(t, s.d), name: name, spec: readSpec(t, file)}
	s.o.createKey(t)

	s.changeWithKills(t, "created", 6, func() { s.o.apply(t, machines[:2]) })
	s.o.requireNodes(t, s.user, machines[0], machines[:2]...)
	ca := s.mustExec(t, machines[0], "sha256sum", "/etc/kubernetes/pki/ca.crt")
	s.changeWithKills(t, "scaled", 5, func() { s.o.apply(t, machines) })
	s.o.requireNodes(t, s.user, machines[0], machines...)
	childMap(s.o.spec, "kubernetes")["version"] = newer
	s.changeWithKills(t, "upgraded", 6, func() { s.o.apply(t, machines) })
	s.o.requireNodes(t, s.user, machines[0], machines...)
	if now := s.mustExec(t, machines[0], "sha256sum", "/etc/kubernetes/pki/ca.crt"); now != ca {
		t.Error("the CA has changed: the cluster was created again")
	}
	const path = `{range .items[*]}{.spec.kind} {.status.state}{"\n"}{end}`
	for line := range strings.Lines(s.o.must(t, "get", "operations", "-o", "jsonpath="+path)) {
		if state := strings.TrimSpace(line); !strings.HasSuffix(state, " Succeeded") && !strings.HasSuffix(state, " Superseded") {
			t.Errorf("an operation is %q", state)
		}
	}
	if kinds := s.countSucceeded(t); kinds["create"] != 1 || kinds["apply"] != 1 || kinds["upgrade"] != 1 {
		t.Errorf("successful operations: %v, want one of each kind", kinds)
	}

	s.o.must(t, "patch", "cluster", name, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
	s.withKills(t, "deleted", 3, func() { s.o.must(t, "delete", "cluster", name, "--wait=false") }, func() error {
		if left := s.o.must(t, "get", "clusters", "-o", "name"); left != "" {
			return fmt.Errorf("%s exists", left)
		}
		return nil
	})
	s.mustExec(t, machines[0], "rm", "-rf", "/root/.kube") // of the checks above
	for _, m := range machines {
		requireSame(t, m+" after the deletion of the object", "touched", before[m], s.takeSnapshot(t, m))
	}
	t.Logf("figure: %d kills", s.kills)
	s.d.stop(t)
}

// start starts the server.
func (s *killedServer) start(t *testing.T) {
	t.Helper()
	s.d = startServer(t, s.data, s.address, "--cache-dir="+cacheDir())
}

// isRunning reports whether this process of the server runs an operation.
func (s *killedServer) isRunning(t *testing.T) bool {
	t.Helper()
	const path = `{range .items[?(@.status.state=="Running")]}{.status.executor.id}{"\n"}{end}`
	list := s.o.must(t, "get", "operations", "-o", "jsonpath="+path)
	return strings.Contains(list, fmt.Sprintf("/%d\n", s.d.cmd.Process.Pid))
}

// countSucceeded returns the number of successful operations of each kind.
func (s *killedServer) countSucceeded(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	const path = `{range .items[?(@.status.state=="Succeeded")]}{.spec.kind}{"\n"}{end}`
	for line := range strings.Lines(s.o.must(t, "get", "operations", "-o", "jsonpath="+path)) {
		out[strings.TrimSpace(line)]++
	}
	return out
}

// changeWithKills changes the object, and kills the server while it applies the change.
func (s *killedServer) changeWithKills(t *testing.T, what string, kills int, change func()) {
	t.Helper()
	s.withKills(t, what, kills, change, func() error {
		is, _, message := s.o.condition(t)
		if strings.HasSuffix(is, "OperationFailed") {
			t.Fatalf("%s: %s\n%s", what, message, s.o.must(t, "get", "operations", "-o", "yaml"))
		}
		if is != "True IntentApplied" {
			return fmt.Errorf("condition Reconciled is %q: %s", is, message)
		}
		return nil
	})
}

// A server is killed while it runs an operation, at a random moment of the first steps of its attempt, and then again at a
// random moment before another attempt begins: the lock of the killed process has to end first.
const (
	killedInSteps = 8 * time.Second
	killedWaiting = 20 * time.Second
)

// withKills begins a change, and kills the server several times at random moments, unless the change is done before.
func (s *killedServer) withKills(t *testing.T, what string, kills int, change func(), done func() error) {
	t.Helper()
	start, killed := time.Now(), 0
	change()
	for ; killed < kills; killed++ {
		most := killedWaiting
		if killed%2 == 0 {
			most = killedInSteps
			eventually(t, 10*time.Minute, "an operation to run, or the cluster to be "+what, func() error {
				if done() == nil || s.isRunning(t) {
					return nil
				}
				return fmt.Errorf("the server runs no operation: %s", s.o.must(t, "get", "operations"))
			})
		}
		<-time.After(time.Duration(s.random.Int64N(int64(most))))
		if done() == nil {
			break
		}
		s.d.kill(t)
		s.start(t)
	}
	eventually(t, 10*time.Minute, "the cluster to be "+what, done)
	s.kills += killed
	t.Logf("figure: %s in %.0f s with %d kills", what, time.Since(start).Seconds(), killed)
}
