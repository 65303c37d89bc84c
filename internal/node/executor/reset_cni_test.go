//go:build linux

package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/op"
)

// The IDs of containers: ourPod is in our network, and theirNet is our pod in a network
// of other software. foreign1 belongs to another user of CNI.
var (
	ourPod   = strings.Repeat("a1", 32)
	theirNet = strings.Repeat("c3", 32)
	foreign1 = strings.Repeat("b2", 32)
)

func cniReset() op.Reset {
	return op.Reset{
		CNI: "/var/lib/cni", Sandboxes: "/var/lib/containerd/sandboxes", Networks: []string{"cbr0"},
		IPTables: []string{"KUBE-"},
	}
}

// attached returns a host on which CNI has attached all three containers.
func attached(t *testing.T) *testHost {
	t.Helper()
	h := newHost(t)
	note := func(network, id, ns string) {
		h.write("var/lib/cni/results/"+network+"-"+id+"-eth0",
			fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":"eth0","networkName":%q,"netns":"/var/run/netns/%s"}`, id, network, ns))
		h.write("run/netns/"+ns, "")
	}
	h.apply(op.Dir{Path: "/var/lib/cni"})
	h.write("var/lib/containerd/sandboxes/"+theirNet+"/hosts", "") // the other has not come so far
	note("a-loopback", ourPod, "cni-1")
	note("cbr0", ourPod, "cni-1")
	note("custom", theirNet, "cni-2")
	for network, addresses := range map[string]map[string]string{
		"cbr0":   {"10.244.0.2": ourPod, "10.244.0.3": "begun-and-unknown"},
		"custom": {"10.9.0.2": theirNet},
	} {
		for address, id := range addresses {
			h.write("var/lib/cni/networks/"+network+"/"+address, id+"\r\neth0")
		}
		h.write("var/lib/cni/networks/"+network+"/lock", "")
		h.write("var/lib/cni/networks/"+network+"/last_reserved_ip.0", "10.0.0.1")
	}
	return h
}

// TestReset_RemovesCNIAttachmentsDespiteCrash checks that a reset removes everything of CNI that no
// other software uses, at whatever step it is interrupted.
func TestReset_RemovesCNIAttachmentsDespiteCrash(t *testing.T) {
	t.Parallel()
	for at := 1; ; at += everyStep {
		h := attached(t)
		more := h.crash(at, cniReset())
		h.apply(cniReset())
		if r := h.check(cniReset())[0]; r.Status != op.Unchanged {
			t.Errorf("killed after step %d, again: %s", at, r.Summary)
		}
		h.apply(op.RestoreHost{})
		for _, p := range []string{"run/netns/cni-1", "run/netns/cni-2", "var/lib/cni"} {
			if host.Exists(h.path(p)) {
				t.Errorf("killed after step %d: /%s is left", at, p)
			}
		}
		if !more {
			return
		}
		if at > crashPoints {
			t.Fatal("there is no end to the steps")
		}
	}
}

// TestReset_KeepsCNIAttachmentsOfOtherSoftware checks that another user of CNI, installed before or
// after Slipway, keeps its attachments.
func TestReset_KeepsCNIAttachmentsOfOtherSoftware(t *testing.T) {
	t.Parallel()
	h := attached(t)
	theirs := map[string]string{
		"var/lib/cni/results/podman-" + foreign1 + "-eth0": `{"kind":"cniCacheV1","containerId":"` + foreign1 +
			`","networkName":"podman","netns":"/var/run/netns/cni-9"}`,
		"var/lib/cni/results/strange":           "not ours to read",
		"var/lib/cni/networks/podman/10.88.0.2": foreign1 + "\r\neth0",
		"var/lib/cni/networks/podman/lock":      "",
		"var/lib/cni/networks/custom/10.9.0.3":  foreign1 + "\r\neth0",
		"run/netns/cni-9":                       "",
		"run/netns/cni-8":                       "",
	}
	for name, content := range theirs {
		h.write(name, content)
	}
	want := "remove network namespaces cni-1, cni-2, 9 CNI records of pods to remove"
	if diff := cmp.Diff(want, h.check(cniReset())[0].Summary); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.apply(cniReset())
	for name, content := range theirs {
		if got := h.read(name); got != content {
			t.Errorf("/%s is %q", name, got)
		}
	}
	left, err := filepath.Glob(h.path("var/lib/cni/*/*"))
	if err != nil || len(left) != 4 {
		t.Errorf("left: %v, %v", left, err)
	}
	h.apply(op.RestoreHost{})
	if _, err := os.Stat(h.path("var/lib/cni/networks/podman/10.88.0.2")); err != nil {
		t.Errorf("a restore has taken it: %v", err)
	}
}

func TestIsContainerdShim_AcceptsOnlyShimsOfKubernetes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{
		"shim -namespace k8s.io -id x -address /run/containerd/containerd.sock":     true,
		"shim -namespace moby -id x -address /run/containerd/containerd.sock":       false,
		"shim -namespace k8s.io -id x -address /run/k3s/containerd/containerd.sock": false,
		"shim -namespace": false,
	} {
		if got := process.IsContainerdShim(strings.Fields(args)); got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
}

// portMaps adds the rules that the CNI plugins portmap and bridge make for a container,
// with both programs.
func portMaps(t *testing.T, network, id, short string) {
	t.Helper()
	comment := fmt.Sprintf(`dnat name: "%s" id: "%s"`, network, id)
	masq := fmt.Sprintf(`name: "%s" id: "%s"`, network, id)
	for _, rule := range [][]string{
		{"-N", "CNI-DN-" + short},
		{"-A", "CNI-HOSTPORT-DNAT", "-p", "tcp", "-m", "comment", "--comment", comment, "-j", "CNI-DN-" + short},
		{"-A", "CNI-DN-" + short, "-p", "tcp", "-j", "CNI-HOSTPORT-SETMARK"},
		{"-N", "CNI-" + short},
		{"-A", "CNI-" + short, "-m", "comment", "--comment", masq, "-j", "ACCEPT"},
		{"-A", "POSTROUTING", "-s", "10.1.1.1/32", "-m", "comment", "--comment", masq, "-j", "CNI-" + short},
	} {
		sh(t, append([]string{"iptables-nft", "-t", "nat"}, rule...)...)
	}
	sh(t, "nft", "add rule ip cni_hostport hostports tcp dport 80 accept comment \""+id+"\"")
	sh(t, "nft", "add rule inet cni_plugins_masquerade masq_checks accept comment \""+short+", net: "+network+", if: eth0, id: "+id[:20]+"\"")
}

// sharedRules adds the rules that the plugins make once for all containers.
func sharedRules(t *testing.T) {
	t.Helper()
	for _, rule := range []string{
		"-N CNI-HOSTPORT-DNAT", "-N CNI-HOSTPORT-SETMARK", "-N CNI-HOSTPORT-MASQ",
		"-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT", "-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
		"-A POSTROUTING -m comment --comment portfwd -j CNI-HOSTPORT-MASQ",
		"-A CNI-HOSTPORT-SETMARK -m comment --comment mark -j MARK --set-xmark 0x2000/0x2000",
	} {
		sh(t, append([]string{"iptables-nft", "-t", "nat"}, strings.Fields(rule)...)...)
	}
	for _, rule := range []string{
		"add table ip cni_hostport", "add chain ip cni_hostport hostports", "add chain ip cni_hostport hostports_all",
		"add rule ip cni_hostport hostports_all jump hostports",
		"add table inet cni_plugins_masquerade", "add chain inet cni_plugins_masquerade masq_checks",
	} {
		sh(t, "nft", rule)
	}
}

func rules(t *testing.T) string { return sh(t, "nft", "list", "ruleset") }

// TestReset_RemovesOnlyOwnRulesFromCNIChains checks the chains and tables that CNI
// plugins share: rules of other containers are kept, and the chains are removed if there
// are none.
func TestReset_RemovesOnlyOwnRulesFromCNIChains(t *testing.T) {
	t.Parallel()
	reset := func(h *testHost) {
		t.Helper()
		h.apply(cniReset())
		if r := h.check(cniReset())[0]; r.Status != op.Unchanged {
			t.Errorf("again: %s", r.Summary)
		}
	}
	var without string
	inNetwork(t, func() {
		sharedRules(t)
		portMaps(t, "podman", foreign1, "bbbb")
		without = rules(t)
	})
	inNetwork(t, func() {
		h := attached(t)
		sharedRules(t)
		portMaps(t, "podman", foreign1, "bbbb")
		portMaps(t, "cbr0", ourPod, "aaaa")
		portMaps(t, "custom", theirNet, "cccc")
		reset(h)
		if diff := cmp.Diff(without, rules(t)); diff != "" {
			t.Errorf("not as if our containers had never been (-want +got):\n%s", diff)
		}
	})
	inNetwork(t, func() {
		h := attached(t)
		sharedRules(t)
		portMaps(t, "cbr0", ourPod, "aaaa")
		reset(h)
		if got := rules(t); got != "" {
			t.Errorf("left:\n%s", got)
		}
	})
}
