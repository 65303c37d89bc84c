//go:build e2e && long

package e2e

import (
	"strings"
	"testing"
)

// TestLongProxyMode changes the mode of kube-proxy in a running cluster, and changes it
// back. No rule of a previous mode is left on nodes, and Services work.
func TestLongProxyMode(t *testing.T) {
	b := newBalanced(t, "e2e-proxy", 1, 1)
	b.createCluster(t, b.file)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	// The cluster is deleted in iptables mode. kube-proxy leaves the empty tables of that
	// mode when it changes to nftables, and nothing shows that they belong to the cluster.
	for _, to := range []string{"iptables", "nftables", "iptables"} {
		_, r := b.applyChange(t, 0, func(spec map[string]any) { childMap(spec, "kubernetes")["proxyMode"] = to })
		t.Logf("figure: in mode %s on two nodes in %.0f s", to, r.took.Seconds())
		b.requireProxyMode(t, to)
		b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
		b.requireEmptyPlan(t, b.file)
	}
	b.deleteCluster(t)
}

// requireProxyMode wants rules of a mode on every node, and none of another.
func (b *balanced) requireProxyMode(t *testing.T, mode string) {
	t.Helper()
	pods := decodeJSON[podList](t, b.mustKubectl(t, b.name, "get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-proxy", "-o", "json"))
	if len(pods.Items) != len(b.nodesOf()) {
		t.Errorf("%d pods of kube-proxy on %d nodes", len(pods.Items), len(b.nodesOf()))
	}
	for _, pod := range pods.Items {
		on := func(argv ...string) string {
			return b.mustKubectl(t, b.name, append([]string{"exec", "-n", "kube-system", pod.Metadata.Name, "--"}, argv...)...)
		}
		for of, there := range map[string]bool{
			"iptables": strings.Contains(on("iptables-save", "-t", "nat"), "-A KUBE-SVC-"),
			"nftables": strings.Contains(on("nft", "list", "tables"), "ip kube-proxy"),
		} {
			if there != (of == mode) {
				t.Errorf("%s is in mode %s, and rules of %s are there: %t", pod.Metadata.Name, mode, of, there)
			}
		}
	}
}
