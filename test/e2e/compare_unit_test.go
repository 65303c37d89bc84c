package e2e

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompareSnapshots_ReportsOnlyForbiddenDifferences(t *testing.T) {
	file := func(meta, content, about string) entry { return entry{meta, content, about} }
	before := snapshot{
		"file /etc/a": file("0644", "1", ""), "file /etc/gone": file("0644", "1", ""),
		"file /etc/pki/ca.crt": file("0644", "1", "certificate of a"),
	}
	tests := []struct {
		name, reason string
		after        snapshot
		allow        string
		want         []string
	}{
		{"equal", "nothing differs", before, "", nil},
		{"all three", "what goes, comes and changes is told", snapshot{
			"file /etc/a": file("0600", "1", ""), "file /etc/new": file("0644", "1", ""),
			"file /etc/pki/ca.crt": file("0644", "1", "certificate of a"),
		}, "", []string{"~ file /etc/a: 0644 1 → 0600 1", "- file /etc/gone 0644 1", "+ file /etc/new 0644 1"}},
		{
			"content", "but not its mode", changeEntry(before, "file /etc/a", file("0600", "2", "")), "content /etc/a",
			[]string{"~ file /etc/a: 0644 1 → 0600 2"},
		},
		{"content only", "its mode is the same", changeEntry(before, "file /etc/a", file("0644", "2", "")), "content /etc/a", nil},
		{
			"content is there", "a file that may differ may not be missing",
			snapshot{"file /etc/gone": before["file /etc/gone"], "file /etc/pki/ca.crt": before["file /etc/pki/ca.crt"]},
			"content /etc/a",
			[]string{"- file /etc/a 0644 1"},
		},
		{
			"all", "it may be missing",
			snapshot{"file /etc/gone": before["file /etc/gone"], "file /etc/pki/ca.crt": before["file /etc/pki/ca.crt"]},
			"all /etc/*", nil,
		},
		{
			"bytes", "they mean the same", changeEntry(before, "file /etc/pki/ca.crt", file("0644", "2", "certificate of a")),
			"bytes /etc/pki/**", nil,
		},
		{
			"meaning", "they mean something else", changeEntry(before, "file /etc/pki/ca.crt", file("0644", "2", "certificate of b")),
			"bytes /etc/pki/**",
			[]string{
				"~ file /etc/pki/ca.crt: 0644 certificate of a → 0644 certificate of b",
			},
		},
		{
			"no meaning", "what cannot be read must be the same", changeEntry(before, "file /etc/a", file("0644", "2", "")),
			"bytes /etc/*",
			[]string{"~ file /etc/a: 0644 1 → 0644 2"},
		},
		{
			"nor now", "what can no longer be read neither", changeEntry(before, "file /etc/pki/ca.crt", file("0644", "2", "")),
			"bytes /etc/pki/*",
			[]string{
				"~ file /etc/pki/ca.crt: 0644 certificate of a → 0644 2",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var list []volatile
			if how, pattern, ok := strings.Cut(tt.allow, " "); ok {
				list = append(list, volatile{how: allowance(how), pattern: compileGlob("file " + pattern)})
			}
			if diff := cmp.Diff(tt.want, compareSnapshots(before, tt.after, list)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestCompileGlob_MatchesStarAndDoubleStar(t *testing.T) {
	for _, tt := range []struct {
		pattern, key string
		want         bool
	}{
		{"file /etc/*", "file /etc/hosts", true},
		{"file /etc/*", "file /etc/a/b", false},
		{"file /etc/**", "file /etc/a/b c", true},
		{"file /etc/a.b", "file /etc/axb", false},
		{"routes **10.244.**", "routes 10.244.1.0/24 dev cni0", true},
		{"running a@*.service **", "running a@0.service loaded active", true},
		{"running a@*.service **", "running a.service loaded active", false},
	} {
		if got := compileGlob(tt.pattern).MatchString(tt.key); got != tt.want {
			t.Errorf("%q matches %q: %t", tt.pattern, tt.key, got)
		}
	}
}

func TestOfKubernetes_MatchesOnlyKubernetesEntries(t *testing.T) {
	for _, tt := range []struct {
		key, reason string
		want        bool
	}{
		{"file /usr/local/bin/kubelet", "a program", true},
		{"file /etc/systemd/system/kubelet.service", "its unit's file", true},
		{"file /etc/systemd/system/multi-user.target.wants/kubelet.service", "which is enabled", true},
		{"units kubelet.service enabled enabled", "and known to systemd", true},
		{"running kubelet.service loaded active running kubelet", "and running", true},
		{"units containerd.service disabled enabled", "the container runtime's", true},
		{"process kube-apiserver", "a component", true},
		{"file /etc/kubernetes", "where kubeadm puts its files", true},
		{"file /etc/kubernetes/pki/ca.crt", "only the directory is looked for", false},
		{"file /opt/cni", "the plugins' directory", true},
		{"file /etc/cni", "their settings'", true},
		{"link cni0", "the bridge", true},
		{"link flannel.1", "the overlay", true},
		{"file /etc/hosts", "a file of the system's", false},
		{"units systemd-journald.service static -", "a unit of the system's", false},
		{"file /usr/bin/runcon", "a program that is called much like one", false},
	} {
		if got := ofKubernetes.MatchString(tt.key); got != tt.want {
			t.Errorf("%q: %t, want %t: %s", tt.key, got, tt.want, tt.reason)
		}
	}
}

// TestVolatileList_AllowsOnlyExpectedDifferences checks the form of the list, and that it is not wider than it claims: the
// most important files are compared.
func TestVolatileList_AllowsOnlyExpectedDifferences(t *testing.T) {
	for scope, keys := range map[string]map[string]allowance{
		"touched": {
			"file /etc/hosts": allowNone, "file /etc/systemd/system/kubelet.service": allowNone, "file /run/containerd/x": allowNone,
			"file /var/log/pods/x": allowNone, "mount /run/containerd/x": allowNone, "process containerd-shim": allowNone,
			"running containerd.service loaded active running containerd": allowNone, "routes 10.244.1.0/24 dev cni0": allowNone,
			"link cni0": allowNone, "filter table 2 kube-proxy": allowNone, "sysctl net/ipv4/ip_forward": allowNone,
			"file /run/systemd/units/x": allowAll,
		},
		"cluster": {
			"file /etc/kubernetes/pki/ca.crt": allowBytes, "file /etc/kubernetes/admin.conf": allowBytes,
			"file /etc/kubernetes/manifests/etcd.yaml":          allowNone,
			"file /var/lib/kubelet/pki/kubelet-client-TIME.pem": allowBytes, "file /var/lib/kubelet/config.yaml": allowNone,
			"file /var/lib/slipway/ledger/log": allowBytes, "file /var/lib/slipway/exec/kubeadm-init-certs.json": allowNone,
			"file /var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/x": allowNone,
			"file /etc/kubernetes/bootstrap-kubelet.conf":                              allowBytes, // it may not be there
			"file /var/lib/slipway/run/x":                                              allowNone,
			"filter table 2 kube-proxy":                                                allowNone,
			"running kubelet.service loaded active running k":                          allowNone,
		},
	} {
		list := readVolatile(t, scope)
		for key, want := range keys {
			if got := findAllowance(key, list); got != want {
				t.Errorf("%s: %q may differ in %q, want %q", scope, key, got, want)
			}
		}
	}
}

func changeEntry(s snapshot, key string, to entry) snapshot {
	out := maps.Clone(s)
	out[key] = to
	return out
}
