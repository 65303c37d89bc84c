package os

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// TestKernelParameters has a parameter once, whichever way a person spells it: two
// values for one parameter are never both in effect.
func TestKernelParameters(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Spec.System.Sysctls = map[string]string{"fs/inotify/max_user_watches": "1", "net/ipv4/conf/eth0.1/rp_filter": "0"}
	var got map[string]string
	for _, o := range kernel(module.Env{Cluster: c}, &engine.Host{}) {
		if s, ok := o.(op.Sysctl); ok {
			got = s.Values
		}
	}
	if got["fs.inotify.max_user_watches"] != "1" || got["net.ipv4.conf.eth0/1.rp_filter"] != "0" || got["fs/inotify/max_user_watches"] != "" {
		t.Errorf("parameters: %v", got)
	}
}
