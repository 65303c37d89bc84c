//go:build linux

package executor

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// TestFacts_IgnoresEmptyFiles checks that an empty file that a crash has left does not count as present.
func TestFacts_IgnoresEmptyFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("etc/kubernetes/kubelet.conf", "")
	h.write("etc/kubernetes/pki/ca.crt", "")
	h.write("etc/kubernetes/manifests/etcd.yaml", "kind: Pod\n")
	paths := []string{
		"/etc/kubernetes/kubelet.conf", "/etc/kubernetes/pki/*.crt", "/etc/kubernetes/manifests/*.yaml",
		"/etc/hostname", "/nosuch",
	}
	r := h.check(op.Facts{Paths: paths})[0]
	var f op.HostFacts
	if err := json.Unmarshal(r.Output, &f); err != nil {
		t.Fatal(err, r.Error)
	}
	if diff := cmp.Diff(paths[2:4], f.Present); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFacts_ReportsResolverFileForKubelet checks that the file is the resolver configuration that kubeadm sets for
// the kubelet.
func TestFacts_ReportsResolverFileForKubelet(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ask := func() *op.Resolver {
		t.Helper()
		var f op.HostFacts
		if err := json.Unmarshal(h.check(op.Facts{})[0].Output, &f); err != nil {
			t.Fatal(err)
		}
		return f.Resolver
	}
	if diff := cmp.Diff(&op.Resolver{Path: "/etc/resolv.conf", Missing: true}, ask()); diff != "" {
		t.Errorf("none:\n%s", diff)
	}
	h.write("etc/resolv.conf", "# by hand\nsearch example.com\nnameserver 127.0.0.53\nnameserver\n")
	if diff := cmp.Diff(&op.Resolver{Path: "/etc/resolv.conf", Servers: []string{"127.0.0.53"}}, ask()); diff != "" {
		t.Errorf("plain:\n%s", diff)
	}
	h.write("lib/systemd/system/systemd-resolved.service", "[Service]\n")
	h.write("run/systemd/resolve/resolv.conf", "nameserver 192.0.2.53\n")
	w := h.see()
	w.Units["systemd-resolved.service"] = &fakeUnit{Active: true}
	h.world(w)
	if diff := cmp.Diff(&op.Resolver{Path: "/run/systemd/resolve/resolv.conf", Servers: []string{"192.0.2.53"}}, ask()); diff != "" {
		t.Errorf("systemd-resolved:\n%s", diff)
	}
}
