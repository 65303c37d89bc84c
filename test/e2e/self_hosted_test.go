//go:build e2e && long

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLongOwnHost runs slipway on the first control plane of the cluster, and removes that
// host. The cluster continues without it, and slipway on that host manages the others as
// before.
func TestLongOwnHost(t *testing.T) {
	u := newUser(t)
	const name = "e2e-own"
	own, cp, worker := name+"-1", name+"-2", name+"-3"
	file := u.createMachines(t, name, 3, "--control-planes", "2")
	before := map[string]snapshot{}
	for _, m := range []string{own, cp, worker} {
		before[m] = u.takeSnapshot(t, m)
	}
	bundle := filepath.Join(u.home, "bundle.tar.zst")
	u.mustRun(t, "bundle", "build", "--kubernetes", testedVersion(), "--out", bundle)
	u.copyTo(t, own, programPath(), "/root/slipway")
	u.copyTo(t, own, bundle, "/root/bundle.tar.zst")
	editSpec(t, file, func(spec map[string]any) {
		host := spec["hosts"].([]any)[0].(map[string]any)
		host["internalAddress"], host["address"] = host["address"], "localhost"
		delete(host, "ssh")
		ssh := childMap(spec, "ssh")
		u.copyTo(t, own, ssh["privateKeyFile"].(string), "/root/key")
		ssh["privateKeyFile"] = "/root/key"
	})
	u.copyTo(t, own, file, "/root/cluster.yaml")
	u.mustExec(t, own, "chmod", "600", "/root/key", "/root/cluster.yaml")
	slipway := func(args ...string) string {
		t.Helper()
		return u.mustExec(t, own, append([]string{"/root/slipway"}, args...)...)
	}
	nodes := func(want ...string) {
		t.Helper()
		out := slipway("kubectl", name, "--", "get", "nodes", "--no-headers")
		if strings.Count(out, " Ready ") != len(want) || strings.Count(out, "\n") != len(want) {
			t.Errorf("want %v, all Ready:\n%s", want, out)
		}
		for _, n := range want {
			if !strings.Contains(out, n+" ") {
				t.Errorf("%s is no node:\n%s", n, out)
			}
		}
	}

	slipway("create", "cluster", "-f", "/root/cluster.yaml", "--yes", "--bundle", "/root/bundle.tar.zst")
	nodes(own, cp, worker)
	slipway("delete", "node", own, "--yes")
	nodes(cp, worker)
	editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[1:] })
	u.copyTo(t, own, file, "/root/cluster.yaml")
	slipway("plan", "-f", "/root/cluster.yaml", "--exit-code")
	// From here on, no command resets the host.
	slipway("delete", "cluster", name, "--yes", "--allow-removal")
	u.mustExec(t, own, "sh", "-c",
		"rm -rf /root/slipway /root/bundle.tar.zst /root/key /root/cluster.yaml /root/.kube /root/.local /root/.cache")
	for m, was := range before {
		requireSame(t, m+" before and after", "touched", was, u.takeSnapshot(t, m))
	}
}
