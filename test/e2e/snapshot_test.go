//go:build e2e

package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// takeSnapshot describes a sandbox machine, file by file. The test program
// itself goes there and looks; it leaves nothing behind.
func (u *user) takeSnapshot(t *testing.T, machine string) snapshot {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const collector = "/run/slipway-e2e-collector"
	u.copyTo(t, machine, self, collector)
	out := u.mustExec(t, machine, "sh", "-c", collectMode+"=files "+collector+"; rc=$?; rm -f "+collector+"; exit $rc")
	s := decodeJSON[snapshot](t, out)
	delete(s, "file "+collector)
	return s
}

// hostState describes this host without its files: what a sandbox could
// leave behind.
func hostState() (snapshot, error) {
	var out strings.Builder
	if err := writeSnapshot(&out, false); err != nil {
		return nil, err
	}
	var s snapshot
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
		return nil, err
	}
	if err := s.addLoops(); err != nil {
		return nil, err
	}
	// Programs, units and cgroups start and end on a host that has other users. The
	// cgroups of a machine have our name, and the cgroups of its pods have the names of
	// Kubernetes.
	maps.DeleteFunc(s, func(key string, _ entry) bool {
		kind, name, _ := strings.Cut(key, " ")
		stays := kind == "routes" && slices.Contains(keptRoutes, name)
		others := kind == "cgroup" && !strings.Contains(name, "slipway") && !strings.Contains(name, "kube")
		return kind == "process" || kind == "running" || kind == "units" || stays || others
	})
	for _, p := range ownProcesses() {
		s["process "+strings.Join(p.argv, " ")] = entry{}
	}
	// The last sandbox releases the settings of the host.
	const held = "/run/slipway-sandbox/host.json"
	if _, err := os.Lstat(held); err == nil {
		s["file "+held] = entry{}
	}
	return s, nil
}

// keptRoutes lists the routes that are kept on purpose, for the two ranges of machine
// addresses: docs/adr/0002-sandbox-range.md.
var keptRoutes = []string{"unreachable 198.18.0.0/16 metric 4294967295", "unreachable " + siteRange + " metric 4294967295"}

// addLoops describes the loop devices that are in use.
func (s snapshot) addLoops() error {
	devices, err := os.ReadDir("/sys/block")
	if err != nil {
		return err
	}
	for _, d := range devices {
		if backing, err := os.ReadFile(path.Join("/sys/block", d.Name(), "loop/backing_file")); err == nil {
			s["loop "+strings.TrimSpace(string(backing))] = entry{}
		}
	}
	return nil
}

// requireSame fails the test for every difference that ignored_differences.txt does not allow.
func requireSame(t *testing.T, what, scope string, before, after snapshot) {
	t.Helper()
	const most = 200
	diff := compareSnapshots(before, after, readVolatile(t, scope))
	if len(diff) == 0 {
		return
	}
	t.Errorf("%s: %d differences:\n  %s", what, len(diff), strings.Join(diff[:min(len(diff), most)], "\n  "))
}

// requireUntouched fails the test if the machine carries anything of Kubernetes:
// what Slipway shows, it installed itself.
func (s snapshot) requireUntouched(t *testing.T, machine string) {
	t.Helper()
	for key := range s {
		if ofKubernetes.MatchString(key) || strings.HasPrefix(key, "file /var/lib/slipway") {
			t.Errorf("%s carries %q before the install", machine, key)
		}
	}
}
