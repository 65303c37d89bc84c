//go:build linux

package executor

import (
	"net"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/facts"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// inNetwork runs a function in a separate network namespace, which its programs also use.
// The thread is not used again.
func inNetwork(t *testing.T, f func()) {
	t.Helper()
	requireroot.Need(t, "a separate network namespace")
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_FS); err != nil {
			done <- err
			return
		}
		defer close(done)
		f()
	}()
	if err := <-done; err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
}

// sh runs a program and returns its output.
func sh(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// TestReset_RemovesOnlyNetworkObjectsOfKubernetes checks that links, addresses and packet
// filter rules of other software are kept.
func TestReset_RemovesOnlyNetworkObjectsOfKubernetes(t *testing.T) {
	t.Parallel()
	inNetwork(t, func() {
		h := newHost(t)
		for _, rule := range []string{
			"add table ip kube-proxy", "add chain ip kube-proxy services", "add rule ip kube-proxy services accept",
			"add table ip6 kube-proxy", "add table ip mine", "add chain ip mine KUBE-LIKE",
		} {
			sh(t, append([]string{"nft"}, strings.Fields(rule)...)...)
		}
		for _, rule := range []string{
			"-t nat -N KUBE-SERVICES", "-t nat -N KUBE-SVC-1", "-t nat -A KUBE-SERVICES -j KUBE-SVC-1", "-t nat -A KUBE-SVC-1 -j RETURN",
			"-t nat -A PREROUTING -m comment --comment ours -j KUBE-SERVICES", "-t mangle -N KUBE-KUBELET-CANARY",
			"-t filter -N FLANNEL-FWD", "-t filter -A FORWARD -j FLANNEL-FWD", "-t filter -A FORWARD -s 10.9.0.0/16 -j ACCEPT",
		} {
			sh(t, append([]string{"iptables-nft"}, strings.Fields(rule)...)...)
		}
		sh(t, "ip", "link", "add", "cni0", "type", "bridge")
		sh(t, "ip", "link", "add", "veth1234", "type", "veth", "peer", "name", "veth5678")
		sh(t, "ip", "link", "add", "mine0", "type", "bridge")
		sh(t, "ip", "addr", "add", "192.0.2.9/32", "dev", "mine0")
		sh(t, "ip", "addr", "add", "192.0.2.10/24", "dev", "mine0")
		sh(t, "ip", "addr", "add", "2001:db8::9/128", "dev", "lo")
		reset := op.Reset{
			Addresses: []string{"192.0.2.9", "2001:db8::9"}, Links: []string{"cni0", "veth*", "flannel.1"},
			NFTables: []string{"ip kube-proxy", "ip6 kube-proxy"}, IPTables: []string{"KUBE-", "FLANNEL-"},
		}

		if r := h.check(reset)[0]; r.Status != op.Changed {
			t.Errorf("check: %s %v, want changed", r.Status, r.Error)
		}
		h.apply(reset)
		if r := h.check(reset)[0]; r.Status != op.Unchanged {
			t.Errorf("check after reset: %s (%s), want unchanged", r.Status, r.Summary)
		}
		if diff := cmp.Diff([]string{"lo", "mine0"}, linkNames(t)); diff != "" {
			t.Errorf("links:\n%s", diff)
		}
		if got := sh(t, "ip", "-o", "addr"); strings.Contains(got, "192.0.2.9/") || strings.Contains(got, "2001:db8::9") ||
			!strings.Contains(got, "192.0.2.10/24") {
			t.Errorf("addresses:\n%s", got)
		}
		rules := sh(t, "nft", "list", "ruleset")
		if strings.Contains(rules, "kube-proxy") || strings.Contains(rules, "KUBE-S") || strings.Contains(rules, "FLANNEL") {
			t.Errorf("owned rules are left:\n%s", rules)
		}
		if strings.Contains(rules, "table ip nat") || strings.Contains(rules, "table ip mangle") {
			t.Errorf("tables that only we used are left:\n%s", rules)
		}
		if !strings.Contains(rules, "10.9.0.0/16") || !strings.Contains(rules, "KUBE-LIKE") {
			t.Errorf("another's rule is gone:\n%s", rules)
		}
	})
}

func TestReset_RemovesThousandsOfChains(t *testing.T) {
	t.Parallel()
	inNetwork(t, func() {
		h := newHost(t)
		var script strings.Builder
		script.WriteString("add table ip nat\nadd chain ip nat PREROUTING { type nat hook prerouting priority dstnat; }\n")
		for i := range 3000 {
			name := "KUBE-SVC-" + strings.Repeat("x", 10) + string(rune('A'+i%26)) + strings.Repeat("y", i/26%12) + string(rune('a'+i/312))
			script.WriteString("add chain ip nat " + name + "\nadd rule ip nat PREROUTING jump " + name + "\n")
		}
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v\n%s", err, out)
		}
		// A rule of other software keeps the table, so that each chain is removed
		// separately.
		sh(t, "nft", "add", "rule", "ip", "nat", "PREROUTING", "ip", "saddr", "10.9.0.1", "accept")
		h.apply(op.Reset{IPTables: []string{"KUBE-"}})
		if rules := sh(t, "nft", "list", "ruleset"); strings.Contains(rules, "KUBE-") || !strings.Contains(rules, "10.9.0.1") {
			t.Errorf("left:\n%.2000s", rules)
		}
	})
}

// TestDroppingChains_ListsChainsThatDropByDefault checks that chains that drop by default are listed, regardless of
// their creator.
func TestDroppingChains_ListsChainsThatDropByDefault(t *testing.T) {
	t.Parallel()
	inNetwork(t, func() {
		sh(t, "nft",
			"add table inet mine; add chain inet mine in { type filter hook input priority 0; policy drop; }; add "+
				"chain inet mine out { type filter hook output priority 0; policy accept; }; add chain inet mine plain")
		sh(t, "iptables-nft", "-P", "FORWARD", "DROP")
		want := []string{"nftables (chain FORWARD of table ip filter)", "nftables (chain in of table inet mine)"}
		if diff := cmp.Diff(want, facts.DroppingChains()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func linkNames(t *testing.T) []string {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Error(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return names
}
