//go:build e2e && long

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// chartEditions are a chart twice: an add-on of one minor, and the one that comes in
// its place with the next.
func chartEditions(version, minor string) map[string]string {
	return map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: site\nversion: " + version + "\nkubeVersion: \"~" + minor + ".0-0\"\n",
		"templates/edition.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: edition}\ndata: {is: \"" + version +
			" for {{ .Capabilities.KubeVersion.Major }}.{{ .Capabilities.KubeVersion.Minor }}\"}\n",
	}
}

// TestLongAddonsUpgrade upgrades a cluster with add-ons to another minor version. An
// add-on that does not support it stops the upgrade before any change. With another chart
// in the file, the old chart is kept until all nodes are upgraded. A rollback restores the
// previous state.
func TestLongAddonsUpgrade(t *testing.T) {
	t.Setenv("KUBERNETES", "v1.36.4")
	u := newUser(t)
	const name = "e2e-siteup"
	u.prepareBundles(t, "v1.36.4", "v1.37.1")
	file := u.createMachines(t, name, 2)
	for dir, files := range map[string]map[string]string{"old": chartEditions("1.0.0", "1.36"), "new": chartEditions("2.0.0", "1.37")} {
		for path, text := range files {
			path = filepath.Join(u.home, dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	site := func(chart, minor, kubernetes string) {
		editSpec(t, file, func(spec map[string]any) {
			childMap(spec, "kubernetes")["version"] = kubernetes
			spec["addons"] = []any{
				map[string]any{"name": "metrics-server"},
				map[string]any{"name": "site", "namespace": "site", "chart": map[string]any{"path": chart}, "kubernetes": []string{minor}},
			}
		})
	}
	is := func(want, when string) {
		t.Helper()
		if got := u.mustKubectl(t, name, "-n", "site", "get", "configmap/edition", "-o", "jsonpath={.data.is}"); got != want {
			t.Errorf("%s the edition is %q, want %q", when, got, want)
		}
	}
	site("old", "1.36", "v1.36.4")
	u.createCluster(t, file)
	u.waitForEmptyPlan(t, file)
	is("1.0.0 for 1.36", "after creation")

	if r := u.mustExit(t, 2, "upgrade", name, "--to", "v1.37.1", "--yes"); !strings.Contains(r.stderr, "addons") ||
		!strings.Contains(r.stderr, "site") {
		t.Errorf("an add-on that does not work with the version: %s", textTail(r.stderr))
	}
	site("new", "1.37", "v1.37.1")
	u.mustExit(t, 0, "upgrade", "-f", file, "--yes", "--pause-after", "control-plane")
	is("1.0.0 for 1.36", "behind the control plane")
	u.mustExit(t, 0, "rollback", name, "--yes")
	is("1.0.0 for 1.36", "after the way back")
	u.mustExit(t, 0, "upgrade", "-f", file, "--yes")
	is("2.0.0 for 1.37", "after the upgrade")
	u.waitForEmptyPlan(t, file)
	u.waitForMetrics(t, name)
	u.mustExit(t, 0, "delete", "cluster", name, "--yes", "--allow-removal")
}
