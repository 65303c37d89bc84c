//go:build e2e && long

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// laterRelease is the version of a later release of Slipway.
const laterRelease = "v99.0.0"

// buildRelease builds the programs of a release from this source.
func buildRelease(t *testing.T, release string) (slipway, slipwayd string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X slipway.dev/slipway/internal/version.version="+release, "-o", dir, "./cmd/slipway", "./cmd/slipwayd")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", release, err, text)
	}
	return filepath.Join(dir, "slipway"), filepath.Join(dir, "slipwayd")
}

// upgradeDuringOperation upgrades the operator to a later release while an operation runs in its Job. The Job completes the
// operation, and the processes of the later release have the cluster.
func (s *operatorSite) upgradeDuringOperation(t *testing.T) {
	t.Helper()
	slipway, slipwayd := buildRelease(t, laterRelease)
	later := *s.user
	later.program = slipway
	s.importImage(t, &later, slipwayd)
	was := s.status(t).Processes

	childMap(childMap(childMap(s.o.spec, "kubernetes"), "kubelet"), "config")["maxPods"] = 90
	s.o.apply(t, s.hosts)
	operation, first := s.o.waitForProcess(t)
	start := time.Now()
	later.mustRun(t, "operator", "upgrade", "--kubeconfig", s.kubeconfig(), "--wait", "0s")
	if state := s.o.must(t, "get", "operation", operation, "-o", "jsonpath={.status.state}"); state != "Running" {
		t.Fatalf("operation %s is %s when the upgrade of the operator begins", operation, state)
	}
	eventually(t, 3*time.Minute, "all Pods to be of the later release", func() error {
		if is := s.status(t); is.Version != laterRelease || is.Ready != 2 || is.Updated != 2 || len(is.Processes) != 2 {
			return fmt.Errorf("the operator is %+v", is)
		}
		return nil
	})
	t.Logf("figure: the operator was upgraded in %.0f s, while a Job ran an operation", time.Since(start).Seconds())
	s.o.waitForApplied(t, "change")
	if is := s.o.must(t, "get", "operation", operation, "-o", "jsonpath={.status.executor.id} {.status.attempt}"); is != first+" 1" {
		t.Errorf("the operation was run by %s, want %s 1", is, first)
	}
	s.waitUntilReady(t)
	isOld := func(process string) bool { return slices.Contains(was, process) }
	if now := s.status(t); now.Version != laterRelease || slices.ContainsFunc(now.Processes, isOld) {
		t.Errorf("the operator after the upgrade: %+v; its processes before: %v", now, was)
	}
}
