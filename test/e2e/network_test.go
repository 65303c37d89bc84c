//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// bringsNetwork looks at a cluster with network.plugin none: all machines are
// nodes, none is ready, and nothing of a network is there. It is whole as it
// is, and waits for the user, who brings one.
func (u *user) bringsNetwork(t *testing.T, cluster, file string, machines []string) {
	nodes := decodeJSON[nodeList](t, u.mustKubectl(t, cluster, "get", "nodes", "-o", "json")).Items
	if len(nodes) != len(machines) {
		t.Errorf("%d nodes of %d machines", len(nodes), len(machines))
	}
	for _, n := range nodes {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && (c.Status == "True" || !strings.Contains(c.Message, "cni plugin not initialized")) {
				t.Errorf("%s without a network: ready is %s: %s", n.Metadata.Name, c.Status, c.Message)
			}
		}
	}
	if got := u.mustKubectl(t, cluster, "get", "daemonsets", "-A", "-o", "name"); got != "daemonset.apps/kube-proxy\n" {
		t.Errorf("daemon sets beside kube-proxy's: %q", got)
	}
	u.requireEmptyPlan(t, file)
	for _, m := range machines {
		if got := u.mustExec(t, m, "ls", "/etc/cni/net.d"); got != "" {
			t.Errorf("%s has settings of a network: %q", m, got)
		}
		pods := u.mustKubectl(t, cluster, "get", "node", m, "-o", "jsonpath={.spec.podCIDR}")
		u.mustExec(t, m, "sh", "-ec", `cat >/etc/cni/net.d/10-own.conflist <<E
{"cniVersion": "1.0.0", "name": "own", "plugins": [
  {"type": "bridge", "bridge": "own0", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "$1"}]]}}
]}
E`, "sh", pods)
	}
	u.waitForNodes(t, cluster, machines...)
	eventually(t, time.Minute, "a pod with an address", func() error {
		address := u.mustKubectl(t, cluster, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o",
			"jsonpath={.items[0].status.podIP}")
		if !strings.HasPrefix(address, "10.244.") {
			return fmt.Errorf("its address is %q", address)
		}
		return nil
	})
}
