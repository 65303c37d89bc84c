package kubeadm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/testutil/golden"
)

// TestKubeletFiles_MatchGoldens compares the unit of each kind of node: it waits for
// the disks with its data and, on a control plane, with etcd data, and is retried until
// kubeadm has run.
func TestKubeletFiles_MatchGoldens(t *testing.T) {
	for _, host := range []string{"first", "worker"} {
		t.Run(host, func(t *testing.T) {
			env := environment()
			list, err := kubeletFiles(env, hostOf(env, host))
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range list {
				if f, ok := o.(op.File); ok && f.Path == unitFile {
					golden.Check(t, "testdata/kubelet-"+host+".service", f.Content)
				}
			}
		})
	}
}

// TestPreflightExec_AllowsOnlyLostAndFound: kubeadm does not require an empty etcd
// directory if only lost+found was found in it, and requires it everywhere else.
func TestPreflightExec_AllowsOnlyLostAndFound(t *testing.T) {
	const ignores = "--ignore-preflight-errors=DirAvailable--var-lib-etcd"
	env := environment()
	p := initPhase(env, phasePreflight)
	for _, tt := range []struct {
		name   string
		filled []string
		want   bool
	}{
		{"empty, or lost+found alone", nil, true},
		{"another directory has content", []string{facts.DirKubelet}, true},
		{"content", []string{facts.DirEtcd}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := hostOf(env, "first")
			h.Facts.Filled = tt.filled
			if got := preflightExec(p, h).Argv; slices.Contains(got, ignores) != tt.want {
				t.Errorf("kubeadm is run with %q", got)
			}
		})
	}
}

// TestWaitReconfiguredComponents_OutlastsLease: with new settings a component must run
// longer than the lease of the previous one, at the address that it serves.
func TestWaitReconfiguredComponents_OutlastsLease(t *testing.T) {
	wait := func(port, component string, steady int) op.Wait {
		return op.Wait{
			HTTP: "https://127.0.0.1:" + port + "/healthz", Manifest: "/etc/kubernetes/manifests/" + component + ".yaml",
			Crashes: 2, SteadySeconds: steady, TimeoutSeconds: 120,
		}
	}
	created := environment()
	changed := environment()
	changed.NewControlPlaneSettings = true
	addressed := environment()
	addressed.Cluster.Spec.Kubernetes.ControllerManager.ExtraArgs = map[string]string{"bind-address": "192.0.2.11"}
	addressed.Cluster.Spec.Kubernetes.Scheduler.ExtraArgs = map[string]string{"bind-address": "0.0.0.0"}
	manager := wait("10257", "kube-controller-manager", 5)
	manager.HTTP = "https://192.0.2.11:10257/healthz"
	for _, tt := range []struct {
		name string
		env  module.Env
		want op.List
	}{
		{"created", created, op.List{wait("10257", "kube-controller-manager", 5), wait("10259", "kube-scheduler", 5)}},
		{"changed", changed, op.List{wait("10257", "kube-controller-manager", 20), wait("10259", "kube-scheduler", 20)}},
		{"other addresses", addressed, op.List{manager, wait("10259", "kube-scheduler", 5)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, waitReconfiguredComponents(tt.env)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
