package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/testutil/golden"
)

// TestMigrateOperations compares what is removed from a node that changes its runtime and
// what replaces it, in both directions; a node that has changed loses nothing.
func TestMigrateOperations(t *testing.T) {
	var b strings.Builder
	for _, to := range []string{"docker", "containerd"} {
		c := base()
		c.Spec.ContainerRuntime.Type = to
		env := environment(t, c)
		env.Leader, env.Migrates = "cp1", true
		on := hosts(env)
		for _, h := range on {
			h.Facts.Present = []string{module.ClientCert}
			if (to == "containerd") != (h.Name == "w2") {
				h.Facts.Present = append(h.Facts.Present, module.DockerUnit)
			}
		}
		p, err := Migrate(env, parts())
		if err != nil {
			t.Fatal(err)
		}
		all := lists(t, p, on)
		for _, at := range []string{"runtime.ahead on w1", "runtime.ahead on w2", "reset.runtime on cp1",
			"reset.runtime on w1", "reset.runtime on w2", "runtime.docker on w1", "kubelet.running on w1", "runtime.serving on cp1"} {
			fmt.Fprintf(&b, "to %s: %s\n%s\n", to, at, operations(t, all[at]))
		}
	}
	golden.Check(t, "testdata/migrate.golden", b.String())
}
