package lifecycletest

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/node/op"
)

// proxyCounters returns the counters of kube-proxy on a node.
func (a *API) proxyCounters(node string) (c op.ProxyCounters) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if !a.ProxyBehind[node] {
		c.Received = float64(a.sliceChanges)
	}
	return c
}

// configureProxy simulates kubeadm's phase of kube-proxy. Its pods restart only if there were none,
// or if their DaemonSet has the annotation for a restart. RunsProxy reports whether they
// run in a mode.
func (a *API) configureProxy(settings string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if a.proxyNext = settings; a.Objects[ProxyPath] == nil || a.restartsProxy() {
		a.proxy = settings
	}
}

// RunsProxy reports whether the pods of kube-proxy run in a mode.
func (a *API) RunsProxy(mode string) bool {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if a.restartsProxy() {
		a.proxy = a.proxyNext
	}
	return strings.Contains(a.proxy, "\nmode: "+mode+"\n")
}

// restartsProxy reports whether the DaemonSet of kube-proxy has the annotation that restarts
// its pods.
func (a *API) restartsProxy() bool {
	_, noted, _ := unstructured.NestedString(a.Objects[ProxyPath], "spec", "template", "metadata", "annotations", "slipway.dev/restarted-for")
	return noted
}

// DNSPath is the path of the Deployment of CoreDNS.
const DNSPath = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"

func (a *API) installDNS() {
	if !a.HasObject(DNSPath) {
		a.installAddon("dns")
		a.PutObject(DNSPath, MergePatch(a.Objects[DNSPath], object{"status": readyDeployment()}))
	}
}

// readyDeployment returns the status of a Deployment whose pods are all ready.
func readyDeployment() object {
	return object{"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}
}

// ProxyPath is the path of the DaemonSet of kube-proxy.
const ProxyPath = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"

// addonManifests returns the manifests of kubeadm for an add-on.
func addonManifests(what string) string {
	if strings.HasSuffix(what, "proxy") {
		return "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: kube-proxy, namespace: kube-system}\nspec: {image: proxy}\n---\n" +
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube-proxy, namespace: kube-system}\ndata: {config.conf: settings}\n"
	}
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: coredns, namespace: kube-system}\n" +
		"spec: {replicas: 2, selector: {matchLabels: {k8s-app: kube-dns}}, image: dns}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\ndata: {Corefile: not ours}\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: kube-dns, namespace: kube-system, resourceVersion: \"0\"}\n" +
		"spec: {clusterIP: 10.96.0.10}\n"
}

// installAddon simulates kubeadm's add-on phases.
func (a *API) installAddon(what string) {
	objs, err := kube.DecodeObjects([]byte(addonManifests(what)))
	if err != nil {
		a.T.Fatal(err)
	}
	plural := map[string]string{
		"Deployment": "apis/apps/v1/namespaces/kube-system/deployments",
		"DaemonSet":  "apis/apps/v1/namespaces/kube-system/daemonsets",
		"ConfigMap":  "api/v1/namespaces/kube-system/configmaps",
		"Service":    "api/v1/namespaces/kube-system/services",
	}
	for _, o := range objs {
		if o.GetName() != "coredns" || o.GetKind() != "ConfigMap" {
			o.SetResourceVersion("")
			a.PutObject("/"+plural[o.GetKind()]+"/"+o.GetName(), CopyObject(o.Object))
		}
	}
}
