package lifecycle

import (
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
)

// drifted returns a cluster before any manual change.
func drifted(t *testing.T, names ...string) *world {
	w := newWorld(t, names...)
	w.create(event.Succeeded)
	w.whole()
	return w
}

// named returns the changes of a plan for the unchanged file, as "task host: kind target".
func (w *world) named() (out []string) {
	w.t.Helper()
	p := w.prepared(w.service().Prepare(w.t.Context(), applying(w.Manifest()), nil))
	for _, s := range p.Plan().Steps {
		for _, c := range s.Changes {
			out = append(out, strings.TrimSpace(s.Task+" "+s.Host)+": "+string(c.Kind)+" "+c.Target)
		}
	}
	if err := p.Close(); err != nil {
		w.t.Error(err)
	}
	return out
}

// TestDrift_IsListedInPlanAndRepaired changes one thing by hand. The plan lists only that change, and apply restores
// it, so that nothing is left to do.
func TestDrift_IsListedInPlanAndRepaired(t *testing.T) {
	const kubelet, proxyMap = "/var/lib/kubelet/config.yaml", "/api/v1/namespaces/kube-system/configmaps/kube-proxy"
	restarted := func(host string) []string {
		return []string{"kubernetes.kubelet " + host + ": kept " + kubelet, "kubelet.settings " + host + ": unit kubelet.service"}
	}
	of := func(file, host string) func(*world) string {
		return func(w *world) string { return w.Hosts[host].AllState()[file] }
	}
	in := func(path string, fields ...string) func(*world) string {
		return func(w *world) string {
			w.API.Mu.Lock()
			defer w.API.Mu.Unlock()
			var at any = w.API.Objects[path]
			for _, f := range fields {
				o, _ := at.(object)
				at = o[f]
			}
			text, _ := at.(string)
			return text
		}
	}
	patch := func(path string, o object) func(*world) {
		return func(w *world) {
			w.API.PutObject(path, lifecycletest.MergePatch(lifecycletest.CopyObject(w.API.Objects[path]), o))
		}
	}
	edit := func(host, path, content string) func(*world) {
		return func(w *world) { w.Hosts[host].EditFile(path, content) }
	}
	for _, tc := range []struct {
		name  string
		edit  func(*world)
		is    func(*world) string // the value that is as before afterwards
		named []string
	}{
		{
			"the first API server's manifest", edit("cp1", module.APIServerManifest, "edited"),
			of(module.APIServerManifest, "cp1"),
			[]string{"kubeadm.init.control-plane cp1: kept " + module.APIServerManifest},
		},
		{
			"another API server's manifest", edit("cp2", module.APIServerManifest, "edited"),
			of(module.APIServerManifest, "cp2"),
			[]string{"join.settings cp2: kept " + module.APIServerManifest},
		},
		{
			"a manifest that is gone", edit("cp1", "/etc/kubernetes/manifests/kube-scheduler.yaml", ""),
			of("/etc/kubernetes/manifests/kube-scheduler.yaml", "cp1"),
			[]string{"kubeadm.init.control-plane cp1: kept /etc/kubernetes/manifests/kube-scheduler.yaml"},
		},
		{
			"the first member's manifest", edit("cp1", lifecycletest.EtcdManifest, "edited"), of(lifecycletest.EtcdManifest, "cp1"),
			[]string{"kubeadm.member cp1: kept " + lifecycletest.EtcdManifest},
		},
		{
			"another member's manifest, gone", edit("cp3", lifecycletest.EtcdManifest, ""), of(lifecycletest.EtcdManifest, "cp3"),
			[]string{"kubeadm.member cp3: kept " + lifecycletest.EtcdManifest},
		},
		{"a worker's kubelet", edit("w1", kubelet, "maxPods: 1"), of(kubelet, "w1"), restarted("w1")},
		{"a control plane's kubelet, gone", edit("cp1", kubelet, ""), of(kubelet, "cp1"), restarted("cp1")},
		{
			"containerd's settings", edit("w1", "/etc/containerd/config.toml", "edited"), of("/etc/containerd/config.toml", "w1"),
			[]string{"runtime.containerd w1: file /etc/containerd/config.toml", "runtime.containerd w1: unit containerd.service"},
		},
		{
			"the administrator's credentials", edit("cp2", "/etc/kubernetes/admin.conf", ""), nil,
			[]string{"join.kubeconfig cp2: exec kubeadm-again-kubeconfig-admin"},
		},
		{
			"what control planes share", edit("cp2", "/etc/kubernetes/pki/sa.key", ""),
			of("/etc/kubernetes/pki/sa.key", "cp2"),
			[]string{"join.certificates cp2: file /etc/kubernetes/pki/sa.key"},
		},
		{
			"a certificate", edit("cp2", "/etc/kubernetes/pki/apiserver-kubelet-client.crt", ""), nil,
			[]string{"join.certs cp2: exec kubeadm-again-certs"},
		},
		{
			"keys that others may read", func(w *world) { w.Hosts["w1"].OpenKeys["/etc/kubernetes/kubelet.conf"] = true },
			nil,
			[]string{"kubernetes.private w1: private keys and credentials"},
		},
		{
			"the image of CoreDNS", patch(lifecycletest.DNSPath, object{"spec": object{"image": "theirs"}}),
			in(lifecycletest.DNSPath, "spec", "image"),
			[]string{"kubeadm.objects cp1: object Deployment kube-system/coredns"},
		},
		{
			"no CoreDNS", patch(lifecycletest.DNSPath, object{"spec": object{"replicas": 0}}), nil,
			[]string{"kubeadm.objects cp1: object Deployment kube-system/coredns", "nodes.dns: wait CoreDNS"},
		},
		{
			"more of CoreDNS",
			patch(lifecycletest.DNSPath,
				object{"spec": object{"replicas": 5}, "status": object{"replicas": 5, "updatedReplicas": 5, "availableReplicas": 5}}), nil, nil,
		},
		{
			"kube-proxy, gone", func(w *world) { w.API.RemoveObject(lifecycletest.ProxyPath) }, in(lifecycletest.ProxyPath, "spec", "image"),
			[]string{"kubeadm.objects cp1: object DaemonSet kube-system/kube-proxy"},
		},
		{
			"the settings of kube-proxy", patch(proxyMap, object{"data": object{"config.conf": "theirs"}}),
			in(proxyMap, "data", "config.conf"),
			[]string{"kubeadm.objects cp1: object ConfigMap kube-system/kube-proxy"},
		},
		{
			"the settings of CoreDNS",
			patch("/api/v1/namespaces/kube-system/configmaps/coredns", object{"data": object{"Corefile": "theirs"}}),
			in("/api/v1/namespaces/kube-system/configmaps/coredns", "data", "Corefile"),
			[]string{"dns.coredns: object ConfigMap kube-system/coredns"},
		},
		{
			"what kubelets join by", func(w *world) { w.API.WriteKubeletConfig("kubectl-edit", "maxPods: 1\n") },
			in(lifecycletest.KubeletConfigPath, "data", "kubelet"),
			[]string{"kubeadm.records cp1: object ConfigMap kube-system/kubelet-config", "kubeadm.record cp1: exec kubeadm-init-upload-config"},
		},
		{
			"the same words in another hand", func(w *world) { w.API.WriteKubeletConfig("kubectl-edit", "cgroupDriver: systemd\n") },
			in(lifecycletest.KubeletConfigPath, "data", "kubelet"),
			[]string{"kubeadm.records cp1: object ConfigMap kube-system/kubelet-config", "kubeadm.record cp1: exec kubeadm-init-upload-config"},
		},
		{
			"a record that is gone", func(w *world) { w.API.RemoveObject(lifecycletest.KubeletConfigPath) },
			in(lifecycletest.KubeletConfigPath, "data", "kubelet"),
			[]string{"kubeadm.records cp1: object ConfigMap kube-system/kubelet-config", "kubeadm.record cp1: exec kubeadm-init-upload-config"},
		},
		{
			"a node's role",
			patch("/api/v1/nodes/cp2", object{"metadata": object{"labels": object{"node-role.kubernetes.io/control-plane": nil}}}),
			nil,
			[]string{"nodes.settings cp2: node cp2"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := drifted(t, "cp1", "cp2", "cp3", "w1")
			was := ""
			if tc.is != nil {
				was = tc.is(w)
			}
			tc.edit(w)
			got := w.named()
			slices.Sort(got)
			slices.Sort(tc.named)
			if !slices.Equal(got, tc.named) {
				t.Errorf("the plan names %q, want %q", got, tc.named)
			}
			w.do(applying(w.Manifest()), event.Succeeded)
			w.whole()
			if tc.is != nil && (tc.is(w) != was || was == "") {
				t.Errorf("got %q, want %q", tc.is(w), was)
			}
		})
	}
}

// TestDrift_ManyChangesAtOnce changes many things at once. It also removes the API server manifests
// of all control planes.
func TestDrift_ManyChangesAtOnce(t *testing.T) {
	t.Parallel()
	w := drifted(t, "cp1", "cp2", "cp3", "w1")
	for name, m := range w.Hosts {
		if strings.HasPrefix(name, "cp") {
			m.EditFile(lifecycletest.EtcdManifest, "edited")
			m.EditFile(module.APIServerManifest, "")
		}
		m.EditFile("/var/lib/kubelet/config.yaml", "edited")
	}
	w.API.RemoveObject(lifecycletest.ProxyPath)
	w.API.RemoveObject(lifecycletest.DNSPath)
	named := strings.Join(w.named(), "\n")
	for _, want := range []string{
		"kubeadm.member cp1: kept " + lifecycletest.EtcdManifest, "kubeadm.member cp3: kept " + lifecycletest.EtcdManifest,
		"join.settings cp2: kept " + module.APIServerManifest, "kubernetes.kubelet w1: kept /var/lib/kubelet/config.yaml",
		"object DaemonSet kube-system/kube-proxy", "object Deployment kube-system/coredns",
	} {
		if !strings.Contains(named, want) {
			t.Errorf("the plan does not name %q:\n%s", want, named)
		}
	}
	w.do(applying(w.Manifest()), event.Succeeded)
	w.whole()
}

// TestDrift_BrokenAPIServerManifest breaks the API server manifest, so that the API does not answer. Changes
// in the API are found once the manifest is repaired.
func TestDrift_BrokenAPIServerManifest(t *testing.T) {
	t.Parallel()
	w := drifted(t, "cp1", "w1")
	cp1 := w.Hosts["cp1"]
	cp1.EditFile(module.APIServerManifest, "broken")
	cp1.APISilent = true
	w.API.RemoveObject(lifecycletest.ProxyPath)
	w.API.WriteKubeletConfig("kubectl-edit", "maxPods: 1\n")
	cp1.OnChange = func(what string) {
		if strings.HasSuffix(what, module.APIServerManifest) {
			cp1.Mu.Lock()
			defer cp1.Mu.Unlock()
			cp1.APISilent = false
		}
	}
	if named := w.named(); !slices.Contains(named, "kubeadm.init.control-plane cp1: kept "+module.APIServerManifest) {
		t.Errorf("the plan names %q", named)
	}
	w.do(applying(w.Manifest()), event.Succeeded)
	if cp1.OnChange = nil; !w.API.HasObject(lifecycletest.ProxyPath) {
		t.Error("kube-proxy is still missing")
	}
	w.whole()
}

// TestDrift_CredentialsOfLeaderControlPlane removes credentials from the leader control plane, where the cluster
// began. It does so with one control plane and with three.
func TestDrift_CredentialsOfLeaderControlPlane(t *testing.T) {
	for _, file := range []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/scheduler.conf", module.InitMark} {
		for _, names := range [][]string{{"cp1", "w1"}, {"cp1", "cp2", "cp3", "w1"}} {
			t.Run(file+" of "+names[len(names)-2], func(t *testing.T) {
				t.Parallel()
				w := drifted(t, names...)
				w.Hosts["cp1"].EditFile(file, "")
				if named := w.named(); len(named) == 0 {
					t.Error("the plan is empty")
				} else {
					t.Logf("%q", named)
				}
				w.do(applying(w.Manifest()), event.Succeeded)
				w.whole()
			})
		}
	}
}

// TestDrift_UnknownWithoutKeptFiles: hosts from before Slipway kept copies of files show no drift, because
// the wanted content is unknown. Nothing is restarted.
func TestDrift_UnknownWithoutKeptFiles(t *testing.T) {
	t.Parallel()
	w := drifted(t, "cp1", "w1")
	for _, m := range w.Hosts {
		clear(m.Baseline)
	}
	w.whole()
	w.Hosts["cp1"].EditFile(module.APIServerManifest, "edited")
	if got := w.named(); len(got) > 0 {
		t.Errorf("the plan names %q", got)
	}
}
