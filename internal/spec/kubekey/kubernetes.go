package kubekey

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// KubeKey's defaults that differ from Slipway's.
const (
	defaultDomain      = "lb.kubesphere.local"
	defaultPods        = "10.233.64.0/18"
	defaultServices    = "10.233.0.0/18"
	defaultProxy       = "ipvs"
	defaultPlugin      = "calico"
	defaultRuntime     = "docker"
	defaultPids        = 10000
	defaultEtcdPort    = 2379
	defaultPeerPort    = 2380
	defaultEtcdDir     = "/var/lib/etcd"
	defaultContainerd  = "/var/lib/containerd"
	defaultNodeMask    = 24
	defaultNodeMask6   = 120
	pluginNone         = "none"
	proxyNone          = "none"
	endpointPath       = "spec.controlPlaneEndpoint"
	kubernetesPath     = "spec.kubernetes"
	networkPath        = "spec.network"
	registryPath       = "spec.registry"
	flannelPlugin      = "flannel"
	runtimeDocker      = "docker"
	runtimeContainerd  = "containerd"
	kubeletConfigPath  = "spec.kubernetes.kubelet.config"
	controllerArgsPath = "spec.kubernetes.controllerManager.extraArgs"
)

func (c *conversion) convertEndpoint() {
	e, out := c.in.Spec.ControlPlaneEndpoint, &c.out.Spec.ControlPlaneEndpoint
	out.Domain, out.Port = defaultDomain, e.Port
	a := attempt{name: "domain", from: endpointPath + ".domain", near: endpointPath, chosen: true, instead: "the domain is " + defaultDomain}
	if e.Domain != "" && c.tryValue(a, endpointPath+".domain") {
		out.Domain = e.Domain
	}
	c.recordOrigin(endpointPath+".port", endpointPath+".port")
	lb := endpointPath + ".internalLoadbalancer"
	external := e.ExternalDNS != nil && *e.ExternalDNS
	switch e.InternalLoadbalancer {
	case "haproxy":
		if e.Address != "" {
			c.refuse(idInvalidValue, endpointPath+".address",
				"address cannot be combined with internalLoadbalancer haproxy; KubeKey rejects this combination as well",
				"remove one of the two")
		}
		c.convertBalancer(v1alpha1.EndpointHAProxy, lb, "")
	case "kube-vip":
		c.convertBalancer(v1alpha1.EndpointKubeVIP, lb, e.Address)
		if mode := e.KubeVip.Mode; strings.EqualFold(mode, "BGP") {
			c.reportChangedMeaning(idNotSupportedYet, endpointPath+".kubevip.mode", endpointPath,
				"kube-vip with BGP needs routers, which the KubeKey file does not name; write them under kubeVIP.bgp")
		}
	case "":
		address := e.Address
		if _, err := netip.ParseAddr(e.Domain); err == nil { // nodes reach the API there
			address = cmp.Or(address, e.Domain)
		}
		c.plainEndpoint(address, external)
	default:
		c.refuse(idInvalidValue, lb, "KubeKey has no load balancer "+strconv.Quote(e.InternalLoadbalancer), "use haproxy or kube-vip")
	}
	if external && e.InternalLoadbalancer != "" {
		c.reportDropped(endpointPath+".externalDNS", "every host has the name in its hosts file, which has precedence over DNS")
	}
	if e.KubeVip.Mode != "" && e.InternalLoadbalancer != "kube-vip" {
		c.reportDropped(endpointPath+".kubevip.mode", "the load balancer is not kube-vip")
	}
}

// convertBalancer converts a load balancer that KubeKey sets up.
func (c *conversion) convertBalancer(mode v1alpha1.EndpointMode, from, address string) {
	a := attempt{
		name: "balancer", from: from, near: endpointPath, chosen: true,
		instead: "Slipway chooses the mode of the endpoint",
	}
	if address != "" {
		a.instead += ", and the address is not used"
	}
	if !c.tryValue(a, endpointPath+".mode") {
		return
	}
	c.out.Spec.ControlPlaneEndpoint.Mode = mode
	c.out.Spec.ControlPlaneEndpoint.Address = address
	c.recordOrigin(endpointPath+".address", endpointPath+".address")
}

// plainEndpoint converts an endpoint without KubeKey's load balancer: the address of an
// external one, a DNS name, or the address of the first control plane.
func (c *conversion) plainEndpoint(address string, external bool) {
	out := &c.out.Spec.ControlPlaneEndpoint
	c.recordOrigin(endpointPath+".mode", endpointPath+".address")
	c.recordOrigin(endpointPath+".address", endpointPath+".address")
	planes := 0
	own := address == "" || address == "127.0.0.1"
	for _, h := range c.out.Spec.Hosts {
		for _, role := range h.Roles {
			if role == v1alpha1.RoleControlPlane {
				planes++
				own = own || address == h.Address || address == h.InternalAddress
			}
		}
	}
	switch {
	case external:
		out.Mode = v1alpha1.EndpointExternal
		c.recordOrigin(endpointPath+".mode", endpointPath+".externalDNS")
		if address != "" {
			c.reportDropped(endpointPath+".address", "with externalDNS, hosts use DNS to resolve "+out.Domain)
		}
	case !own:
		out.Mode, out.Address = v1alpha1.EndpointExternal, address
	case planes > 1:
		c.warn(idOtherDefault, endpointPath, endpointPath,
			"in KubeKey all nodes would depend on the first control plane; Slipway uses its own load balancer", "",
			"The file names no load balancer: Slipway uses its own.")
	}
}

func (c *conversion) convertKubernetes() {
	k, out := c.in.Spec.Kubernetes, &c.out.Spec.Kubernetes
	c.convertVersion(k)
	out.DNSDomain = k.DNSDomain
	c.recordOrigin(kubernetesPath+".dnsDomain", kubernetesPath+".dnsDomain")
	c.convertProxy(k)
	c.convertRenewal(k)
	out.APIServer.CertSANs = k.ApiserverCertExtraSans
	for i := range k.ApiserverCertExtraSans {
		c.recordOrigin(fmt.Sprintf("%s.apiServer.certSANs[%d]", kubernetesPath, i),
			fmt.Sprintf("%s.apiserverCertExtraSans[%d]", kubernetesPath, i))
	}
	c.convertFeatureGates(k)
	out.APIServer.ExtraArgs = c.convertArguments(k.ApiserverArgs, "apiserverArgs", "apiServer.extraArgs")
	out.ControllerManager.ExtraArgs = c.convertArguments(k.ControllerManagerArgs, "controllerManagerArgs", "controllerManager.extraArgs")
	out.Scheduler.ExtraArgs = c.convertArguments(k.SchedulerArgs, "schedulerArgs", "scheduler.extraArgs")
	out.Kubelet.ExtraArgs = c.convertArguments(k.KubeletArgs, "kubeletArgs", "kubelet.extraArgs")
	if e := k.Audit.Enabled; e != nil && *e {
		out.Audit = &v1alpha1.Audit{MaxAge: spec.DefaultAuditDays}
		c.recordOrigin(kubernetesPath+".audit", kubernetesPath+".audit.enabled")
	}
	c.nodeMask(k)
	c.convertRuntime(k)
	if k.Nodelocaldns == nil {
		c.warn(idOtherDefault, kubernetesPath+".nodelocaldns", "spec.dns",
			"KubeKey runs a DNS cache on every node; Slipway does not support this yet", "", "")
	}
}

// convertVersion is the version of the file, if it can be installed.
func (c *conversion) convertVersion(k kubernetes) {
	from := kubernetesPath + ".version"
	number, suffix, _ := strings.Cut(k.Version, "-")
	distribution := cmp.Or(suffix, k.Type)
	if distribution != "" && distribution != "kubernetes" {
		c.reportChangedMeaning(idLost, cmp.Or(map[bool]string{true: from}[suffix != ""], kubernetesPath+".type"), kubernetesPath,
			"Slipway installs Kubernetes itself, without "+distribution)
	}
	out := &c.out.Spec.Kubernetes.Version
	a := attempt{
		name: "version", from: from, near: kubernetesPath + ".version", chosen: number != "",
		instead: "the version is " + cmp.Or(c.o.Default, "chosen by Slipway"),
	}
	switch {
	case c.o.Kubernetes != "":
		*out = c.o.Kubernetes
	case number == "":
		*out = c.o.Default
	case c.tryValue(a, from):
		*out = number
		if !strings.HasPrefix(number, "v") {
			*out = "v" + number
		}
	default:
		*out = c.o.Default
	}
	c.recordOrigin(kubernetesPath+".version", from)
}

// convertRenewal: in KubeKey it is off by default.
func (c *conversion) convertRenewal(k kubernetes) {
	if k.AutoRenewCerts != nil {
		c.out.Spec.Kubernetes.Certificates.AutoRenew = k.AutoRenewCerts
		c.recordOrigin(kubernetesPath+".certificates.autoRenew", kubernetesPath+".autoRenewCerts")
	}
}

func (c *conversion) convertProxy(k kubernetes) {
	out, from := &c.out.Spec.Kubernetes.ProxyMode, kubernetesPath+".proxyMode"
	c.recordOrigin(kubernetesPath+".proxyMode", from)
	if k.DisableKubeProxy {
		*out = proxyNone
		return
	}
	if *out = k.ProxyMode; *out == "" {
		*out = defaultProxy
		c.comments.Add(from, "KubeKey's default; Slipway's default is nftables.")
	}
}

// convertArguments converts the arguments of a component, in the form "key=value".
func (c *conversion) convertArguments(list []string, from, to string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	out := map[string]string{}
	for i, text := range list {
		key, value, assigned := strings.Cut(strings.TrimLeft(strings.TrimSpace(text), "-"), "=")
		if !assigned {
			value = "true" // a flag without a value switches something on
		}
		at := fmt.Sprintf("%s.%s[%d]", kubernetesPath, from, i)
		if before, twice := out[key]; twice && before != value {
			c.reportChangedMeaning(idLost, at, kubernetesPath+"."+to,
				"the argument "+key+" is given more than once, but can be set only once; the last value is used")
		}
		a := attempt{
			name: "argument " + at, from: at, near: kubernetesPath + "." + to, chosen: true,
			instead: "the argument " + key + " is left out",
		}
		if c.tryValue(a, kubernetesPath+"."+to+"["+key+"]") {
			out[key] = value
		}
	}
	return out
}

// convertFeatureGates converts feature gates; another version may not have all of them.
func (c *conversion) convertFeatureGates(k kubernetes) {
	for _, name := range sortedKeys(k.FeatureGates) {
		at := kubernetesPath + ".featureGates[" + name + "]"
		a := attempt{
			name: "gate " + name, from: at, near: kubernetesPath, chosen: true,
			instead: "the feature gate " + name + " is left out",
		}
		if !c.tryValue(a, at) {
			continue
		}
		if c.out.Spec.Kubernetes.FeatureGates == nil {
			c.out.Spec.Kubernetes.FeatureGates = map[string]bool{}
		}
		c.out.Spec.Kubernetes.FeatureGates[name] = k.FeatureGates[name]
	}
}

// nodeMask converts the size of each node's part of the pod range.
func (c *conversion) nodeMask(k kubernetes) {
	set := func(name, from string, size int) {
		args := &c.out.Spec.Kubernetes.ControllerManager.ExtraArgs
		if *args == nil {
			*args = map[string]string{}
		}
		(*args)[name] = strconv.Itoa(size)
		c.recordOrigin(controllerArgsPath+"["+name+"]", kubernetesPath+"."+from)
	}
	dual := strings.Contains(c.in.Spec.Network.KubePodsCIDR, ",")
	if size := k.NodeCidrMaskSize; size != 0 && size != defaultNodeMask {
		name := "node-cidr-mask-size"
		if dual {
			name += "-ipv4"
		}
		set(name, "nodeCidrMaskSize", size)
	}
	switch size := k.NodeCidrMaskSizeIPv6; {
	case dual:
		if size == 0 {
			c.comments.Add(controllerArgsPath, "node-cidr-mask-size-ipv6: KubeKey's default.")
		}
		set("node-cidr-mask-size-ipv6", "nodeCidrMaskSizeIPv6", cmp.Or(size, defaultNodeMask6))
	case size != 0:
		c.reportDropped(kubernetesPath+".nodeCidrMaskSizeIPv6", "the pods have no IPv6 range")
	}
}

// convertRuntime converts the container runtime, and its data directory.
func (c *conversion) convertRuntime(k kubernetes) {
	from := kubernetesPath + ".containerManager"
	a := attempt{name: "runtime", from: from, near: "spec.containerRuntime", chosen: k.ContainerManager != "", instead: "containerd is used"}
	manager := cmp.Or(k.ContainerManager, defaultRuntime)
	c.out.Spec.ContainerRuntime.Type = runtimeContainerd
	if manager == runtimeDocker && !a.chosen { // its default is the accidental state of its nodes
		c.warn(idOtherDefault, a.from, a.near, "KubeKey's default is docker; "+a.instead,
			"", asSentence(a.instead)+" (KubeKey's default is docker).")
		manager = runtimeContainerd
	} else if c.tryValue(a, "spec.containerRuntime.type") {
		c.out.Spec.ContainerRuntime.Type = manager
	}
	r := c.in.Spec.Registry
	if dir := r.ContainerdDataDir; dir != "" && dir != defaultContainerd {
		if manager == runtimeContainerd {
			c.reportChangedMeaning(idLost, registryPath+".containerdDataDir", "spec.containerRuntime",
				"containerd stores its data in "+defaultContainerd+"; mount the disk there")
		} else {
			c.reportDropped(registryPath+".containerdDataDir", "the runtime is not containerd")
		}
	}
	for _, f := range []struct{ name, value string }{{"dockerDataDir", r.DockerDataDir}, {"dataRoot", r.DataRoot}, {"bridgeIP", r.BridgeIP}} {
		switch {
		case f.value == "":
		case manager == runtimeDocker && a.chosen:
			c.reportChangedMeaning(idLost, registryPath+"."+f.name, "spec.containerRuntime",
				"there is no field for it: Docker stores its data in /var/lib/docker, and has no separate bridge")
		default:
			c.reportDropped(registryPath+"."+f.name, "it is a setting for docker")
		}
	}
}

// convertKubelet converts its configuration, in the order in which KubeKey merges its parts.
func (c *conversion) convertKubelet() {
	k := c.in.Spec.Kubernetes
	config := map[string]any{}
	set := func(key, from string, value any) {
		config[key] = value
		c.recordOrigin(kubeletConfigPath+"["+key+"]", from)
		c.recordOrigin(kubeletConfigPath+"."+key, from)
	}
	if k.MaxPods != 0 {
		set("maxPods", kubernetesPath+".maxPods", int64(k.MaxPods))
	}
	set("podPidsLimit", kubernetesPath+".podPidsLimit", int64(defaultPids))
	if k.PodPidsLimit != 0 {
		set("podPidsLimit", kubernetesPath+".podPidsLimit", int64(k.PodPidsLimit))
	} else {
		c.comments.Add(kubeletConfigPath, "podPidsLimit: KubeKey's default.")
	}
	for _, key := range sortedKeys(k.KubeletConfiguration) {
		if key == "apiVersion" || key == "kind" {
			continue
		}
		set(key, kubernetesPath+".kubeletConfiguration", k.KubeletConfiguration[key])
	}
	c.recordOrigin(kubeletConfigPath, kubernetesPath+".kubeletConfiguration")
	c.out.Spec.Kubernetes.Kubelet.Config = config
}

// convertEtcd converts the settings of etcd into arguments.
func (c *conversion) convertEtcd() {
	if c.externalEtcd() {
		return
	}
	e, args := c.in.Spec.Etcd, map[string]string{}
	set := func(key, from, value string) {
		args[key] = value
		c.recordOrigin("spec.etcd.extraArgs["+key+"]", "spec.etcd."+from)
	}
	number := func(key, from string, value *int) {
		if value != nil {
			set(key, from, strconv.Itoa(*value))
		}
	}
	long := func(key, from string, value *int64) {
		if value != nil {
			set(key, from, strconv.FormatInt(*value, 10))
		}
	}
	text := func(key, from string, value *string) {
		if value != nil && *value != "" {
			set(key, from, *value)
		}
	}
	// kubeadm does not change etcd's own defaults.
	filled := func(key, from string, value *int, usual int) {
		if value == nil && e.Type != "kubeadm" {
			value = &usual
			c.comments.Add("spec.etcd.extraArgs", key+": KubeKey's default.")
		}
		number(key, from, value)
	}
	filled("heartbeat-interval", "heartbeatInterval", e.HeartbeatInterval, 250)
	filled("election-timeout", "electionTimeout", e.ElectionTimeout, 5000)
	filled("snapshot-count", "snapshotCount", e.SnapshotCount, 10000)
	filled("auto-compaction-retention", "autoCompactionRetention", e.AutoCompactionRetention, 8)
	text("metrics", "metrics", e.Metrics)
	long("quota-backend-bytes", "quotaBackendBytes", e.QuotaBackendBytes)
	long("max-request-bytes", "maxRequestBytes", e.MaxRequestBytes)
	number("max-snapshots", "maxSnapshots", e.MaxSnapshots)
	number("max-wals", "maxWals", e.MaxWals)
	text("log-level", "logLevel", e.LogLevel)
	for i, line := range e.ExtraArgs {
		from := fmt.Sprintf("extraArgs[%d]", i)
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		name, isEtcd := strings.CutPrefix(strings.TrimSpace(name), "ETCD_")
		if !ok || !isEtcd || name == "" {
			c.reportChangedMeaning(idLost, "spec.etcd."+from, "spec.etcd",
				"this is not an etcd setting: etcd settings have the form ETCD_NAME=value")
			continue
		}
		set(strings.ReplaceAll(strings.ToLower(name), "_", "-"), from, strings.Trim(value, `"`))
	}
	if len(args) > 0 {
		c.out.Spec.Etcd.ExtraArgs = args
	}
	c.etcdAround(e)
}

// etcdAround converts settings of etcd that are not arguments.
func (c *conversion) etcdAround(e etcd) {
	c.fixedInt("spec.etcd.port", e.Port, defaultEtcdPort)
	c.fixedInt("spec.etcd.peerPort", e.PeerPort, defaultPeerPort)
	if e.DataDir != nil && *e.DataDir != "" && *e.DataDir != defaultEtcdDir {
		c.reportChangedMeaning(idLost, "spec.etcd.dataDir", "spec.etcd", "etcd stores its data in "+defaultEtcdDir+"; mount the disk there")
	}
	c.etcdBackup(e)
}

// etcdBackup converts the interval of snapshots: with KubeKey's etcd the default is every
// day.
func (c *conversion) etcdBackup(e etcd) {
	const path = "spec.etcd.backup"
	if e.BackupDir != "" {
		c.reportChangedMeaning(idLost, "spec.etcd.backupDir", "spec.etcd", "Slipway uses its own directory for snapshots on hosts")
	}
	every := time.Duration(e.BackupPeriod) * time.Minute
	if every <= 0 && e.Type != "kubeadm" {
		every = 24 * time.Hour
		c.comments.Add(path, "every: KubeKey's default.")
	}
	if every <= 0 {
		if e.KeepBackupNumber > 0 {
			c.reportDropped("spec.etcd.keepBackupNumber", "backups need a period, and none is set")
		}
		return
	}
	c.recordOrigin(path, "spec.etcd.backupPeriod")
	c.recordOrigin(path+".every", "spec.etcd.backupPeriod")
	c.recordOrigin(path+".keep", "spec.etcd.keepBackupNumber")
	c.out.Spec.Etcd.Backup = &v1alpha1.EtcdBackup{Every: &metav1.Duration{Duration: every}, Keep: e.KeepBackupNumber}
}

// externalEtcd converts the access to an external etcd, if it is used. Its other settings
// do not apply, because it is started elsewhere.
func (c *conversion) externalEtcd() bool {
	const path = "spec.etcd.external"
	in := c.in.Spec.Etcd.External
	if c.in.Spec.Etcd.Type != "external" {
		if len(in.Endpoints) > 0 || in.CAFile+in.CertFile+in.KeyFile != "" {
			c.reportDropped(path, "KubeKey ignores it as well, because spec.etcd.type is not external")
		}
		return false
	}
	for _, field := range []string{"", ".endpoints", ".caFile", ".certFile", ".keyFile"} {
		c.recordOrigin(path+field, path+field)
	}
	for i := range in.Endpoints {
		at := fmt.Sprintf("%s.endpoints[%d]", path, i)
		c.recordOrigin(at, at)
	}
	c.out.Spec.Etcd.External = &v1alpha1.ExternalEtcd{
		Endpoints: in.Endpoints, CAFile: c.resolvePath(in.CAFile), CertFile: c.resolvePath(in.CertFile), KeyFile: c.resolvePath(in.KeyFile),
	}
	for _, name := range sortedKeys(fields) {
		from := strings.TrimSuffix(name, "[]")
		ours := from == "spec.etcd.type" || yamlfile.IsWithin(from, path)
		if yamlfile.IsWithin(from, "spec.etcd") && !ours && fields[name].fate == mapped && c.at.IsWritten(from) {
			c.reportDropped(from, "KubeKey does not start an etcd of type external, so this field has no effect")
		}
	}
	return true
}

func (c *conversion) fixedInt(from string, value *int, only int) {
	if value != nil && *value != 0 && *value != only {
		c.reportChangedMeaning(idLost, from, "spec.etcd", "etcd listens on port "+strconv.Itoa(only)+"; there is no field for another port")
	}
}
