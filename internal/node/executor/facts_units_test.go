//go:build linux

package executor

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// TestFacts_TreatsDiskWithLostAndFoundAsEmpty checks that a directory with only
// lost+found, as on a new disk, counts as empty.
func TestFacts_TreatsDiskWithLostAndFoundAsEmpty(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, dir := range []string{"var/lib/etcd/lost+found", "var/lib/kubelet", "srv/containerd"} {
		if err := os.MkdirAll(h.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write("srv/containerd/file", "x\n")
	if err := os.Symlink(h.path("srv/containerd"), h.path("var/lib/containerd")); err != nil {
		t.Fatal(err)
	}
	h.write("var/lib/docker/.hidden", "")
	f := askFacts(t, h, op.Facts{Contents: []string{"/var/lib/etcd", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/docker", "/nosuch"}})
	if diff := cmp.Diff([]string{"/var/lib/containerd", "/var/lib/docker"}, f.Filled); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFacts_ReportsDropInsThatSetCommand checks that drop-ins that set the command of a
// unit are listed, also if the unit is not installed, unless another drop-in with the
// same name hides them.
func TestFacts_ReportsDropInsThatSetCommand(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\nEnvironment=A=b\nExecStart=\nExecStart=/usr/bin/kubelet\n")
	h.write("etc/systemd/system/kubelet.service.d/proxy.conf", "[Service]\nEnvironment=HTTPS_PROXY=x\n")
	h.write("etc/systemd/system/containerd.service.d/override.conf", "[Service]\n#ExecStart=/x\nMemoryMax=1G\n")
	h.write("lib/systemd/system/containerd.service.d/override.conf", "[Service]\nExecStart=\n")
	h.write("lib/systemd/system/docker.service.d/a.conf", "[Service]\n ExecStart = /x\n")
	h.write("lib/systemd/system/containerd.service", "[Service]\n")
	w := h.see()
	w.Units["containerd.service"] = &fakeUnit{Active: true}
	h.world(w)
	want := []op.UnitFacts{
		{Name: "kubelet.service", Commands: []string{"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"}},
		{Name: "containerd.service", Running: true},
		{Name: "docker.service", Commands: []string{"/lib/systemd/system/docker.service.d/a.conf"}},
	}
	got := askFacts(t, h, op.Facts{Units: []string{"kubelet.service", "containerd.service", "docker.service", "etcd.service"}}).Units
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func askFacts(t *testing.T, h *testHost, ask op.Facts) (f op.HostFacts) {
	t.Helper()
	r := h.check(ask)[0]
	if err := json.Unmarshal(r.Output, &f); err != nil {
		t.Fatal(err, r.Error)
	}
	return f
}
