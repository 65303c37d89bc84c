//go:build e2e && long

package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const keysFile = "/etc/kubernetes/slipway/encryption.yaml"

// TestLongEncryption switches encryption on, changes the key while a control plane
// is added, and switches it off again, under a client whose objects are encrypted,
// too; etcd itself is asked each time.
func TestLongEncryption(t *testing.T) {
	b := newBalanced(t, "e2e-encrypt", 3, 1)
	b.setEndpoint(t, "haproxy")
	editSpec(t, b.file, func(spec map[string]any) { // API servers are restarted a dozen times within minutes here
		config := childMap(childMap(childMap(spec, "kubernetes"), "kubelet"), "config")
		config["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "5s"}
	})
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	b.mustKubectl(t, b.name, "create", "secret", "generic", "before", "--from-literal=is=canary-before")
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	w := b.startWriter(t, "encrypting")

	seen := map[string]bool{}
	b.applyEncryption(t, "switched on", map[string]any{"resources": []any{"secrets", "configmaps"}}, "k8s:enc:secretbox:v1:1-", seen)
	b.mustKubectl(t, b.name, "create", "secret", "generic", "between", "--from-literal=is=canary-between")
	b.drillsSecret(t)

	b.hosts[b.spare].(map[string]any)["roles"] = []any{"control-plane"}
	b.setHosts(t, append(slices.Clone(b.controlPlanes), b.spare), b.workers)
	r := b.mustExit(t, 0, "add", "nodes", "-f", b.file, "--yes")
	t.Logf("figure: a control plane added in %.0f s", r.took.Seconds())
	for _, m := range b.controlPlanes { // each by its own API server
		// raw: it keeps no file of what there is
		got := b.mustExec(t, m, "/usr/local/bin/kubectl", "--kubeconfig=/etc/kubernetes/admin.conf",
			"--server=https://127.0.0.1:6443", "get", "--raw=/api/v1/namespaces/default/secrets")
		for _, want := range []string{"canary-before", "canary-between"} {
			if !strings.Contains(got, base64.StdEncoding.EncodeToString([]byte(want))) {
				t.Errorf("%s does not read %s: %s", m, want, got)
			}
		}
	}
	b.applyHardening(t, true) // with the same apply
	b.applyEncryption(t, "another key, and hardening", map[string]any{"resources": []any{"secrets", "configmaps"}, "generation": 2},
		"k8s:enc:secretbox:v1:2-", seen)
	b.isHardened(t, true)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.applyHardening(t, false)
	b.applyEncryption(t, "switched off", nil, "", seen)
	b.isHardened(t, false)

	n, gap := w.stopWriter(t)
	t.Logf("figure: %d writes acknowledged and none lost, %d requests failed, %.1f s without a write", n, w.failures, gap.Seconds())
	if got := b.mustKubectl(t, b.name, "get", "secret", "before", "-o",
		"jsonpath={.data.is}"); got != base64.StdEncoding.EncodeToString([]byte("canary-before")) {
		t.Errorf("the Secret of before is %q", got)
	}
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.keepsNone(t, seen)
	if !t.Failed() {
		b.deleteCluster(t)
	}
}

// applyEncryption writes a setting into the file and applies it. Everything in etcd then
// begins so, and control planes have one key, or none.
func (b *balanced) applyEncryption(t *testing.T, what string, setting map[string]any, begins string, seen map[string]bool) {
	t.Helper()
	editSpec(t, b.file, func(spec map[string]any) {
		k := childMap(spec, "kubernetes")
		if delete(k, "encryption"); setting != nil {
			k["encryption"] = setting
		}
	})
	r := b.mustExit(t, 0, "apply", "-f", b.file, "--yes")
	t.Logf("figure: %s in %.0f s", what, r.took.Seconds())
	for _, resource := range []string{"secrets", "configmaps"} {
		n := 0
		for key, value := range b.storedValues(t, resource) {
			if n++; begins == "" && strings.HasPrefix(value, "k8s:enc:") || !strings.HasPrefix(value, begins) {
				t.Errorf("%s: %s begins with %q", what, key, value[:min(len(value), 30)])
			}
		}
		t.Logf("figure: %s: %d %s in etcd, all of them so", what, n, resource)
	}
	for _, m := range b.controlPlanes {
		text := b.mustExec(t, m, "sh", "-c", `stat -c %a "$1" 2>/dev/null && cat "$1"; true`, "sh", keysFile)
		if setting == nil {
			if text != "" {
				t.Errorf("%s still has keys", m)
			}
			continue
		}
		if !strings.HasPrefix(text, "600\n") || strings.Contains(text, "identity") ||
			strings.Count(text, "name: "+begins[len("k8s:enc:secretbox:v1:"):]) != 2 || strings.Count(text, "secret: ") != 2 {
			t.Errorf("%s: %s has others than the one key, or can be read by others", what, m)
		}
		for line := range strings.Lines(text) {
			if _, key, ok := strings.Cut(line, "secret: "); ok {
				seen[strings.TrimSpace(key)] = true
			}
		}
	}
	b.mustExec(t, b.workers[0], "sh", "-c", "! test -e "+keysFile)
	b.requireEmptyPlan(t, b.file)
}

func (b *balanced) applyHardening(t *testing.T, on bool) {
	t.Helper()
	editSpec(t, b.file, func(spec map[string]any) { childMap(spec, "kubernetes")["hardening"] = on })
}

// isHardened sends anonymous requests to every control plane: they can check its health
// and read only the data that the profile allows. It also checks the configuration of
// kubelets.
func (b *balanced) isHardened(t *testing.T, on bool) {
	t.Helper()
	// he trusts anybody
	stranger := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, m := range b.controlPlanes {
		for path, want := range map[string]bool{"/readyz": true, "/livez": true, "/version": !on} {
			r, err := stranger.Get("https://" + net.JoinHostPort(b.addresses[m], "6443") + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if (r.StatusCode == http.StatusOK) != want {
				t.Errorf("%s: a stranger who asks %s is to be told: %t; it says %s", m, path, want, r.Status)
			}
		}
		got := b.mustExec(t, m, "sh", "-c", "cat /etc/kubernetes/manifests/kube-*.yaml; ls /etc/kubernetes/slipway")
		if strings.Count(got, "--profiling=false") != map[bool]int{true: 3}[on] || strings.Contains(got, "authentication.yaml") != on {
			t.Errorf("%s: what runs there is not as hardening: %t wants it", m, on)
		}
	}
	for _, m := range b.nodesOf() {
		config := b.mustKubectl(t, b.name, "get", "--raw", "/api/v1/nodes/"+m+"/proxy/configz")
		if strings.Contains(config, `"tlsMinVersion":"VersionTLS12"`) != on || strings.Contains(config, `"readOnlyPort":10255`) {
			t.Errorf("the kubelet of %s goes by %s", m, config)
		}
	}
}

// storedValues are the values of a resource as etcd has them.
func (b *balanced) storedValues(t *testing.T, resource string) map[string]string {
	t.Helper()
	const pki = "/etc/kubernetes/pki/etcd/"
	text := b.mustExec(t, b.controlPlanes[0], "/usr/local/bin/etcdctl", "--endpoints=https://127.0.0.1:2379", "--cacert="+pki+"ca.crt",
		"--cert="+pki+"healthcheck-client.crt", "--key="+pki+"healthcheck-client.key", "get", "--prefix", "/registry/"+resource+"/", "-w", "json")
	var all struct {
		KVs []struct{ Key, Value []byte }
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.KVs) == 0 {
		t.Fatalf("etcd has %d %s: %v", len(all.KVs), resource, err)
	}
	out := map[string]string{}
	for _, kv := range all.KVs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}

// drillsSecret decrypts a Secret in a restore test, with the data of the backup only.
func (b *balanced) drillsSecret(t *testing.T) {
	t.Helper()
	b.mustExit(t, 0, "etcd", "snapshot", b.name)
	text := b.mustExit(t, 0, "etcd", "drill", b.name).stdout
	if !strings.Contains(text, "is good") || !strings.Contains(text, "secretbox, key 1-") {
		t.Errorf("the drill says:\n%s", text)
	}
}

// keepsNone wants no key in what the manager keeps, but for its backups.
func (b *balanced) keepsNone(t *testing.T, keys map[string]bool) {
	t.Helper()
	if len(keys) != 2 {
		t.Errorf("there were %d keys, want 2", len(keys))
	}
	err := filepath.WalkDir(filepath.Join(b.home, "slipway"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "sandboxes" { // the machines' own disks
			return filepath.SkipDir
		}
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, ".tar") {
			return err
		}
		text, err := os.ReadFile(path)
		for key := range keys {
			if strings.Contains(string(text), key) {
				t.Errorf("%s has a key in it", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range keys {
		if got := b.mustKubectl(t, b.name, "get", "configmaps", "-A", "-o", "json"); strings.Contains(got, key) {
			t.Error("the cluster's records have a key in them")
		}
	}
}
