//go:build e2e && long

package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"slipway.dev/slipway/test/kubeadmscript"
)

// TestLongOperatorForeign installs the operator in a cluster that kubeadm has created without Slipway. Another cluster is
// created, grows, and is deleted through its object.
func TestLongOperatorForeign(t *testing.T) {
	version := testedVersion()
	s, file := newOperatorMachines(t, "e2e-foreign", version)
	start := time.Now()
	s.runScript(t, file, version)
	t.Logf("figure: kubeadm created its cluster in %.0f s", time.Since(start).Seconds())
	s.createTeam(t, s.mustExec(t, s.nodes[0], "cat", "/etc/kubernetes/admin.conf"))
	defer s.showFailure(t)
	s.importImage(t, s.user, daemonPath(t))
	s.install(t, "in-process")
	before := s.takeSnapshots(t)

	start = time.Now()
	s.o.apply(t, s.hosts[:1])
	s.o.waitForApplied(t, "create")
	s.o.must(t, "wait", "--for=condition=Ready", "cluster/"+s.o.name, "--timeout=2m")
	t.Logf("figure: created by the operator in %.0f s", time.Since(start).Seconds())
	s.o.apply(t, s.hosts)
	s.o.waitForApplied(t, "grow")
	s.o.requireNodes(t, s.user, s.hosts[0], s.hosts...)

	s.deleteCluster(t, "the operator", before)
	s.uninstall(t)
}

// runScript sets up a cluster on the machines of a cluster file, with one control plane.
func (s *operatorSite) runScript(t *testing.T, file, version string) {
	t.Helper()
	layout, content := filepath.Join(s.home, "bundle")+"/", filepath.Join(s.home, "content")
	s.mustRun(t, "bundle", "build", "--kubernetes", version, "--out", layout)
	inspected := s.mustRun(t, "bundle", "inspect", layout, "-o", "json")
	if err := kubeadmscript.Unpack(layout, []byte(inspected), content); err != nil {
		t.Fatal(err)
	}
	args, err := kubeadmscript.Args(file, content, 1)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(t.Context(), "../kubeadmscript/kubeadm.sh", args...).CombinedOutput(); err != nil {
		t.Fatalf("the script ends with %v:\n%s", err, textTail(string(text)))
	}
}
