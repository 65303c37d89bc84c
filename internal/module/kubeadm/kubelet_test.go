package kubeadm

import (
	"testing"

	"slipway.dev/slipway/internal/golden"
	"slipway.dev/slipway/internal/node/op"
)

// TestKubeletUnit pins the unit of each kind of node: it waits for the disks with
// its data and, on a control plane, with etcd's, and is tried again until kubeadm
// has been there.
func TestKubeletUnit(t *testing.T) {
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
