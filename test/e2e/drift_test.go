//go:build e2e && long

package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// A handEdit is a manual change of a running cluster, with its name in the plan.
type handEdit struct {
	what  string
	on    string   // a machine; "" is kubectl
	argv  []string // a shell's script, or kubectl's arguments
	named planStep
	says  string // in the summary or the diff
}

// TestLongDrift makes manual changes on all nodes and in the API at once. The plan names
// each change, apply reverts it, and the next plan is empty. Settings that Slipway does
// not manage are kept.
func TestLongDrift(t *testing.T) {
	u := newUser(t)
	const name = "e2e-drift"
	first, w1, w2 := name+"-1", name+"-2", name+"-3"
	file := u.createMachines(t, name, 3)
	u.createCluster(t, file)
	u.waitForEmptyPlan(t, file)
	addresses := u.waitForNodes(t, name, first, w1, w2)
	u.smokeTest(t, name, addresses)

	edits := handEdits(name, first, w1, w2)
	for _, e := range edits {
		if e.on == "" {
			u.mustKubectl(t, name, e.argv...)
		} else {
			u.mustExec(t, e.on, append([]string{"sh", "-c"}, e.argv...)...)
		}
	}
	eventually(t, 3*time.Minute, "the API server to run as its manifest was changed", func() error {
		r := u.runSlipway(t, "sandbox", "exec", first, "--", "pgrep", "-a", "kube-apiserver")
		if !strings.Contains(r.stdout, "--profiling=false") {
			return errors.New(textTail(r.stdout + r.stderr))
		}
		if r := u.runSlipway(t, "kubectl", name, "--", "--request-timeout=5s", "get", "--raw=/readyz"); r.code != 0 {
			return errors.New(textTail(r.stderr))
		}
		return nil
	})

	u.requireEditsInPlan(t, file, edits)
	r := u.mustExit(t, 0, "apply", "-f", file, "--yes")
	t.Logf("figure: %d edits by hand put right in %.0f s", len(edits), r.took.Seconds())
	u.waitForEmptyPlan(t, file)
	u.requireEmptyPlan(t, file)
	u.smokeTest(t, name, u.waitForNodes(t, name, first, w1, w2))
	u.runsAgain(t, name, first, w1, w2)
	u.staysTheirs(t, name, file, w1)
}

func handEdits(name, first, w1, w2 string) []handEdit {
	const manifests = "/etc/kubernetes/manifests/"
	kube := func(what string, named planStep, says string, argv ...string) handEdit {
		return handEdit{what, "", argv, named, says}
	}
	on := func(host, what string, named planStep, says, script string) handEdit {
		named.Host = host
		return handEdit{what, host, []string{script}, named, says}
	}
	return []handEdit{
		kube("CoreDNS of another image", planStep{"kubeadm.objects", first, "object", "Deployment kube-system/coredns"},
			"-        image: example.invalid/coredns:none",
			"set", "image", "-n", "kube-system", "deployment/coredns", "coredns=example.invalid/coredns:none"),
		kube("no kube-proxy", planStep{"kubeadm.objects", first, "object", "DaemonSet kube-system/kube-proxy"},
			"create", "delete", "daemonset", "kube-proxy", "-n", "kube-system"),
		kube("what kubelets join by", planStep{"kubeadm.record", first, "exec", "kubeadm-init-upload-config"},
			"ConfigMap kube-system/kubelet-config was changed by kubectl-patch",
			"patch", "configmap", "kubelet-config", "-n", "kube-system", "--type=merge", `-p={"data":{"kubelet":"maxPods: 1\n"}}`),
		kube("no Corefile", planStep{"dns.coredns", "", "object", "ConfigMap kube-system/coredns"}, "-  Corefile: nothing",
			"patch", "configmap", "coredns", "-n", "kube-system", "--type=merge", `-p={"data":{"Corefile":"nothing"}}`),
		kube("a node's role", planStep{"nodes.settings", w1, "node", w1}, "label node-role.kubernetes.io/worker=",
			"label", "node", w1, "node-role.kubernetes.io/worker-"),
		kube("no flannel", planStep{"network.flannel", "", "object", "DaemonSet kube-flannel/kube-flannel"}, "create",
			"delete", "daemonset", "kube-flannel", "-n", "kube-flannel"),

		on(w1, "a kubelet's settings, and it runs with them",
			planStep{Task: "kubernetes.kubelet", Kind: "kept", Target: "/var/lib/kubelet/config.yaml"}, "-maxPods: 50",
			"echo 'maxPods: 50' >> /var/lib/kubelet/config.yaml; systemctl restart kubelet"),
		on(w1, "a kubelet that is not started at boot",
			planStep{Task: "kubernetes.kubelet", Kind: "unit", Target: "kubelet.service"}, "enable", "systemctl disable kubelet"),
		on(w1, "a program", planStep{Task: "kubernetes.programs", Kind: "unpack", Target: "cni-plugins in /opt/cni/bin"},
			"/opt/cni/bin/bridge is missing or has changed", "echo nothing > /opt/cni/bin/bridge"),
		on(w1, "the network's configuration",
			planStep{Task: "network.cni", Kind: "file", Target: "/etc/cni/net.d/10-flannel.conflist"}, "create",
			"rm /etc/cni/net.d/10-flannel.conflist"),
		on(w2, "containerd's settings, and it runs with them",
			planStep{Task: "runtime.containerd", Kind: "file", Target: "/etc/containerd/config.toml"}, "-# by hand",
			"echo '# by hand' >> /etc/containerd/config.toml; systemctl restart containerd"),
		on(w2, "an image that may be collected", planStep{Task: "runtime.images", Kind: "import-images", Target: "images"},
			"pin registry.k8s.io/coredns",
			"ctr -n k8s.io images label $(ctr -n k8s.io images ls -q | grep ^registry.k8s.io/coredns/ | head -n 1) io.cri-containerd.pinned="),
		on(w2, "kernel parameters", planStep{Task: "os.kernel", Kind: "sysctl", Target: "/etc/sysctl.d/90-slipway.conf"},
			"90-slipway.conf: content", "echo '# by hand' >> /etc/sysctl.d/90-slipway.conf"),
		on(w2, "the hosts file", planStep{Task: "os.hosts", Kind: "block", Target: "/etc/hosts#" + name},
			"-192.0.2.1 wrong", "sed -i '/^# BEGIN slipway "+name+"$/a 192.0.2.1 wrong' /etc/hosts"),
		on(w2, "a kubelet that is stopped", planStep{Task: "kubelet.settings", Kind: "unit", Target: "kubelet.service"},
			"start", "systemctl stop kubelet"),

		on(first, "the administrator's credentials, for all to read",
			planStep{Task: "kubernetes.private", Kind: "private", Target: "keys and credentials"},
			"/etc/kubernetes/admin.conf: mode 0644 → 0600", "chmod 644 /etc/kubernetes/admin.conf"),
		on(first, "no scheduler", planStep{Task: "kubeadm.init.control-plane", Kind: "kept", Target: manifests + "kube-scheduler.yaml"},
			"it is missing", "rm "+manifests+"kube-scheduler.yaml"),
		on(first, "a member of etcd", planStep{Task: "kubeadm.member", Kind: "kept", Target: manifests + "etcd.yaml"},
			"-    - --max-request-bytes=1000000", "sed -i 's/^    - etcd$/&\\n    - --max-request-bytes=1000000/' "+manifests+"etcd.yaml"),
		on(first, "the API server", planStep{Task: "kubeadm.init.control-plane", Kind: "kept", Target: manifests + "kube-apiserver.yaml"},
			"-    - --profiling=false", "sed -i 's/^    - kube-apiserver$/&\\n    - --profiling=false/' "+manifests+"kube-apiserver.yaml"),
	}
}

// requireEditsInPlan wants every edit in the plan for the file as it is.
func (u *user) requireEditsInPlan(t *testing.T, file string, edits []handEdit) {
	t.Helper()
	said := map[planStep]string{}
	for _, s := range decodeJSON[planned](t, u.mustExit(t, 4, "plan", "-f", file, "--exit-code", "-o", "json").stdout).Steps {
		for _, c := range s.Changes {
			said[planStep{s.Task, s.Host, c.Kind, c.Target}] += c.Summary + "\n" + c.Diff
		}
	}
	for _, e := range edits {
		if text, ok := said[e.named]; !ok || !strings.Contains(text, e.says) {
			t.Errorf("%s: the plan has %v: %t; it says %q, want %q in it", e.what, e.named, ok, text, e.says)
		}
	}
}

// runsAgain wants what was started with a changed file to run with the right one.
func (u *user) runsAgain(t *testing.T, name, first, w1, w2 string) {
	t.Helper()
	for _, program := range []string{"kube-apiserver", "etcd"} {
		if got := u.mustExec(t, first, "pgrep", "-a", program); strings.Contains(got, "--profiling") ||
			strings.Contains(got, "--max-request-bytes") {
			t.Errorf("%s still runs as it was changed: %s", program, got)
		}
	}
	u.mustExec(t, first, "pgrep", "kube-scheduler")
	if got := u.mustKubectl(t, name, "get", "--raw", "/api/v1/nodes/"+w1+"/proxy/configz"); strings.Contains(got, `"maxPods":50`) {
		t.Error("a kubelet still runs with the settings that it was given by hand")
	}
	u.mustExec(t, w1, "systemctl", "is-enabled", "kubelet")
	u.mustExec(t, w2, "systemctl", "is-active", "kubelet")
	if got := u.mustKubectl(t, name, "get", "configmap", "kubelet-config", "-n", "kube-system", "-o",
		"jsonpath={.data.kubelet}"); strings.Contains(got, "maxPods") || !strings.Contains(got, "cgroupDriver: systemd") {
		t.Errorf("kubelets join by %q", got)
	}
}

// staysTheirs changes what is for others to say: nothing is found.
func (u *user) staysTheirs(t *testing.T, name, file, worker string) {
	t.Helper()
	u.mustKubectl(t, name, "scale", "deployment", "coredns", "-n", "kube-system", "--replicas=3")
	u.mustKubectl(t, name, "rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout=120s")
	u.mustKubectl(t, name, "label", "node", worker, "example.com/theirs=yes")
	u.mustKubectl(t, name, "annotate", "daemonset", "kube-proxy", "-n", "kube-system", "example.com/theirs=yes")
	u.mustExec(t, worker, "sh", "-c",
		"mkdir -p /etc/systemd/system/containerd.service.d; printf '[Service]\\nEnvironment=THEIRS=yes\\n' > "+
			"/etc/systemd/system/containerd.service.d/theirs.conf; systemctl daemon-reload")
	u.requireEmptyPlan(t, file)
	u.mustExit(t, 0, "apply", "-f", file, "--yes")
	if got := strings.Fields(u.mustKubectl(t, name, "get", "deployment", "coredns", "-n", "kube-system", "-o",
		"jsonpath={.spec.replicas}")); !slices.Equal(got, []string{"3"}) {
		t.Errorf("there are %v of CoreDNS, want 3", got)
	}
}
