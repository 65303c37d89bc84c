package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/testutil/golden"
)

// rebooting returns an environment in which some hosts are rebooted.
func rebooting(env module.Env, hosts ...v1alpha1.Host) module.Env {
	env.Reboots = map[string]string{}
	for _, h := range hosts {
		env.Reboots[h.Name] = "boot-" + h.Name
	}
	return env
}

// TestRebootNodes_MatchesGolden compares what is done on each host of a cluster with etcd
// in pods, and of one with separate etcd hosts and a registry. Hosts that are not named
// are not touched.
func TestRebootNodes_MatchesGolden(t *testing.T) {
	var b strings.Builder
	for _, v := range []struct {
		name   string
		change func(*v1alpha1.Cluster)
	}{
		{"etcd in pods", func(*v1alpha1.Cluster) {}},
		{"etcd as a service, and a registry", func(c *v1alpha1.Cluster) {
			c.Spec.Etcd.Type = spec.EtcdManaged
			c.Spec.Hosts = append(c.Spec.Hosts, host("e1", "192.0.2.31", v1alpha1.RoleEtcd), host("reg", "192.0.2.32", v1alpha1.RoleRegistry))
			c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{}
		}},
	} {
		c := plainCluster()
		v.change(c)
		env := newEnv(t, c)
		env.Leader = "cp1"
		named := append([]v1alpha1.Host{c.Spec.Hosts[0], c.Spec.Hosts[2]}, c.Spec.Hosts[3:]...) // without w1
		on := blankHosts(env)
		for _, h := range on {
			h.Facts.BootID, h.Facts.Present = "boot-"+h.Name, []string{module.ClientCert}
		}
		p, err := RebootNodes(rebooting(env, named...))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s\n\n%s\n", v.name, printPipeline(t, p, on))
	}
	golden.Check(t, "testdata/reboot-nodes.golden", b.String())
}
