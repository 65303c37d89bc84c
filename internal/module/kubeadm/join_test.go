package kubeadm

import (
	"slices"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// TestWaiting: a token is made if any worker's phases may run, and only then.
func TestWaiting(t *testing.T) {
	for name, tt := range map[string]struct {
		why     string
		role    v1alpha1.Role
		present []string
		want    bool
	}{
		"fresh":   {"nothing of a node is there", v1alpha1.RoleWorker, nil, true},
		"cut off": {"kubeadm has not ended, or its end was not seen: it is run or asked again", v1alpha1.RoleWorker, []string{bootstrapConf, kubeletConf, clientCert}, true},
		"early":   {"cut off before the kubelet had credentials", v1alpha1.RoleWorker, []string{bootstrapConf}, true},
		"no cert": {"cut off when the kubelet had asked and had no answer: its kubeconfig is there by then", v1alpha1.RoleWorker, []string{kubeletConf}, true},
		"joined":  {"what it came with is removed last", v1alpha1.RoleWorker, []string{kubeletConf, clientCert}, false},
		"first":   {"a control plane is no plain worker", v1alpha1.RoleControlPlane, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &engine.Host{Host: v1alpha1.Host{Name: "h", Roles: []v1alpha1.Role{tt.role}}, Facts: &op.HostFacts{Present: tt.present}}
			if got := waiting(module.Env{}, []*engine.Host{h}); got != tt.want {
				t.Errorf("waiting is %v: %s", got, tt.why)
			}
		})
	}
}

// TestBegun: kubeadm's preflight wants a host on which nothing was begun.
func TestBegun(t *testing.T) {
	for _, path := range []string{"", bootstrapConf, kubeletConf, "/etc/kubernetes/pki/*.crt"} {
		h := &engine.Host{Facts: &op.HostFacts{Ledger: true, Present: []string{"/sbin/modprobe", path}}}
		if got := begun(h); got != (path != "") {
			t.Errorf("with %q begun is %v", path, got)
		}
		h.Facts.Ledger = false
		if begun(h) {
			t.Errorf("%q of another installer counts as ours", path)
		}
	}
}

// TestAskedFor: what these go by is among what every host is asked.
func TestAskedFor(t *testing.T) {
	asked := append(facts.Wanted(&v1alpha1.Cluster{}).Paths, MarkPaths()...)
	for _, path := range []string{clientCert, kubeletConf, bootstrapConf, "/etc/kubernetes/pki/*.crt"} {
		if !slices.Contains(asked, path) {
			t.Errorf("no host is asked for %s", path)
		}
	}
}
