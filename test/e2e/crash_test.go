//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A site holds three machines and the cluster on them. The cluster is created repeatedly
// under the same names and addresses, so that the files on the machines can be compared.
type site struct {
	*user
	name, file string
	machines   []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{user: newUser(t), name: siteName, machines: []string{siteName + "-1", siteName + "-2", siteName + "-3"}}
	s.file = s.user.createMachines(t, s.name, len(s.machines), "--range", siteRange)
	return s
}

// createArgs returns the command that creates the cluster.
func (s *site) createArgs() []string {
	return []string{"create", "cluster", "-f", s.file, "--yes"}
}

// nextArgs returns the next command of a user after a crash in the middle of args: resume
// if the operation was recorded, the same command again if the manager died before that,
// and nothing if the operation was complete. was is the cluster's operation before it.
func (u *user) nextArgs(t *testing.T, cluster, was string, args []string) []string {
	t.Helper()
	switch o := u.latestOperation(t, cluster); {
	case o == nil || o.Metadata.Name == was:
		return args
	case o.Status.State == "Succeeded":
		return nil
	}
	return []string{"resume", cluster, "--yes"}
}

// A recorded is the part of an operation that tests look at.
type recorded struct {
	Metadata struct{ Name string }
	Status   struct{ State string }
}

// latestOperation returns a cluster's latest operation, or nil.
func (u *user) latestOperation(t *testing.T, cluster string) *recorded {
	t.Helper()
	type summary struct {
		Name      string
		Operation *recorded
	}
	for _, c := range decodeJSON[[]summary](t, u.mustRun(t, "get", "clusters", "-o", "json")) {
		if c.Name == cluster {
			return c.Operation
		}
	}
	return nil
}

// planOf is the plan of a cluster's latest operation, as it is recorded.
func (u *user) planOf(t *testing.T, cluster string) planned {
	t.Helper()
	o := u.latestOperation(t, cluster)
	if o == nil {
		t.Fatalf("%s has no operation", cluster)
	}
	data, err := os.ReadFile(filepath.Join(u.home, "slipway/operations", o.Metadata.Name, "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	return decodeJSON[planned](t, string(data))
}

// listJournals are the files in which operations are recorded.
func (u *user) listJournals(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(u.home, "slipway/operations/*/journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// readJournal returns the recorded events of all journals that did not exist before. It
// can contain more events than a manager printed before it died.
func (u *user) readJournal(t *testing.T, before []string) []happening {
	t.Helper()
	var all []happening
	for _, file := range u.listJournals(t) {
		if slices.Contains(before, file) {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var h happening
			if json.Unmarshal(line, &h) == nil { // the last may be cut
				all = append(all, h)
			}
		}
	}
	return all
}

// An outcome describes a created cluster: the files on its machines, and the events in
// order.
type outcome struct {
	hosts map[string]snapshot
	run   []happening
}

// runUndisturbed makes the cluster without any trouble.
func runUndisturbed(t *testing.T) outcome {
	t.Helper()
	var out outcome
	t.Run("undisturbed", func(t *testing.T) {
		s := newSite(t)
		o := s.startOperation(t, s.createArgs()...)
		out.run = o.readRest()
		if code := o.waitForExit(); code != 0 {
			t.Fatalf("create ends with %d:\n%s", code, textTail(o.stderr.String()))
		}
		out.hosts = s.takeSnapshots(t)
	})
	if out.hosts == nil {
		t.FailNow()
	}
	return out
}

// takeSnapshots describes the machines of a cluster after all activity has ended.
func (s *site) takeSnapshots(t *testing.T) map[string]snapshot {
	t.Helper()
	s.waitForNodes(t, s.name, s.machines...)
	for _, workload := range []string{"deployment/coredns", "daemonset/kube-proxy"} {
		s.mustKubectl(t, s.name, "-n", "kube-system", "rollout", "status", workload, "--timeout=120s")
	}
	out := map[string]snapshot{}
	for _, m := range s.machines {
		s.mustExec(t, m, "sh", "-c", letGo)
		out[m] = s.takeSnapshot(t, m)
	}
	return out
}

// letGo is a shell script that makes containerd release content now that it would release
// within a day: content under the lease of a killed import, which no image uses.
const letGo = `ctr="ctr -n k8s.io leases"
$ctr create --id e2e >/dev/null && $ctr delete --sync $($ctr ls -q) >/dev/null`

// sameCluster asserts that a disturbed run ended where the undisturbed did:
// an empty plan, the same hosts file by file, a working cluster.
func (s *site) sameCluster(t *testing.T, want outcome) {
	t.Helper()
	s.requireEmptyPlan(t, s.file)
	for m, got := range s.takeSnapshots(t) {
		requireSame(t, m+" of the undisturbed and of the disturbed cluster", "cluster", want.hosts[m], got)
	}
	s.smokeTest(t, s.name, s.waitForNodes(t, s.name, s.machines...))
}

// crashLimit is the time after which a scenario of crashes has failed.
const crashLimit = 18 * time.Minute

// killedAt runs slipway on a cluster, kills the manager at each of the moments, and
// resumes after each kill until the command is complete. It returns the number of killed
// managers. No machine ever runs two kubeadm processes at once.
func (u *user) killedAt(t *testing.T, ms *moments, cluster string, do ...string) (kills int) {
	t.Helper()
	watch := startWatch(oneKubeadm)
	defer watch.endWatch(t)
	begin, before, was := time.Now(), u.listJournals(t), ""
	if o := u.latestOperation(t, cluster); o != nil && o.Status.State == "Succeeded" {
		was = o.Metadata.Name
	}
	for args := do; args != nil; {
		if time.Since(begin) > crashLimit {
			t.Fatalf("no end after %s and %d kills; still to come: %s", crashLimit, kills, strings.Join(ms.listMissing(), ", "))
		}
		o := u.startOperation(t, args...)
		m := o.readUntil(ms)
		if m == nil {
			if code := o.waitForExit(); code != 0 {
				t.Fatalf("%s ends with %d (-1: it hung) after %d kills:\n%s", strings.Join(args, " "), code, kills, textTail(o.stderr.String()))
			}
			break
		}
		if o.killManager() {
			kills++
		}
		ms.endRun(u.readJournal(t, before))
		t.Logf("kill %d, %.0f s after the beginning: %s", kills, time.Since(begin).Seconds(), m.name)
		args = u.nextArgs(t, cluster, was, do)
	}
	t.Logf("%d kills and the way to the end took %.0f s", kills, time.Since(begin).Seconds())
	return kills
}

// TestCrash kills the manager within one create: at five task boundaries,
// inside a transfer, inside kubeadm's init and join.
// TestLongCrashEveryBoundary takes all boundaries.
func TestCrash(t *testing.T) {
	want := runUndisturbed(t)
	ms := newMoments(inTransfer(), inPhase("kubeadm.init.certs", ""), inPhase("join.kubelet-start", ""))
	all := listBoundaries(want.run)
	for _, b := range fixedBoundaries {
		if !slices.Contains(all, b.boundary) {
			t.Fatalf("an undisturbed create has no boundary %q (%s); it has:\n  %s", b.boundary, b.reason, strings.Join(all, "\n  "))
		}
		ms.left = append(ms.left, momentAfter(b.boundary))
	}
	t.Run("killed", func(t *testing.T) {
		s := newSite(t)
		all := len(ms.left)
		kills := s.killedAt(t, ms, s.name, s.createArgs()...)
		for _, m := range ms.left {
			t.Errorf("never killed at, though it may have passed: %s", m.name)
		}
		if kills != all {
			t.Errorf("%d kills for %d moments", kills, all)
		}
		s.sameCluster(t, want)
	})
}
