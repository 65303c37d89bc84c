//go:build e2e && long

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLongManagedUpgrade upgrades a cluster whose etcd is a service on three machines, up
// to its last hook, which fails. It rolls the upgrade back, including etcd, and upgrades
// again, under a client that writes all the time.
func TestLongManagedUpgrade(t *testing.T) {
	t.Setenv("KUBERNETES", "v1.36.4")
	b := newBalanced(t, "e2e-mupgrade", 1, 3)
	cp, w, e := b.controlPlanes[0], b.workers[0], b.workers[1:]
	for host, roles := range map[string][]any{cp: {"control-plane", "etcd"}, e[0]: {"etcd"}, e[1]: {"worker", "etcd"}} {
		b.hosts[host].(map[string]any)["roles"] = roles
	}
	b.setEndpoint(t, "haproxy")
	b.setHosts(t, []string{cp}, []string{w, e[0], e[1]})
	hook := filepath.Join(b.home, "last.sh")
	ends := func(code string) {
		t.Helper()
		if err := os.WriteFile(hook, []byte("#!/bin/sh\nexit "+code+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ends("1")
	editSpec(t, b.file, func(spec map[string]any) {
		childMap(spec, "etcd")["type"] = "managed"
		spec["hooks"] = []any{map[string]any{"name": "last", "phase": "postUpgrade", "roles": []string{"control-plane"}, "script": "last.sh"}}
	})
	b.prepareBundles(t, "v1.36.4", "v1.37.1")
	b.createCluster(t, b.file)
	is := func(kubernetes, etcd string) {
		t.Helper()
		t.Setenv("KUBERNETES", kubernetes) // what nodes compares with
		b.user.waitForNodes(t, b.name, cp, w, e[1])
		b.wellMembers(t, cp, []string{cp, e[0], e[1]})
		b.hasEtcd(t, etcd, 3)
		editSpec(t, b.file, func(spec map[string]any) { childMap(spec, "kubernetes")["version"] = kubernetes })
		b.requireEmptyPlan(t, b.file)
	}
	is("v1.36.4", "3.6.8")
	writes := b.startWriter(t, "managed")
	r := b.runWithin(t, 10*time.Minute, nil, "upgrade", b.name, "--to", "v1.37.1", "--yes")
	if r.code != 1 || !strings.Contains(r.stderr, "last") {
		t.Fatalf("with a hook that fails it ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	b.hasEtcd(t, "3.7.0", 3)
	r = b.runWithin(t, 10*time.Minute, nil, "rollback", b.name, "--yes")
	if r.code != 0 {
		t.Fatalf("the way back ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	t.Logf("figure: back from the last hook in %.0f s", r.took.Seconds())
	is("v1.36.4", "3.6.8")
	ends("0")
	r = b.runWithin(t, 10*time.Minute, nil, "upgrade", b.name, "--to", "v1.37.1", "--yes")
	if r.code != 0 {
		t.Fatalf("the upgrade ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	n, gap := writes.stopWriter(t)
	t.Logf("figure: from v1.36.4 to v1.37.1 in %.0f s: %d writes acknowledged and none lost, %.1f s without one, which "+
		"is what the only control plane takes",
		r.took.Seconds(), n, gap.Seconds())
	is("v1.37.1", "3.7.0")
	b.deleteCluster(t)
}
