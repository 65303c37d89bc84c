//go:build e2e && long

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// requireConfined checks the process of a service: its user, that it has no capabilities
// of root and cannot get any, and that it cannot write to the system.
func (u *user) requireConfined(t *testing.T, machine, unit, account string) {
	t.Helper()
	word := func(argv ...string) string { return strings.TrimSpace(u.mustExec(t, machine, argv...)) }
	pid, id := word("systemctl", "show", "--property=MainPID", "--value", unit), word("id", "-u", account)
	none := strings.Repeat("0", 16)
	want := map[string]string{
		"Uid": strings.Join([]string{id, id, id, id}, " "), "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2",
	}
	for line := range strings.Lines(word("cat", "/proc/"+pid+"/status")) {
		name, value, _ := strings.Cut(line, ":")
		if wanted, ok := want[name]; ok && strings.Join(strings.Fields(value), " ") != wanted {
			t.Errorf("%s on %s has %s, want %s", unit, machine, strings.TrimSpace(line), wanted)
		}
	}
	for line := range strings.Lines(word("cat", "/proc/"+pid+"/mountinfo")) {
		if f := strings.Fields(line); f[4] == "/" && !strings.HasPrefix(f[5], "ro") {
			t.Errorf("%s on %s can write to the system: %s", unit, machine, line)
		}
	}
}

// updaterHeld tries what the holder of the updater's token might.
func (b *balanced) updaterHeld(t *testing.T) {
	slice := func(name, service string) string {
		return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [], metadata: {name: " + name +
			", namespace: kube-system, labels: {kubernetes.io/service-name: " + service + "}}}\n"
	}
	lease := "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kube-scheduler-2, namespace: kube-system}}\n"
	file := filepath.Join(b.home, "stolen.yaml")
	for _, tc := range []struct{ verb, reason, text string }{
		{"create", "a slice of the cluster's DNS", slice("stolen", "kube-dns")},
		{"create", "a slice by another name", slice("stolen", "apiserver")},
		{"create", "a Lease of others", lease},
		{"replace", "its own slice becomes one of the cluster's DNS", slice("apiserver-ipv4", "kube-dns")},
	} {
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := b.runSlipway(t, "kubectl", b.name, "--", "--as=system:serviceaccount:kube-system:apiserver-updater", tc.verb, "-f", file)
		if r.code == 0 || !strings.Contains(r.stderr, "the apiserver-updater") {
			t.Errorf("%s: %d, %s", tc.reason, r.code, textTail(r.stdout+r.stderr))
		}
	}
	b.mustKubectl(t, b.name, "-n", "kube-system", "delete", "endpointslice", "apiserver-ipv4")
	b.mustKubectl(t, b.name, "-n", "kube-system", "wait", "--for=create", "--timeout=60s", "endpointslice/apiserver-ipv4")
}
