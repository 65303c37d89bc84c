package hostprep

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// TestKernelOps_WriteEachParameterOnce: a parameter is written once, for every spelling
// of its name, because only one of two values can be in effect.
func TestKernelOps_WriteEachParameterOnce(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Spec.System.Sysctls = map[string]string{"fs/inotify/max_user_watches": "1", "net/ipv4/conf/eth0.1/rp_filter": "0"}
	var got map[string]string
	for _, o := range kernelOps(module.Env{Cluster: c}, &engine.Host{}) {
		if s, ok := o.(op.Sysctl); ok {
			got = s.Values
		}
	}
	if got["fs.inotify.max_user_watches"] != "1" || got["net.ipv4.conf.eth0/1.rp_filter"] != "0" || got["fs/inotify/max_user_watches"] != "" {
		t.Errorf("parameters: %v", got)
	}
}

// TestKernelOps_LimitsFollowSysctls: fs.nr_open is raised before the limit that needs it.
func TestKernelOps_LimitsFollowSysctls(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Spec.System.Sysctls = map[string]string{"fs/nr_open": " 2000000"}
	c.Spec.System.Limits = map[string]string{"nofile": "65536:2000000", "core": "0"}
	want := op.List{
		op.Limits{File: "/etc/security/limits.d/90-slipway.conf", OpenFilesMax: 2000000, Limits: []op.Limit{
			{Item: "core", Soft: "0", Hard: "0"}, {Item: "nofile", Soft: "65536", Hard: "2000000"},
		}},
		op.RevertStep{Step: stepKernel},
	}
	got := kernelOps(module.Env{Cluster: c}, &engine.Host{})
	if d := cmp.Diff(want, got[2:]); d != "" {
		t.Errorf("after the sysctls (-want +got):\n%s", d)
	}
}

// TestClockOps_TimeServerIgnoresItself: a host that is a time server follows the other
// servers, and not itself.
func TestClockOps_TimeServerIgnoresItself(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Spec.Hosts = []v1alpha1.Host{{Name: "w1", Address: "192.0.2.1"}, {Name: "w2", Address: "192.0.2.2"}}
	c.Spec.System.NTPServers = []string{"192.0.2.1", "ntp.example.com"}
	for name, want := range map[string]op.List{
		"w1": {op.TimeSync{Servers: []string{"ntp.example.com"}}, op.RevertStep{Step: stepTime}},
		"w2": {op.TimeSync{Servers: []string{"192.0.2.1", "ntp.example.com"}}, op.RevertStep{Step: stepTime}},
	} {
		got := clockOps(module.Env{Cluster: c}, &engine.Host{Host: v1alpha1.Host{Name: name}})
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	c.Spec.System.NTPServers = []string{"w1"}
	if got := clockOps(module.Env{Cluster: c}, &engine.Host{Host: c.Spec.Hosts[0]}); len(got) != 1 {
		t.Errorf("the only server follows %v, want none", got)
	}
}

// TestPrepareHosts_KeepsSwapThatKubeletsAllow: swap remains on if the kubelets start
// with it.
func TestPrepareHosts_KeepsSwapThatKubeletsAllow(t *testing.T) {
	for name, config := range map[string]map[string]any{"off": nil, "on": {"failSwapOn": false}} {
		c := &v1alpha1.Cluster{}
		c.Spec.Kubernetes.Kubelet.Config = config
		for _, task := range PrepareHosts(module.Env{Cluster: c}).Tasks {
			if task.ID != "os.swap" {
				continue
			}
			ops, err := task.Ops(nil)
			if err != nil || (len(ops) == 0) != (name == "on") {
				t.Errorf("with swap %s: %v, %v", name, ops, err)
			}
		}
	}
}
