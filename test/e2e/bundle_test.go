//go:build e2e && long

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongBundle carries a bundle to a site without any files. The bundle is exported,
// signed, and imported into an empty cache. Clusters of the site may use no other bundle.
// A bundle without a signature by the site's key is rejected and changes nothing.
func TestLongBundle(t *testing.T) {
	u := newUser(t)
	const name = "e2e-bundle"
	machine := name + "-1"
	file := u.createMachines(t, name, 1)
	u.mustRun(t, "bundle", "export", testedVersion(), "--out", "b.tar.zst")
	u.mustRun(t, "bundle", "keygen", "release")

	// From here on the site's own cache, which is empty.
	before := u.env
	t.Cleanup(func() { u.env = before }) // the machines are made of the other
	u.env = append(u.env[:len(u.env):len(u.env)], "SLIPWAY_CACHE="+filepath.Join(u.home, "site"))
	key, err := os.ReadFile(filepath.Join(u.home, "release.pub"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(text), "\nspec:\n", "\nspec:\n  bundleKeys: [\""+strings.TrimSpace(string(key))+"\"]\n", 1)
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(id string, args ...string) {
		t.Helper()
		if r := u.mustExit(t, 2, args...); !strings.Contains(r.stderr, "["+id+"]") {
			t.Errorf("slipway %s does not say %s: %s", strings.Join(args, " "), id, textTail(r.stderr))
		}
	}
	refused("bundle-unsigned", "create", "cluster", "-f", file, "--yes")
	refused("bundle-unsigned", "create", "cluster", "-f", file, "--bundle", "b.tar.zst", "--yes")
	refused("bundle-unsigned", "bundle", "import", "b.tar.zst", "--key", "release.pub")
	u.takeSnapshot(t, machine).requireUntouched(t, machine)

	u.mustRun(t, "bundle", "sign", "b.tar.zst", "--key", "release.key")
	u.mustRun(t, "bundle", "import", "b.tar.zst", "--key", "release.pub")
	if err := os.Remove(filepath.Join(u.home, "b.tar.zst")); err != nil {
		t.Fatal(err)
	}
	u.createCluster(t, file)
	u.waitForEmptyPlan(t, file)
	u.requireEmptyPlan(t, file)
	u.smokeTest(t, name, u.waitForNodes(t, name, machine))
}
