package live

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec"
)

// clusterConfiguration is kubeadm's, of v1beta3 and v1beta4, with the settings that a
// cluster file can express, or must report.
type clusterConfiguration struct {
	ClusterName          string `json:"clusterName"`
	KubernetesVersion    string `json:"kubernetesVersion"`
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
	Networking           struct {
		DNSDomain     string `json:"dnsDomain"`
		PodSubnet     string `json:"podSubnet"`
		ServiceSubnet string `json:"serviceSubnet"`
	} `json:"networking"`
	APIServer struct {
		component
		CertSANs []string `json:"certSANs"`
	} `json:"apiServer"`
	ControllerManager component `json:"controllerManager"`
	Scheduler         component `json:"scheduler"`
	Etcd              struct {
		Local *struct {
			DataDir   string    `json:"dataDir"`
			ExtraArgs arguments `json:"extraArgs"`
		} `json:"local"`
		External *struct {
			Endpoints []string `json:"endpoints"`
		} `json:"external"`
	} `json:"etcd"`
	Validity   *metav1.Duration `json:"certificateValidityPeriod"`
	CAValidity *metav1.Duration `json:"caCertificateValidityPeriod"`
}

type component struct {
	ExtraArgs    arguments `json:"extraArgs"`
	ExtraVolumes []any     `json:"extraVolumes"`
	ExtraEnvs    []any     `json:"extraEnvs"`
}

// arguments are a mapping in v1beta3, and in v1beta4 a list, which can have a name twice;
// the last one is used.
type arguments map[string]string

// UnmarshalJSON reads both forms.
func (a *arguments) UnmarshalJSON(data []byte) error {
	*a = arguments{}
	var list []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	if err := json.Unmarshal(data, &list); err == nil {
		for _, item := range list {
			(*a)[item.Name] = item.Value
		}
		return nil
	}
	return json.Unmarshal(data, (*map[string]string)(a))
}

const kubernetesPath = "spec.kubernetes"

func (d *describer) describeKubernetes() {
	k, c := &d.out.Spec.Kubernetes, d.conf
	k.Version = c.KubernetesVersion
	if c.Networking.DNSDomain != spec.DefaultDNSDomain {
		k.DNSDomain = c.Networking.DNSDomain
	}
	k.APIServer.CertSANs = d.certSANs()
	parts := []struct {
		name string
		component
		args *map[string]string
	}{
		{"apiServer", c.APIServer.component, &k.APIServer.ExtraArgs},
		{"controllerManager", c.ControllerManager, &k.ControllerManager.ExtraArgs},
		{"scheduler", c.Scheduler, &k.Scheduler.ExtraArgs},
	}
	gates := ""
	if g := parts[0].ExtraArgs[featureGates]; g != "" && g == parts[1].ExtraArgs[featureGates] && g == parts[2].ExtraArgs[featureGates] {
		gates, k.FeatureGates = g, parseGates(g)
	}
	for _, p := range parts {
		*p.args = withoutDefaults(p.ExtraArgs, map[string]string{featureGates: gates})
		if len(p.ExtraVolumes) > 0 {
			d.noteDifference(kubernetesPath+"."+p.name, "files of the host are mounted into the "+p.name+", and a cluster file cannot express that",
				"check the arguments: an argument that names such a file does not work without the mount")
		}
		if len(p.ExtraEnvs) > 0 {
			d.noteDifference(kubernetesPath+"."+p.name,
				"environment variables are set for the "+p.name+", and a cluster file cannot express that", "")
		}
	}
	k.Certificates.Validity = parseDuration(c.Validity, metav1.Duration{Duration: spec.DefaultValidity})
	k.Certificates.CAValidity = parseDuration(c.CAValidity, metav1.Duration{Duration: spec.DefaultCAValidity})
	d.describeProxy()
}

const featureGates = "feature-gates"

// parseGates reads "A=true,B=false".
func parseGates(text string) map[string]bool {
	out := map[string]bool{}
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return nil
		}
		out[name] = on
	}
	return out
}

// certSANs returns the names that Slipway would not add anyway.
func (d *describer) certSANs() []string {
	host, _ := splitEndpoint(d.conf.ControlPlaneEndpoint)
	const service = "kubernetes.default.svc"
	usual := []string{host, "localhost", localhost, "kubernetes", "kubernetes.default", service, service + "." + d.conf.Networking.DNSDomain}
	for _, h := range d.out.Spec.Hosts {
		if spec.HasRole(h, v1alpha1.RoleControlPlane) {
			usual = append(usual, h.Address, h.Name)
		}
	}
	if d.record != nil {
		for _, h := range d.record.Spec.Hosts {
			usual = append(usual, h.Address, h.InternalAddress)
		}
		usual = append(usual, d.record.Spec.ControlPlaneEndpoint.Address)
	}
	var out []string
	for _, name := range d.conf.APIServer.CertSANs {
		if !slices.Contains(usual, name) {
			out = append(out, name)
		}
	}
	return out
}

func (d *describer) describeProxy() {
	const path = kubernetesPath + ".proxyMode"
	if d.s.Proxy == nil {
		d.out.Spec.Kubernetes.ProxyMode = "none"
		return
	}
	var conf struct {
		Mode string `json:"mode"`
	}
	if err := yaml.Unmarshal(d.s.Proxy, &conf); err != nil {
		d.noteDifference(path, "the kube-proxy configuration cannot be read: "+err.Error(), "")
		return
	}
	if conf.Mode == "" {
		conf.Mode = "iptables" // the default of kube-proxy
	}
	d.out.Spec.Kubernetes.ProxyMode = conf.Mode
}

// kubeletUsual has the settings that kubeadm writes for every kubelet.
var kubeletUsual = map[string]string{
	"apiVersion": `"kubelet.config.k8s.io/v1beta1"`, "kind": `"KubeletConfiguration"`, "cgroupDriver": `"systemd"`,
	"healthzBindAddress": `"127.0.0.1"`, "healthzPort": "10248", "rotateCertificates": "true",
	"staticPodPath":  `"/etc/kubernetes/manifests"`,
	"authentication": `{"anonymous":{"enabled":false},"webhook":{"enabled":true},"x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"}}`,
	"authorization":  `{"mode":"Webhook"}`,
}

// kubeletHosts lists fields that concern a host, or that kubeadm sets from other parts of
// its configuration.
var kubeletHosts = []string{"clusterDNS", "clusterDomain", "resolvConf", "containerRuntimeEndpoint", "imageServiceEndpoint"}

// describeKubelet converts the common settings of all nodes, except settings that kubeadm
// always writes.
func (d *describer) describeKubelet() {
	var conf map[string]any
	if err := yaml.Unmarshal(d.s.Kubelet, &conf); err != nil {
		d.noteDifference(kubernetesPath+".kubelet", "the kubelet configuration cannot be read: "+err.Error(), "")
		return
	}
	pruneEmpty(conf)
	for key, value := range conf {
		text, err := json.Marshal(value)
		if err == nil && string(text) == kubeletUsual[key] || slices.Contains(kubeletHosts, key) {
			delete(conf, key)
		}
	}
	if len(conf) > 0 {
		d.out.Spec.Kubernetes.Kubelet.Config = conf
	}
	if d.record == nil {
		d.comments.Add(kubernetesPath,
			"Kubelet settings on hosts, from flags or separate files, are not stored in the cluster and are not included.")
	}
}

// pruneEmpty removes empty values: kubeadm writes empty fields of all kinds.
func pruneEmpty(object map[string]any) {
	for key, value := range object {
		if inner, ok := value.(map[string]any); ok {
			pruneEmpty(inner)
			if len(inner) == 0 {
				delete(object, key)
			}
			continue
		}
		switch text := fmt.Sprint(value); {
		case value == nil, text == "", text == "0", text == "0s", text == "[]":
			delete(object, key)
		}
	}
}

func (d *describer) describeEtcd() {
	const path = "spec.etcd"
	e := d.conf.Etcd
	if e.External != nil {
		if d.record == nil {
			d.noteDifference(path,
				"kubeadm did not create this etcd: its endpoints are "+strings.Join(e.External.Endpoints, ", ")+"; the file has type stacked", "")
		}
		return
	}
	if e.Local == nil {
		return
	}
	d.out.Spec.Etcd.ExtraArgs = withoutDefaults(e.Local.ExtraArgs, nil)
	if dir := e.Local.DataDir; dir != "" && dir != "/var/lib/etcd" {
		d.noteDifference(path, "etcd stores its data in "+dir+", but Slipway uses /var/lib/etcd", "")
	}
}

// plugins maps the names of DaemonSets to network plugins.
var plugins = map[string]string{
	"calico-node": "calico", "canal": "canal", "cilium": "cilium", "kube-ovn-cni": "kube-ovn", "weave-net": "weave",
	"antrea-agent": "antrea", "kube-router": "kube-router", "hybridnet-daemon": "hybridnet", "ovnkube-node": "ovn-kubernetes",
}

func (d *describer) describeNetwork() {
	n, c := &d.out.Spec.Network, d.conf.Networking
	const path = "spec.network"
	n.PodCIDR, n.ServiceCIDR = splitList(c.PodSubnet), splitList(c.ServiceSubnet)
	if len(n.PodCIDR) == 0 {
		d.noteDifference(path, "kubeadm has no pod range: write the range that the network plugin uses", "")
	}
	n.Plugin = "none"
	if d.s.Flannel != nil {
		d.describeFlannel(path)
		return
	}
	var seen []string
	for _, name := range d.s.DaemonSets {
		_, base, _ := strings.Cut(name, "/")
		if plugin := plugins[base]; plugin != "" && !slices.Contains(seen, plugin) {
			seen = append(seen, plugin)
		}
	}
	switch len(seen) {
	case 0:
		d.noteDifference(path+".plugin", "no known network plugin was found", "keep plugin none, and install the network plugin yourself")
	default:
		d.noteDifference(path+".plugin", "the network plugin is "+strings.Join(seen, " and ")+", which a cluster file cannot express yet",
			"keep plugin none, and install the network plugin yourself")
	}
}

func (d *describer) describeFlannel(path string) {
	n := &d.out.Spec.Network
	var conf struct {
		Backend struct {
			Type string `json:"Type"`
			MTU  int    `json:"MTU"`
			// Direct routing exists only with VXLAN.
			DirectRouting bool `json:"DirectRouting"`
		} `json:"Backend"`
	}
	if err := json.Unmarshal(d.s.Flannel, &conf); err != nil {
		d.noteDifference(path+".plugin", "the flannel configuration cannot be read: "+err.Error(), "")
		return
	}
	b := conf.Backend
	if b.Type != "vxlan" && b.Type != "host-gw" {
		d.noteDifference(path+".plugin", "the network plugin is flannel with the backend "+b.Type+", which a cluster file cannot express",
			"keep plugin none, and install the network plugin yourself")
		return
	}
	n.Plugin, n.Flannel.Backend, n.Flannel.MTU = "flannel", b.Type, b.MTU
	if b.DirectRouting {
		d.noteDifference(path+".flannel", "flannel uses direct routing between hosts of one network, and a cluster file cannot express that", "")
	}
}

func splitList(text string) []string {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
