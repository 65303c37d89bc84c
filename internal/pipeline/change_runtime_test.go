package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/testutil/golden"
)

// TestChangeRuntime_MatchesGolden compares what is removed from a node that changes its
// runtime and what replaces it, in both directions; a node that has changed loses
// nothing.
func TestChangeRuntime_MatchesGolden(t *testing.T) {
	var b strings.Builder
	for _, to := range []string{"docker", "containerd"} {
		c := plainCluster()
		c.Spec.ContainerRuntime.Type = to
		env := newEnv(t, c)
		env.Leader, env.NewRuntime = "cp1", true
		on := blankHosts(env)
		for _, h := range on {
			h.Facts.Present = []string{module.ClientCert}
			if (to == "containerd") != (h.Name == "w2") {
				h.Facts.Present = append(h.Facts.Present, module.DockerUnit)
			}
		}
		p, err := ChangeRuntime(env, testParts())
		if err != nil {
			t.Fatal(err)
		}
		all := operationLists(t, p, on)
		for _, at := range []string{
			"runtime.ahead on w1", "runtime.ahead on w2", "reset.runtime on cp1",
			"reset.runtime on w1", "reset.runtime on w2", "runtime.docker on w1", "kubelet.running on w1", "runtime.serving on cp1",
		} {
			fmt.Fprintf(&b, "to %s: %s\n%s\n", to, at, printOperations(t, all[at]))
		}
	}
	golden.Check(t, "testdata/change-runtime.golden", b.String())
}
