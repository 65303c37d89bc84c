package kubeadm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const kubeadmAPI = "kubeadm.k8s.io/v1beta4"

// object is a Kubernetes-style document; it is marshalled with sorted keys.
type object = map[string]any

// initFiles returns the input of kubeadm for a control plane.
func initFiles(env module.Env, h *engine.Host) (op.List, error) {
	docs, err := initDocuments(env, h)
	if err != nil {
		return nil, err
	}
	var ops op.List
	if env.HasStackedEtcd() {
		ops = append(ops, op.Dir{Path: facts.DirEtcd, Mode: 0o700, Exclusive: true})
	}
	ops = append(ops, op.File{Path: ConfigFile, Mode: 0o600, Content: docs})
	if env.IsFirst(h) && !env.IsInitNode(h) {
		ops = append(ops,
			op.File{
				Path: module.LeadMark, Mode: 0o600,
				Content: []byte("This control plane speaks for the cluster: the one on which it began has left, or did not answer.\n"),
			})
	}
	return ops, nil
}

// initDocuments returns the settings of a control plane.
func initDocuments(env module.Env, h *engine.Host) ([]byte, error) {
	return encodeDocuments(initConfiguration(env, h), clusterConfiguration(env), kubeletConfiguration(), proxyConfiguration(env))
}

func encodeDocuments(docs ...object) ([]byte, error) {
	var b bytes.Buffer
	for i, d := range docs {
		if i > 0 {
			b.WriteString("---\n")
		}
		text, err := yaml.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encoding the kubeadm configuration: %w", err)
		}
		b.Write(text)
	}
	return b.Bytes(), nil
}

func initConfiguration(env module.Env, h *engine.Host) object {
	return object{
		"apiVersion": kubeadmAPI, "kind": "InitConfiguration",
		// kubeadm creates a token here if none is given; this one expires before it can be
		// used.
		"bootstrapTokens":  []any{object{"description": tokenDescription(env), "ttl": "1m0s"}},
		"localAPIEndpoint": localEndpoint(env, h),
		"nodeRegistration": nodeRegistration(env, h),
	}
}

// localEndpoint returns the address of the API server of a control plane.
func localEndpoint(env module.Env, h *engine.Host) object {
	return object{
		"advertiseAddress": module.InternalAddress(h.Host),
		"bindPort":         env.Cluster.Spec.ControlPlaneEndpoint.Port,
	}
}

// joinConfiguration returns how a node joins; discovery has its credentials.
func joinConfiguration(env module.Env, h *engine.Host, discovery object) object {
	conf := object{
		"apiVersion": kubeadmAPI, "kind": "JoinConfiguration",
		"discovery":        discovery,
		"nodeRegistration": nodeRegistration(env, h),
	}
	if h.HasRole(v1alpha1.RoleControlPlane) {
		conf["controlPlane"] = object{"localAPIEndpoint": localEndpoint(env, h)}
	}
	return conf
}

// nodeRegistration returns how a node registers itself.
func nodeRegistration(env module.Env, h *engine.Host) object {
	taints := []any{}
	if spec.TaintsControlPlane(env.Cluster, h.Host) {
		taints = append(taints, object{"key": kube.ControlPlaneTaint, "effect": "NoSchedule"})
	}
	for _, t := range h.Taints {
		taints = append(taints, object{"key": t.Key, "value": t.Value, "effect": t.Effect})
	}
	// The precheck has checked CPU and memory, and the user can override it.
	ignore := []any{"NumCPU", "Mem"}
	if h.Facts != nil && h.Facts.CgroupVersion == 1 {
		ignore = append(ignore, "SystemVerification")
	}
	return object{
		"name":                  h.Name,
		"criSocket":             env.RuntimeSocket(),
		"imagePullPolicy":       "IfNotPresent",
		"taints":                taints,
		"ignorePreflightErrors": ignore,
		"kubeletExtraArgs":      mergeArgs(map[string]string{"node-ip": nodeIP(env, h)}, nil),
	}
}

// nodeIP returns the addresses that the kubelet registers: with dual stack one of each IP
// version, the main IP version of the cluster first.
func nodeIP(env module.Env, h *engine.Host) string {
	one := module.InternalAddress(h.Host)
	if len(env.Cluster.Spec.Network.PodCIDR) < 2 || h.Facts == nil {
		return one
	}
	if other := facts.OtherAddress(h.Facts, one); other != "" {
		return one + "," + other
	}
	return one
}

// apiServerNames returns the names and addresses in the certificates of API servers.
func apiServerNames(env module.Env, controlPlanes ...v1alpha1.Host) []string {
	sans := []string{env.Cluster.Spec.ControlPlaneEndpoint.Domain, "localhost", "127.0.0.1"}
	var more []string
	for _, cp := range controlPlanes {
		more = append(more, module.InternalAddress(cp), cp.Address)
	}
	slices.Sort(more) // the order of hosts makes no difference
	more = append(more, env.Cluster.Spec.ControlPlaneEndpoint.Address)
	for _, s := range append(more, env.Cluster.Spec.Kubernetes.APIServer.CertSANs...) {
		if s != "" && !slices.Contains(sans, s) {
			sans = append(sans, s)
		}
	}
	return sans
}

// servingConfiguration returns only the part of the configuration that the certificate of
// an API server depends on.
func servingConfiguration(env module.Env, h *engine.Host) []object {
	all := clusterConfiguration(env)
	cluster := object{"apiServer": object{"certSANs": apiServerNames(env, h.Host)}}
	for _, key := range []string{
		"apiVersion", "kind", "kubernetesVersion", "controlPlaneEndpoint", "networking",
		"certificateValidityPeriod",
	} {
		if v, ok := all[key]; ok {
			cluster[key] = v
		}
	}
	return []object{{
		"apiVersion": kubeadmAPI, "kind": "InitConfiguration",
		"localAPIEndpoint": localEndpoint(env, h),
		"nodeRegistration": object{"name": h.Name, "criSocket": env.RuntimeSocket()},
	}, cluster}
}

func clusterConfiguration(env module.Env) object {
	k := env.Cluster.Spec.Kubernetes
	sans := apiServerNames(env, spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane)...)
	gates, hard := featureGates(k.FeatureGates), spec.HardeningSettings(env.Cluster)
	conf := object{
		"apiVersion": kubeadmAPI, "kind": "ClusterConfiguration",
		"clusterName":          env.Cluster.Name,
		"kubernetesVersion":    env.Release.Kubernetes,
		"controlPlaneEndpoint": env.APIEndpoint(),
		"networking": object{
			"dnsDomain":     k.DNSDomain,
			"podSubnet":     strings.Join(env.Cluster.Spec.Network.PodCIDR, ","),
			"serviceSubnet": strings.Join(env.Cluster.Spec.Network.ServiceCIDR, ","),
		},
		"apiServer":         apiServer(env, sans, gates),
		"controllerManager": object{"extraArgs": mergeArgs(gates, hard.ControllerManager, signingArgs(env), k.ControllerManager.ExtraArgs)},
		"scheduler":         object{"extraArgs": mergeArgs(gates, hard.Scheduler, k.Scheduler.ExtraArgs)},
		"etcd":              etcdConfiguration(env),
	}
	if v := k.Certificates.Validity; v != nil {
		conf["certificateValidityPeriod"] = v.Duration.String()
	}
	if v := k.Certificates.CAValidity; v != nil {
		conf["caCertificateValidityPeriod"] = v.Duration.String()
	}
	return conf
}

// etcdConfiguration makes kubeadm run etcd, or connects its API servers to an external
// etcd.
func etcdConfiguration(env module.Env) object {
	if env.HasStackedEtcd() {
		return object{"local": object{"dataDir": facts.DirEtcd, "extraArgs": mergeArgs(nil, env.Cluster.Spec.Etcd.ExtraArgs)}}
	}
	return object{"external": object{
		"endpoints": env.EtcdEndpoints(), "caFile": module.EtcdCA, "certFile": module.EtcdClientCert, "keyFile": module.EtcdClientKey,
	}}
}

// kubeletConfiguration is the part of the kubelet settings that kubeadm distributes. The
// settings of the user are in a drop-in, which can be changed in place.
func kubeletConfiguration() object {
	return object{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "cgroupDriver": "systemd"}
}

func proxyConfiguration(env module.Env) object {
	conf := object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		// The host owns the size and timeouts of the connection table.
		"conntrack": object{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	}
	if m := env.Cluster.Spec.Kubernetes.ProxyMode; m != "none" {
		conf["mode"] = m
	}
	if gates := env.Cluster.Spec.Kubernetes.FeatureGates; len(gates) > 0 {
		conf["featureGates"] = gates
	}
	return conf
}

// gatesFlag is the argument for the feature gates of components.
const gatesFlag = "feature-gates"

func featureGates(gates map[string]bool) map[string]string {
	if len(gates) == 0 {
		return nil
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		list = append(list, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	return map[string]string{gatesFlag: strings.Join(list, ",")}
}

// apiServerArgs makes an API server close its watches when it stops. Otherwise it waits
// for them until the kubelet kills it after half a minute, and serves no other requests
// meanwhile.
func apiServerArgs(gates map[string]string) map[string]string {
	out := map[string]string{"shutdown-send-retry-after": "true"}
	maps.Copy(out, gates)
	return out
}

func apiServer(env module.Env, sans []string, gates map[string]string) object {
	ours, k := apiServerArgs(gates), env.Cluster.Spec.Kubernetes
	out := object{"certSANs": sans}
	var volumes []any
	if k.Audit != nil {
		maps.Copy(ours, auditArgs(k.Audit))
		volumes = auditVolumes()
	}
	if k.Encryption != nil {
		ours[spec.EncryptionFlag] = module.EncryptionFile
		volumes = append(volumes, mountHostFile("encryption", module.EncryptionFile))
	}
	hard := spec.HardeningSettings(env.Cluster)
	maps.Copy(ours, hard.APIServer)
	if hard.ConfiguresAnonymous() {
		volumes = append(volumes, mountHostFile("authentication", spec.AuthenticationFile))
	}
	if len(volumes) > 0 {
		out["extraVolumes"] = volumes
	}
	out["extraArgs"] = mergeArgs(ours, k.APIServer.ExtraArgs)
	return out
}

// mergeArgs returns the arguments of a component, sorted. Later maps override earlier
// ones by key.
func mergeArgs(each ...map[string]string) []any {
	all := map[string]string{}
	for _, some := range each {
		maps.Copy(all, some)
	}
	out := []any{}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, object{"name": k, "value": all[k]})
	}
	return out
}
