//go:build linux

package executor

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/pods"
	"slipway.dev/slipway/internal/node/op"
)

// TestPodHosts_UpdatesOnlyPodsInHostNetwork checks that the hosts files of pods in the host network are updated in
// place, and keep their additional entries. Files of other pods do not change.
func TestPodHosts_UpdatesOnlyPodsInHostNetwork(t *testing.T) {
	t.Parallel()
	const (
		before = "127.0.0.1 localhost\n192.0.2.1 api.demo.internal\n"
		after  = "127.0.0.1 localhost\n127.0.0.1 api.demo.internal\n"
		own    = "\n# Entries added by HostAliases.\n10.0.0.9\tfoo\n"
	)
	h := newHost(t)
	h.write("etc/hosts", after)
	files := map[string]struct{ was, want, reason string }{
		"stale":   {pods.PodHostsBegin + before, pods.PodHostsBegin + after, "a pod that was there before"},
		"aliases": {pods.PodHostsBegin + before + own, pods.PodHostsBegin + after + own, "its additional entries are kept"},
		"longer": {
			pods.PodHostsBegin + before + "192.0.2.77 gone\n", pods.PodHostsBegin + after,
			"nothing of the old text stays behind a shorter one",
		},
		"fresh": {pods.PodHostsBegin + after + "# as it was\n", pods.PodHostsBegin + after + "# as it was\n", "it knows the name as it is"},
		"network": {
			"# Kubernetes-managed hosts file.\n" + before, "# Kubernetes-managed hosts file.\n" + before,
			"a pod with a separate network",
		},
	}
	inode := map[string]os.FileInfo{}
	at := func(name string) string { return h.path("var/lib/kubelet/pods/" + name + "/etc-hosts") }
	for name, f := range files {
		h.write("var/lib/kubelet/pods/"+name+"/etc-hosts", f.was)
		info, err := os.Stat(at(name))
		if err != nil {
			t.Fatal(err)
		}
		inode[name] = info
	}
	o := op.PodHosts{Name: "api.demo.internal", Address: "127.0.0.1"}
	if got := h.check(o)[0]; got.Status != op.Changed || got.Summary != "write the hosts files of 3 pods" {
		t.Errorf("check: %+v", got)
	}
	h.apply(o)
	for name, f := range files {
		got, err := os.ReadFile(at(name))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(f.want, string(got)); d != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, f.reason, d)
		}
		if info, err := os.Stat(at(name)); err != nil || !os.SameFile(inode[name], info) {
			t.Errorf("%s is another file, which its pod does not see (%v)", name, err)
		}
	}
	if got := h.check(o)[0]; got.Status != op.Unchanged {
		t.Errorf("check afterwards: %+v", got)
	}
	other := op.PodHosts{Name: "api.demo.internal", Address: "192.0.2.9"}
	if got := h.r.Apply(t.Context(), h.batch(other), nil)[0]; got.Error == nil || got.Error.Reason != "HostsFile" {
		t.Errorf("an address that the hosts file does not have: %+v", got)
	}
}

// TestPodHosts_IgnoresHostsFileThatIsTooLarge checks a hosts file of any length, because a container can
// write to it.
func TestPodHosts_IgnoresHostsFileThatIsTooLarge(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("etc/hosts", "127.0.0.1 api.demo.internal\n")
	const file = "var/lib/kubelet/pods/endless/etc-hosts"
	h.write(file, pods.PodHostsBegin+"192.0.2.1 api.demo.internal\n")
	if err := os.Truncate(h.path(file), 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := h.check(op.PodHosts{Name: "api.demo.internal", Address: "127.0.0.1"})[0]; got.Status != op.Unchanged {
		t.Errorf("check: %+v", got)
	}
}
