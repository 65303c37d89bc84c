//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAllInOne makes a cluster of one machine from inside it, with nothing
// there but the program and the bundle.
func TestAllInOne(t *testing.T) {
	u := newUser(t)
	const machine = "e2e-one-1"
	u.createMachines(t, "e2e-one", 1)
	before := u.takeSnapshot(t, machine)

	u.copyTo(t, machine, programPath(), "/root/slipway")
	u.preparesOnly(t, machine)
	bundle := filepath.Join(u.home, "bundle.tar.zst")
	u.mustRun(t, "bundle", "build", "--kubernetes", testedVersion(), "--out", bundle)
	u.copyTo(t, machine, bundle, "/root/bundle.tar.zst")
	manifest := "../../docs/guide/echo.yaml"
	if _, err := os.Stat(manifest); err != nil {
		t.Fatal(err)
	}
	u.copyTo(t, machine, manifest, "/root/echo.yaml")

	u.mustExec(t, machine, "/root/slipway", "create", "cluster", "--yes", "--bundle", "/root/bundle.tar.zst")
	name := strings.Fields(u.mustExec(t, machine, "/root/slipway", "get", "clusters", "--no-headers"))[0]
	kubectl := func(args ...string) string {
		return u.mustExec(t, machine, append([]string{"/root/slipway", "kubectl", name, "--"}, args...)...)
	}
	if out := kubectl("get", "nodes", "--no-headers"); !strings.Contains(out, " Ready ") || strings.Count(out, "\n") != 1 {
		t.Errorf("want one node, Ready:\n%s", out)
	}
	kubectl("apply", "-f", "/root/echo.yaml")
	kubectl("rollout", "status", "daemonset/echo", "--timeout=120s")
	// kube-proxy takes a moment to learn of a new Service.
	eventually(t, time.Minute, "the echo service answers", func() error {
		r := u.runSlipway(t, "sandbox", "exec", machine, "--", "/root/slipway", "kubectl", name, "--", "exec",
			"daemonset/echo", "--", "/echo", "get", "http://echo/")
		if r.code != 0 || !strings.Contains(r.stdout, "echo-") {
			return fmt.Errorf("exit code %d, answer %q: %s", r.code, r.stdout, textTail(r.stderr))
		}
		return nil
	})
	u.mustExec(t, machine, "/root/slipway", "delete", "cluster", name, "--yes", "--allow-removal")
	u.mustExec(t, machine, "sh", "-c", "rm -rf /root/slipway /root/bundle.tar.zst /root/echo.yaml /root/.kube /root/.local /root/.cache")
	requireSame(t, machine+" before and after", "touched", before, u.takeSnapshot(t, machine))
}

// preparesOnly lets the machine prepare itself: its kernel and names are configured, and
// no part of Kubernetes is installed. The next create relies on it, and its delete also
// reverts it.
func (u *user) preparesOnly(t *testing.T, machine string) {
	t.Helper()
	u.mustExec(t, machine, "/root/slipway", "init", "os", "--yes")
	prepared := u.takeSnapshot(t, machine)
	maps.DeleteFunc(prepared, func(key string, _ entry) bool { return strings.HasPrefix(key, "file /var/lib/slipway") }) // the ledger
	prepared.requireUntouched(t, machine)
	for key, want := range map[string]string{"sysctl net.ipv4.ip_forward": "1", "sysctl vm.max_map_count": "262144"} {
		if got := prepared[key].Content; got != want {
			t.Errorf("%s is %q on a prepared machine, want %q", key, got, want)
		}
	}
	u.mustExec(t, machine, "grep", "-q", "BEGIN slipway", "/etc/hosts")
	if out := u.mustExec(t, machine, "/root/slipway", "get", "clusters", "--no-headers"); strings.Contains(out, machine) {
		t.Errorf("a machine that is prepared is listed as a cluster:\n%s", out)
	}
}
