// Package live describes a running cluster that kubeadm created, with or without Slipway,
// as a cluster file, from data in the cluster. It is pure; package lifecycle reads the
// cluster.
package live

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// idNotAsItIs: the cluster has a setting that a cluster file cannot express, or not yet.
const idNotAsItIs = "not-as-it-is"

// A State has the data of a cluster, as its API returns them.
type State struct {
	// Cluster is kubeadm's ClusterConfiguration, Kubelet and Proxy are its saved
	// configurations for nodes; Proxy is nil without kube-proxy.
	Cluster, Kubelet, Proxy []byte
	// Flannel is flannel's net-conf.json, nil without flannel.
	Flannel []byte
	// Corefile is CoreDNS's configuration.
	Corefile string
	// DaemonSets lists all of them, as "namespace/name".
	DaemonSets []string
	Nodes      []corev1.Node
	// Record is the description that Slipway saves in its clusters, nil in other
	// clusters.
	Record []byte
}

// Options has settings that a cluster does not store. The zero value works.
type Options struct {
	// Name replaces the name of the cluster, if set.
	Name string
	// User and PrivateKeyFile are for the login on the hosts.
	User, PrivateKeyFile string
	// Default and Supported are options of the validation.
	Default   string
	Supported func(version string) error
}

// A Description is a cluster as a cluster file.
type Description struct {
	Cluster *v1alpha1.Cluster
	// Text is the file, with comments where the user must act.
	Text []byte
	// Warnings lists differences between the file and the cluster.
	Warnings diag.List
}

// Describe writes the file. A setting that it cannot express is a warning and a comment;
// an error is a state that no kubeadm cluster has.
func Describe(s State, o Options) (*Description, error) {
	d := &describer{s: s, o: o, out: &v1alpha1.Cluster{}, comments: yamlfile.Comments{}}
	d.out.APIVersion, d.out.Kind = v1alpha1.APIVersion, spec.Kind
	d.comments.Add("", "Generated from a running cluster by 'slipway create config --from-cluster'.")
	if err := d.parseState(); err != nil {
		return nil, err
	}
	d.describeHosts()
	d.describeLogins()
	d.describeEndpoint()
	d.describeKubernetes()
	d.describeKubelet()
	d.describeEtcd()
	d.describeNetwork()
	d.describeDNS()
	if err := d.reportUnsupported(); err != nil {
		return nil, err
	}
	d.useRecorded()
	d.validateResult()
	text, err := spec.MarshalCommented(d.out, d.comments)
	if err != nil {
		return nil, err
	}
	return &Description{Cluster: d.out, Text: text, Warnings: d.found}, nil
}

type describer struct {
	s        State
	o        Options
	conf     clusterConfiguration
	record   *v1alpha1.Cluster
	out      *v1alpha1.Cluster
	comments yamlfile.Comments
	found    diag.List
}

func (d *describer) parseState() error {
	if err := yaml.Unmarshal(d.s.Cluster, &d.conf); err != nil {
		return fmt.Errorf("reading the kubeadm configuration: %w", err)
	}
	if len(d.s.Record) > 0 {
		d.record = &v1alpha1.Cluster{}
		if err := yaml.Unmarshal(d.s.Record, d.record); err != nil {
			return fmt.Errorf("reading the cluster description saved in the cluster: %w", err)
		}
	}
	d.out.Name = d.conf.ClusterName
	if d.o.Name != "" {
		d.out.Name = d.o.Name
	}
	return nil
}

// noteDifference reports a difference between the file and the cluster.
func (d *describer) noteDifference(path, message, hint string) {
	message, hint = makePrintable(message), makePrintable(hint)
	d.found = append(d.found, diag.Diagnostic{ID: idNotAsItIs, Severity: diag.Warning, Path: path, Message: message, Hint: hint})
	text := "TODO: " + message + "."
	if hint != "" {
		text += " " + strings.ToUpper(hint[:1]) + hint[1:] + "."
	}
	d.comments.Add(path, text)
}

const (
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	localhost         = "127.0.0.1"
)

func (d *describer) describeHosts() {
	nodes := slices.Clone(d.s.Nodes)
	slices.SortStableFunc(nodes, func(a, b corev1.Node) int { return rankNode(a) - rankNode(b) })
	runtimes := map[string]bool{}
	for _, n := range nodes {
		path := fmt.Sprintf("spec.hosts[%d]", len(d.out.Spec.Hosts))
		h := v1alpha1.Host{Name: n.Name, Labels: ownLabels(n.Labels), Taints: ownTaints(n.Spec.Taints)}
		for _, a := range n.Status.Addresses {
			switch {
			case a.Type != corev1.NodeInternalIP || h.Address != "":
			case remoteAddress(a.Address):
				h.Address = a.Address
			default:
				d.noteDifference(path, "the node has the address "+strconv.Quote(a.Address)+", which other machines cannot reach",
					"write the address of the host")
			}
		}
		if _, plane := n.Labels[controlPlaneLabel]; plane {
			h.Roles = append(h.Roles, v1alpha1.RoleControlPlane)
		}
		if len(h.Roles) == 0 || !isTainted(n) {
			h.Roles = append(h.Roles, v1alpha1.RoleWorker)
		}
		if r, _, _ := strings.Cut(n.Status.NodeInfo.ContainerRuntimeVersion, "://"); r != "containerd" && r != "" && !runtimes[r] {
			runtimes[r] = true
			d.noteDifference("spec.containerRuntime", "nodes use the container runtime "+r+"; the file has containerd", "")
		}
		if v := n.Status.NodeInfo.KubeletVersion; v != d.conf.KubernetesVersion && v != "" {
			d.noteDifference(path, "the kubelet of "+n.Name+" is "+v+", but the cluster is "+d.conf.KubernetesVersion, "")
		}
		d.out.Spec.Hosts = append(d.out.Spec.Hosts, h)
	}
	d.out.Spec.ContainerRuntime.Type = "containerd"
}

// rankNode sorts control planes first.
func rankNode(n corev1.Node) int {
	if _, plane := n.Labels[controlPlaneLabel]; plane {
		return 0
	}
	return 1
}

// isTainted reports whether ordinary pods do not run on a control plane.
func isTainted(n corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == controlPlaneLabel && t.Effect == corev1.TaintEffectNoSchedule
	})
}

// kubernetesOwn reports whether a key belongs to Kubernetes, which sets it automatically.
func kubernetesOwn(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok &&
		(prefix == "kubernetes.io" || strings.HasSuffix(prefix, ".kubernetes.io") || prefix == "k8s.io" || strings.HasSuffix(prefix, ".k8s.io"))
}

// ownLabels removes labels that Kubernetes sets; labels for the location of a machine are
// set by users.
func ownLabels(all map[string]string) map[string]string {
	var out map[string]string
	for key, value := range all {
		if kubernetesOwn(key) && key != corev1.LabelTopologyZone && key != corev1.LabelTopologyRegion {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}

func ownTaints(all []corev1.Taint) []v1alpha1.Taint {
	var out []v1alpha1.Taint
	for _, t := range all {
		if !kubernetesOwn(t.Key) {
			out = append(out, v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
		}
	}
	return out
}

// describeLogins writes settings that the API does not have.
func (d *describer) describeLogins() {
	s := &d.out.Spec.SSH
	s.User, s.PrivateKeyFile = d.o.User, d.o.PrivateKeyFile
	if s.User == "" {
		s.User = spec.DefaultSSHUser
		d.comments.Add("spec.ssh", "TODO: the cluster does not store how to log in to its hosts.")
		d.comments.Add("spec.ssh", "Set user, and privateKeyFile or passwordFrom; by default Slipway uses root, the agent and the default keys.")
	} else if s.User != spec.DefaultSSHUser {
		yes := true
		s.Sudo = &yes
	}
	d.comments.Add("spec.hosts",
		"TODO: SSH connects to address, which is the node's address here. If it is unreachable, write another address, "+
			"and move this one to internalAddress.")
}

// describeEndpoint is the name, or the address, in the kubeadm configuration.
func (d *describer) describeEndpoint() {
	const path = "spec.controlPlaneEndpoint"
	out := &d.out.Spec.ControlPlaneEndpoint
	if d.record != nil {
		out.Mode, out.Address = d.record.Spec.ControlPlaneEndpoint.Mode, d.record.Spec.ControlPlaneEndpoint.Address
	}
	host, port := splitEndpoint(d.conf.ControlPlaneEndpoint)
	out.Port = port
	planes := spec.HostsWithRole(d.out, v1alpha1.RoleControlPlane)
	own := slices.ContainsFunc(planes, func(h v1alpha1.Host) bool { return h.Address == host })
	ip, noAddress := netip.ParseAddr(host)
	switch {
	case host == "" || own:
		d.noteDifference(path, "the cluster has no host name for the API; Slipway needs one", "let Slipway choose the host name, or set domain")
	case ip.IsLoopback() || host == "localhost":
		out.Mode = v1alpha1.EndpointHAProxy
		d.noteDifference(path, "nodes reach the API at "+host+", through a proxy on each node",
			"use mode haproxy, which does the same; write domain for the name")
	case noAddress == nil:
		out.Mode, out.Address = v1alpha1.EndpointExternal, host
		d.noteDifference(path, "nodes reach the API at the IP address "+host+"; Slipway also needs a host name for the API",
			"let Slipway choose the host name, or set domain")
	default:
		out.Domain = host
		if d.record == nil {
			d.unknownMode(path, host, len(planes))
		}
	}
}

// unknownMode handles a name whose meaning is not in the API.
func (d *describer) unknownMode(path, host string, planes int) {
	if host == "api."+d.out.Name+".internal" {
		d.noteDifference(path, "the name "+host+" was chosen by Slipway, but the saved endpoint settings are missing",
			"leave mode out for the default, or write the mode that the cluster had")
		return
	}
	if planes > 1 {
		d.out.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointExternal
		d.noteDifference(path, "nodes reach the API at "+host+", and the cluster does not store what is behind this name",
			"use mode external if the name belongs to DNS or to your load balancer")
		return
	}
	d.noteDifference(path, "nodes reach the API at "+host+", and the cluster does not store what is behind this name",
		"leave mode out to use the control plane directly; write mode: external if the name belongs to your load balancer")
}

// splitEndpoint splits host:port; the port is 0 if it is the default.
func splitEndpoint(text string) (host string, port int) {
	if text == "" {
		return "", 0
	}
	host = text
	if i := strings.LastIndex(text, ":"); i >= 0 && !strings.HasSuffix(text, "]") {
		if n, err := strconv.Atoi(text[i+1:]); err == nil {
			if _, err := netip.ParseAddr(text); err != nil {
				host, port = text[:i], n
			}
		}
	}
	if port == spec.DefaultAPIPort {
		port = 0
	}
	return strings.Trim(host, "[]"), port
}

// validateResult reports what Slipway's validation would reject: the file describes the cluster,
// whether Slipway could create it or not.
func (d *describer) validateResult() {
	filled := d.out.DeepCopy()
	spec.SetDefaults(filled, spec.DefaultOptions{KubernetesVersion: d.o.Default})
	for _, f := range spec.Validate(filled, spec.ValidateOptions{Supported: d.o.Supported, Recorded: filled}).Errors() {
		f.Severity, f.Message = diag.Warning, makePrintable(f.Message)
		d.found = append(d.found, f)
		d.comments.Add(f.Path, "TODO: "+f.Message+".")
	}
}

// withoutDefaults removes keys that have their default values.
func withoutDefaults(args, defaults map[string]string) map[string]string {
	out := maps.Clone(args)
	maps.DeleteFunc(out, func(key, value string) bool { return defaults[key] == value && value != "" })
	if len(out) == 0 {
		return nil
	}
	return out
}

// parseDuration parses a kubeadm duration; the default is left out.
func parseDuration(d *metav1.Duration, usual metav1.Duration) *metav1.Duration {
	if d == nil || d.Duration == usual.Duration || d.Duration == 0 {
		return nil
	}
	return d
}
