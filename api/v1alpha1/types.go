// +kubebuilder:object:generate=true
// +groupName=slipway.dev

// Package v1alpha1 has the types of group slipway.dev: Cluster, which users write,
// and Operation, which each run saves. It imports only apimachinery, so that other
// programs can use the types without Slipway.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the API.
const (
	Group      = "slipway.dev"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
)

// +kubebuilder:object:root=true

// Cluster is a Kubernetes cluster on existing hosts.
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec"`
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is the wanted state of a cluster.
type ClusterSpec struct {
	Hosts []Host `json:"hosts"`
	// SSH is the default for every host.
	SSH                  SSH                  `json:"ssh,omitempty"`
	ControlPlaneEndpoint ControlPlaneEndpoint `json:"controlPlaneEndpoint,omitempty"`
	Kubernetes           Kubernetes           `json:"kubernetes,omitempty"`
	Etcd                 Etcd                 `json:"etcd,omitempty"`
	Network              Network              `json:"network,omitempty"`
	ContainerRuntime     ContainerRuntime     `json:"containerRuntime,omitempty"`
	Registry             Registry             `json:"registry,omitempty"`
	DNS                  DNS                  `json:"dns,omitempty"`
	System               System               `json:"system,omitempty"`
	Hooks                []Hook               `json:"hooks,omitempty"`
	// Addons are installed in this order. An add-on that is removed from the list is
	// removed from the cluster.
	Addons []Addon `json:"addons,omitempty"`
	// Bundle is a file or directory (if it begins with "/", "./", "../" or "~"), else a
	// registry reference. "" uses the cached bundle of the version, else builds one.
	Bundle string `json:"bundle,omitempty"`
	// BundleKeys lists public keys ("ed25519:…"), one of which must have signed the
	// bundle. An empty list accepts any bundle.
	BundleKeys []string `json:"bundleKeys,omitempty"`
}

// Role is the role of a host in the cluster.
type Role string

// The roles.
const (
	RoleControlPlane Role = "control-plane"
	RoleWorker       Role = "worker"
	RoleEtcd         Role = "etcd"
	RoleRegistry     Role = "registry"
)

// Host is one machine.
type Host struct {
	// Name is the name of the node and the host name of the machine.
	Name string `json:"name"`
	// Address is the name or address for SSH; "localhost" is this machine, without
	// SSH.
	Address string `json:"address"`
	// InternalAddress is the address for other nodes; default: Address if it is an IP
	// address, else the primary address of the host.
	InternalAddress string            `json:"internalAddress,omitempty"`
	Roles           []Role            `json:"roles"`
	Arch            string            `json:"arch,omitempty"` // amd64 or arm64; default: detected on the host
	Labels          map[string]string `json:"labels,omitempty"`
	Taints          []Taint           `json:"taints,omitempty"`
	// SSH overrides the defaults of the cluster, field by field.
	SSH SSH `json:"ssh,omitempty"`
}

// Taint is a taint of a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"` // NoSchedule, PreferNoSchedule, NoExecute
}

// SSH configures the login.
type SSH struct {
	User string `json:"user,omitempty"` // default: from ~/.ssh/config, else root
	Port int    `json:"port,omitempty"` // default: from ~/.ssh/config, else 22
	// PrivateKeyFile is a path; "~" is the home directory of the user. Without any
	// credential, the agent and the default key files are tried.
	PrivateKeyFile string        `json:"privateKeyFile,omitempty"`
	PassphraseFrom *SecretSource `json:"passphraseFrom,omitempty"`
	Password       string        `json:"password,omitempty"` // accepted, with a warning
	PasswordFrom   *SecretSource `json:"passwordFrom,omitempty"`
	// Agent: true uses only the agent at SSH_AUTH_SOCK.
	Agent *bool `json:"agent,omitempty"`
	// Sudo is needed for users other than root. Its password is SudoPasswordFrom, else
	// the password of the login.
	Sudo             *bool         `json:"sudo,omitempty"`
	SudoPasswordFrom *SecretSource `json:"sudoPasswordFrom,omitempty"`
	Bastion          *Bastion      `json:"bastion,omitempty"`
	// HostKey pins the host key: "ssh-ed25519 AAAA…" or "SHA256:…". Default:
	// known_hosts, else the first key seen.
	HostKey string `json:"hostKey,omitempty"`
}

// Bastion is a host through which connections are forwarded.
type Bastion struct {
	Address        string        `json:"address"`
	User           string        `json:"user,omitempty"`
	Port           int           `json:"port,omitempty"`
	PrivateKeyFile string        `json:"privateKeyFile,omitempty"`
	PassphraseFrom *SecretSource `json:"passphraseFrom,omitempty"`
	PasswordFrom   *SecretSource `json:"passwordFrom,omitempty"`
	HostKey        string        `json:"hostKey,omitempty"`
}

// SecretSource names the source of a secret; exactly one field is set.
type SecretSource struct {
	File string `json:"file,omitempty"`
	Env  string `json:"env,omitempty"`
}

// EndpointMode selects how nodes reach the control plane.
type EndpointMode string

// The endpoint modes.
const (
	EndpointNone       EndpointMode = "none"
	EndpointExternal   EndpointMode = "external"
	EndpointHAProxy    EndpointMode = "haproxy"
	EndpointUpdater    EndpointMode = "updater"
	EndpointKeepalived EndpointMode = "keepalived"
	EndpointKubeVIP    EndpointMode = "kube-vip"
)

// ControlPlaneEndpoint is the name and address of the API.
type ControlPlaneEndpoint struct {
	Mode    EndpointMode `json:"mode,omitempty"`    // default: none
	Domain  string       `json:"domain,omitempty"`  // default: api.<cluster>.internal
	Address string       `json:"address,omitempty"` // of a load balancer or virtual IP
	Port    int          `json:"port,omitempty"`    // default: 6443
	// Interface is the interface for the virtual IP on control planes; default: the
	// interface of their internal address.
	Interface string `json:"interface,omitempty"`
	// RouterID identifies VRRP routers in one network, 1 to 255; default: the last byte
	// of Address.
	RouterID int      `json:"routerID,omitempty"`
	KubeVIP  *KubeVIP `json:"kubeVIP,omitempty"`
}

// KubeVIP configures how kube-vip announces the address.
type KubeVIP struct {
	Announce string `json:"announce,omitempty"` // arp (default), bgp
	BGP      *BGP   `json:"bgp,omitempty"`
}

// BGP configures how control planes announce the address to routers.
type BGP struct {
	AS    int       `json:"as"`
	Peers []BGPPeer `json:"peers"`
}

// BGPPeer is a router.
type BGPPeer struct {
	Address  string `json:"address"`
	AS       int    `json:"as"`
	MultiHop bool   `json:"multiHop,omitempty"`
}

// Kubernetes is the version and the settings of its components.
type Kubernetes struct {
	Version   string `json:"version,omitempty"`   // "v1.37.1"; default: the newest supported version
	DNSDomain string `json:"dnsDomain,omitempty"` // default: cluster.local
	ProxyMode string `json:"proxyMode,omitempty"` // nftables (default), iptables, ipvs, none
	// Kubelet is merged over Slipway's KubeletConfiguration, key by key.
	Kubelet KubeletSettings `json:"kubelet,omitempty"`
	// ExtraArgs override Slipway's arguments by key.
	APIServer         ComponentSettings `json:"apiServer,omitempty"`
	ControllerManager ComponentSettings `json:"controllerManager,omitempty"`
	Scheduler         ComponentSettings `json:"scheduler,omitempty"`
	FeatureGates      map[string]bool   `json:"featureGates,omitempty"`
	Certificates      Certificates      `json:"certificates,omitempty"`
	// Audit makes API servers record requests; nil disables this.
	Audit *Audit `json:"audit,omitempty"`
	// Encryption makes API servers encrypt data in etcd; nil disables this.
	Encryption *Encryption `json:"encryption,omitempty"`
	// Hardening makes all components use stricter settings. Settings of the user
	// override them.
	Hardening bool `json:"hardening,omitempty"`
}

// Encryption configures how API servers encrypt data in etcd. The keys are not in
// files of the user: Slipway creates them, and stores them only on control planes.
type Encryption struct {
	Provider  string   `json:"provider,omitempty"`  // secretbox (default) or aescbc
	Resources []string `json:"resources,omitempty"` // default: secrets
	// Generation is the number of the key. Another number creates another key, and all
	// data are encrypted with it.
	Generation int `json:"generation,omitempty"` // default: 1
}

// Audit configures which requests API servers record, each in files on its host.
type Audit struct {
	// PolicyFile selects the requests to record; default: Slipway's policy.
	PolicyFile string `json:"policyFile,omitempty"`
	MaxAge     int    `json:"maxAge,omitempty"`     // in days; default: 30
	MaxBackups int    `json:"maxBackups,omitempty"` // files in addition to the current one; default: 10
	MaxSize    int    `json:"maxSize,omitempty"`    // of a file, in megabytes; default: 100
}

// KubeletSettings are the settings of all kubelets.
type KubeletSettings struct {
	Config    Object            `json:"config,omitempty"` // fields of KubeletConfiguration
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// ComponentSettings are the settings of a control plane component.
type ComponentSettings struct {
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
	// CertSANs lists more names for the certificate of the API server.
	CertSANs []string `json:"certSANs,omitempty"`
}

// Certificates configures the validity and the renewal of certificates.
type Certificates struct {
	Validity   *metav1.Duration `json:"validity,omitempty"`   // default: 8760h (one year)
	CAValidity *metav1.Duration `json:"caValidity,omitempty"` // default: 87600h (ten years)
	// AutoRenew makes every host renew its own certificates when they are due
	// (default: true).
	AutoRenew *bool `json:"autoRenew,omitempty"`
}

// Network is the pod network.
type Network struct {
	Plugin      string   `json:"plugin,omitempty"`      // flannel (default), none; calico, cilium, kube-ovn to come
	PodCIDR     []string `json:"podCIDR,omitempty"`     // default: 10.244.0.0/16
	ServiceCIDR []string `json:"serviceCIDR,omitempty"` // default: 10.96.0.0/16
	Flannel     Flannel  `json:"flannel,omitempty"`
}

// Flannel has the settings of the plugin flannel.
type Flannel struct {
	Backend string `json:"backend,omitempty"` // vxlan (default), host-gw
	MTU     int    `json:"mtu,omitempty"`     // 0: the default of flannel
}

// ContainerRuntime runs containers.
type ContainerRuntime struct {
	Type string `json:"type,omitempty"` // containerd (default), docker
	// Config has more containerd settings, in TOML and without a version. A section of
	// a plugin in it replaces Slipway's section.
	Config string `json:"config,omitempty"`
}

// Registry configures the sources of images that are not in the bundle.
type Registry struct {
	// Mirrors maps the name of a registry ("docker.io") to URLs, which are tried in
	// order. A URL with a path that begins with /v2/ is a namespace of a registry.
	Mirrors  map[string][]string `json:"mirrors,omitempty"`
	Insecure []string            `json:"insecure,omitempty"`
	// Auths lists logins and CAs for registries and mirrors.
	Auths []RegistryAuth `json:"auths,omitempty"`
	// Private is the registry on the host with the role registry.
	Private *PrivateRegistry `json:"private,omitempty"`
}

// PrivateRegistry is the registry on one of the hosts. It has the images of the
// bundle, and images that users push to it. Nodes have its login and trust its CA.
type PrivateRegistry struct {
	Port int `json:"port,omitempty"` // default: 5000
	// Names lists DNS names of the registry, which Slipway adds on all hosts. Nodes use
	// the first one to pull. Default: the internal address of the host.
	Names []string `json:"names,omitempty"`
	// Directory is the directory for images; default: /var/lib/slipway-registry.
	Directory string `json:"directory,omitempty"`
	Username  string `json:"username,omitempty"` // default: slipway
	// PasswordFrom is its password; default: generated, and saved in Slipway's state.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// CertFile and KeyFile are a certificate of the user, signed by the CA in CAFile;
	// default: Slipway creates a certificate and a CA for it.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	CAFile   string `json:"caFile,omitempty"`
	// MirrorOf lists registries for which nodes use this registry first; default:
	// docker.io, ghcr.io, quay.io, registry.k8s.io and slipway.dev; none with Docker.
	MirrorOf []string `json:"mirrorOf,omitempty"`
}

// RegistryAuth has the login and the CA of one registry or mirror. The credentials
// are only sent to that host.
type RegistryAuth struct {
	Registry     string        `json:"registry"` // host or host:port, unique
	Username     string        `json:"username,omitempty"`
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// CAFile has PEM certificates of its CA, which are trusted in addition to the CAs
	// of the host.
	CAFile string `json:"caFile,omitempty"`
}

// DNS has settings of CoreDNS and of the hosts files.
type DNS struct {
	// Upstream servers; default: the host's /etc/resolv.conf.
	Upstream []string `json:"upstream,omitempty"`
	// Zones are answered by other servers than Upstream.
	Zones []DNSZone `json:"zones,omitempty"`
	// Hosts has more entries for the hosts file of every host and for CoreDNS.
	Hosts map[string][]string `json:"hosts,omitempty"` // address → names
}

// DNSZone holds the servers for some zones of the cluster DNS.
type DNSZone struct {
	// Names of the zones: "corp.example.com", "10.in-addr.arpa".
	Names []string `json:"names"`
	// Servers are IP addresses, with ":port" if it is not 53.
	Servers []string `json:"servers"`
	// CacheSeconds is how long CoreDNS keeps an answer of these servers; 0 uses the
	// default of 30.
	CacheSeconds int `json:"cacheSeconds,omitempty"`
}

// System configures the preparation of the hosts.
type System struct {
	NTPServers []string          `json:"ntpServers,omitempty"`
	Timezone   string            `json:"timezone,omitempty"`
	Sysctls    map[string]string `json:"sysctls,omitempty"` // override Slipway's settings
	// Limits are resource limits of login sessions, by item of limits.conf(5): a number,
	// "unlimited", or "SOFT:HARD".
	Limits        map[string]string `json:"limits,omitempty"`
	SkipConfigure bool              `json:"skipConfigure,omitempty"`
}

// HookPhase selects when a hook runs.
type HookPhase string

// The phases.
const (
	HookPreInstall       HookPhase = "preInstall"
	HookPostControlPlane HookPhase = "postControlPlane"
	HookPostInstall      HookPhase = "postInstall"
	HookPreDelete        HookPhase = "preDelete"
	HookPreUpgrade       HookPhase = "preUpgrade"
	HookPostUpgrade      HookPhase = "postUpgrade"
)

// Hook is a script of the user.
type Hook struct {
	Name      string           `json:"name"` // unique
	Phase     HookPhase        `json:"phase"`
	Roles     []Role           `json:"roles,omitempty"`     // default: all
	Script    string           `json:"script"`              // a file, relative to the cluster file
	Materials []string         `json:"materials,omitempty"` // files sent to the same directory
	Timeout   *metav1.Duration `json:"timeout,omitempty"`   // default: 10m
	// IgnoreErrors lets the operation continue after a failure.
	IgnoreErrors bool `json:"ignoreErrors,omitempty"`
}

// Addon is installed in the running cluster: manifests, a chart, or the content that
// the bundle has under the name of the add-on.
type Addon struct {
	Name string `json:"name"` // unique
	// Manifests lists files, directories and URLs; "URL@sha256:…" pins the content.
	Manifests []string `json:"manifests,omitempty"`
	Chart     *Chart   `json:"chart,omitempty"`
	// Values are the values of a chart. They override ValuesFiles, in which a later
	// file overrides an earlier one.
	Values      Object   `json:"values,omitempty"`
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	Namespace   string   `json:"namespace,omitempty"`  // of objects without a namespace; default: default
	Kubernetes  []string `json:"kubernetes,omitempty"` // supported minor versions, "1.37"; default: all
	// Wait: false does not wait until its workloads are ready.
	Wait    *bool            `json:"wait,omitempty"`
	Timeout *metav1.Duration `json:"timeout,omitempty"` // for this wait; default: 5m
	Retries int              `json:"retries,omitempty"` // more attempts after a failure; default: 0
}

// Chart is the source of a Helm chart: Path, or Repository, Name and Version.
type Chart struct {
	Path       string `json:"path,omitempty"`       // a directory, or an archive
	Repository string `json:"repository,omitempty"` // https://…, with an index.yaml, or oci://…
	Name       string `json:"name,omitempty"`
	Version    string `json:"version,omitempty"`
	Digest     string `json:"digest,omitempty"` // "sha256:…", of the archive
}

// Phase is the state of a cluster.
type Phase string

// The phases of a cluster.
const (
	PhasePending       Phase = "Pending"
	PhasePrechecking   Phase = "Prechecking"
	PhaseCreating      Phase = "Creating"
	PhaseRunning       Phase = "Running"
	PhaseScaling       Phase = "Scaling"
	PhaseUpgrading     Phase = "Upgrading"
	PhaseReconfiguring Phase = "Reconfiguring"
	PhasePaused        Phase = "Paused"
	PhaseFailed        Phase = "Failed"
	PhaseDeleting      Phase = "Deleting"
)

// ClusterStatus is the observed state of a cluster.
type ClusterStatus struct {
	Phase      Phase              `json:"phase,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Version    string             `json:"version,omitempty"`
	Plugin     string             `json:"networkPlugin,omitempty"`
	Endpoint   string             `json:"endpoint,omitempty"`
	Nodes      []NodeStatus       `json:"nodes,omitempty"`
	Operation  string             `json:"operation,omitempty"` // the latest
}

// NodeStatus is the observed state of one node.
type NodeStatus struct {
	Name       string `json:"name"`
	InternalIP string `json:"internalIP,omitempty"`
	// MachineID is the ID of the node's machine when Slipway last saw it.
	MachineID string `json:"machineID,omitempty"`
	Roles     []Role `json:"roles,omitempty"`
	Version   string `json:"version,omitempty"`
	Ready     bool   `json:"ready"`
	Message   string `json:"message,omitempty"`
}
