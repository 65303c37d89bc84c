package kubeadm

import (
	"slices"
	"testing"

	"slipway.dev/slipway/internal/facts"
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

// TestPreflight: kubeadm does not ask for an empty directory for etcd where nothing
// but lost+found was seen in it, and asks for it everywhere else.
func TestPreflight(t *testing.T) {
	const ignores = "--ignore-preflight-errors=DirAvailable--var-lib-etcd"
	env := environment()
	p := initPhase(env, idPreflight)
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
			if got := preflight(p, h).Argv; slices.Contains(got, ignores) != tt.want {
				t.Errorf("kubeadm is run with %q", got)
			}
		})
	}
}
