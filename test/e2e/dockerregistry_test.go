//go:build e2e && long

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongDockerRegistry uses Docker as the container runtime, with a registry of the
// cluster and a registry of the site, both with a login and a CA. Nodes pull from both
// without further configuration. A wrong password is reported. A changed password restarts
// kubelets and no container. After a delete, no files of it are left.
func TestLongDockerRegistry(t *testing.T) {
	u := newUser(t)
	const cluster = "e2e-dockerreg"
	file := u.createMachines(t, cluster, 3)
	nodes, machine := []string{cluster + "-1", cluster + "-2"}, cluster+"-3"
	u.bundledFor(t, "docker", testedVersion())
	word := func(text string) {
		if err := os.WriteFile(filepath.Join(u.home, "word"), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var site, address string
	editSpec(t, file, func(spec map[string]any) {
		hosts := spec["hosts"].([]any)
		site = serveRegistry(t, hosts[0].(map[string]any)["address"].(string), u.home)
		h := hosts[2].(map[string]any)
		h["roles"], address = []any{"registry"}, h["address"].(string)
		childMap(spec, "containerRuntime")["type"] = "docker"
		spec["registry"] = map[string]any{"auths": []any{map[string]any{
			"registry": site, "username": pullUser, "passwordFrom": map[string]any{"file": "word"}, "caFile": "ca.crt",
		}}}
	})
	before := map[string]snapshot{}
	for _, m := range append(nodes, machine) {
		before[m] = u.takeSnapshot(t, m)
	}
	word(pullWord)

	r := u.createCluster(t, file)
	t.Logf("figure: created with its registry in %.0f s", r.took.Seconds())
	u.waitForEmptyPlan(t, file)
	u.runBy(t, cluster, "docker", len(nodes))
	own := u.ownRegistry(t, cluster, address+":5000")
	own.copyImage(t, u.echoTag(t), own.host+"/team/app:v1")
	u.requirePulled(t, cluster, "own", own.host+"/team/app:v1", nodes[1])
	login := u.mustExec(t, nodes[0], "cat", "/var/lib/kubelet/config.json") // as `docker login` writes it
	if err := os.WriteFile(filepath.Join(u.home, "login.json"), []byte(login), 0o600); err != nil {
		t.Fatal(err)
	}
	u.mustRun(t, "bundle", "push", testedVersion(), site+"/slipway/bundle:v1", "--credentials", "login.json", "--ca", "ca.crt")
	image := site + "/slipway/bundle@" + u.echoDigest(t)
	u.requirePulled(t, cluster, "theirs", image, nodes[0])
	pulse := withoutKubelets(u.recordPulse(t, cluster, nodes))

	u.mistakesPassword(t, cluster, file, image, nodes[1], "unauthorized", word)
	stillBeats(t, "changing a password", pulse, withoutKubelets(withoutPod(u.recordPulse(t, cluster, nodes), "again")))

	editSpec(t, file, func(spec map[string]any) { delete(spec, "registry") })
	u.mustRun(t, "apply", "-f", file, "--yes")
	u.requireEmptyPlan(t, file)
	if got := u.mustExec(t, nodes[1], "cat", "/var/lib/kubelet/config.json"); !strings.Contains(got, own.host) || strings.Contains(got, site) {
		t.Errorf("with the cluster's own registry alone the kubelet has %s", got)
	}
	u.requirePulled(t, cluster, "last", own.host+"/team/app:v1", nodes[0])

	u.mustExit(t, 0, "delete", "cluster", cluster, "--yes", "--allow-removal")
	for m, was := range before {
		requireSame(t, m+" before and after", "touched", was, u.takeSnapshot(t, m))
	}
	u.noWords(t)
}

// withoutKubelets returns the containers of a pulse and the processes that run them.
func withoutKubelets(pulse map[string]string) map[string]string {
	out := containersOf(pulse)
	for key := range out {
		if strings.HasSuffix(key, " kubelet") {
			delete(out, key)
		}
	}
	return out
}
