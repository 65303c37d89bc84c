// Package v1alpha1 holds the types of group slipway.dev: what a user writes
// (Cluster) and what a run leaves behind (Operation). It imports apimachinery
// alone, so that others can use the types without the program.
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

// Cluster is a Kubernetes cluster on hosts that exist already.
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec"`
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is what the cluster shall be.
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
	// Addons go into the cluster in this order, and out of it when they are taken
	// out of the list.
	Addons []Addon `json:"addons,omitempty"`
	// Bundle is a file or directory (if it begins with "/", "./", "../" or
	// "~"), else a registry reference; "" takes the
	// cached bundle of the version, else builds one.
	Bundle string `json:"bundle,omitempty"`
	// BundleKeys are public keys ("ed25519:…"), one of which must have signed
	// the bundle; none: any bundle is taken.
	BundleKeys []string `json:"bundleKeys,omitempty"`
}

// Role is what a host does in the cluster.
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
	// Name is the node's name, and the machine's host name.
	Name string `json:"name"`
	// Address is where SSH reaches it: a name or an address; "localhost"
	// is this machine, without SSH.
	Address string `json:"address"`
	// InternalAddress is where other nodes reach it; default: Address if
	// that is an IP address, else the host's primary address.
	InternalAddress string            `json:"internalAddress,omitempty"`
	Roles           []Role            `json:"roles"`
	Arch            string            `json:"arch,omitempty"` // amd64 or arm64; default: what the host says
	Labels          map[string]string `json:"labels,omitempty"`
	Taints          []Taint           `json:"taints,omitempty"`
	// SSH overrides the cluster's defaults, field by field.
	SSH SSH `json:"ssh,omitempty"`
}

// Taint keeps pods off a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"` // NoSchedule, PreferNoSchedule, NoExecute
}

// SSH says how to log in.
type SSH struct {
	User string `json:"user,omitempty"` // default: of ~/.ssh/config, else root
	Port int    `json:"port,omitempty"` // default: of ~/.ssh/config, else 22
	// PrivateKeyFile is a path; "~" is the user's home. Without any
	// credential, the agent and the usual key files are tried.
	PrivateKeyFile string        `json:"privateKeyFile,omitempty"`
	PassphraseFrom *SecretSource `json:"passphraseFrom,omitempty"`
	Password       string        `json:"password,omitempty"` // accepted, with a warning
	PasswordFrom   *SecretSource `json:"passwordFrom,omitempty"`
	// Agent: true uses the agent at SSH_AUTH_SOCK and nothing else.
	Agent *bool `json:"agent,omitempty"`
	// Sudo for users other than root; its password is SudoPasswordFrom,
	// else the login's.
	Sudo             *bool         `json:"sudo,omitempty"`
	SudoPasswordFrom *SecretSource `json:"sudoPasswordFrom,omitempty"`
	Bastion          *Bastion      `json:"bastion,omitempty"`
	// HostKey pins the host's key: "ssh-ed25519 AAAA…" or "SHA256:…".
	// Default: known_hosts, else the key seen first.
	HostKey string `json:"hostKey,omitempty"`
}

// Bastion is a host that connections go through.
type Bastion struct {
	Address        string        `json:"address"`
	User           string        `json:"user,omitempty"`
	Port           int           `json:"port,omitempty"`
	PrivateKeyFile string        `json:"privateKeyFile,omitempty"`
	PassphraseFrom *SecretSource `json:"passphraseFrom,omitempty"`
	PasswordFrom   *SecretSource `json:"passwordFrom,omitempty"`
	HostKey        string        `json:"hostKey,omitempty"`
}

// SecretSource is where a secret is; exactly one is set.
type SecretSource struct {
	File string `json:"file,omitempty"`
	Env  string `json:"env,omitempty"`
}

// EndpointMode is how nodes reach the control plane.
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
	// Interface holds the virtual IP, on control planes; default: that of
	// their internal address.
	Interface string `json:"interface,omitempty"`
	// RouterID tells VRRP routers of one network apart, 1 to 255; default: the
	// last byte of Address.
	RouterID int      `json:"routerID,omitempty"`
	KubeVIP  *KubeVIP `json:"kubeVIP,omitempty"`
}

// KubeVIP is how kube-vip makes the address known.
type KubeVIP struct {
	Announce string `json:"announce,omitempty"` // arp (default), bgp
	BGP      *BGP   `json:"bgp,omitempty"`
}

// BGP is how control planes tell routers of the address.
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
	Version   string `json:"version,omitempty"`   // "v1.37.1"; default: the newest known
	DNSDomain string `json:"dnsDomain,omitempty"` // default: cluster.local
	ProxyMode string `json:"proxyMode,omitempty"` // nftables (default), iptables, ipvs, none
	// Kubelet is merged over our KubeletConfiguration, key by key.
	Kubelet KubeletSettings `json:"kubelet,omitempty"`
	// ExtraArgs override ours by key.
	APIServer         ComponentSettings `json:"apiServer,omitempty"`
	ControllerManager ComponentSettings `json:"controllerManager,omitempty"`
	Scheduler         ComponentSettings `json:"scheduler,omitempty"`
	FeatureGates      map[string]bool   `json:"featureGates,omitempty"`
	Certificates      Certificates      `json:"certificates,omitempty"`
	// Audit has API servers record requests; without it they record none.
	Audit *Audit `json:"audit,omitempty"`
	// Encryption has API servers encrypt what they keep in etcd; without it they
	// do not.
	Encryption *Encryption `json:"encryption,omitempty"`
	// Hardening has all components go by stricter settings; what the user sets
	// wins over them.
	Hardening bool `json:"hardening,omitempty"`
}

// Encryption is how API servers encrypt what they keep in etcd. Keys are in no
// file of the user's: they are made for the cluster, and are on its control
// planes alone.
type Encryption struct {
	Provider  string   `json:"provider,omitempty"`  // secretbox (default) or aescbc
	Resources []string `json:"resources,omitempty"` // default: secrets
	// Generation is that of the key: with another number another key is made, and
	// everything is encrypted by it.
	Generation int `json:"generation,omitempty"` // default: 1
}

// Audit is what API servers record of requests, each in files on its own host.
type Audit struct {
	// PolicyFile says what is recorded; default: Slipway's policy.
	PolicyFile string `json:"policyFile,omitempty"`
	MaxAge     int    `json:"maxAge,omitempty"`     // in days; default: 30
	MaxBackups int    `json:"maxBackups,omitempty"` // files besides the present one; default: 10
	MaxSize    int    `json:"maxSize,omitempty"`    // of a file, in megabytes; default: 100
}

// KubeletSettings go to every kubelet.
type KubeletSettings struct {
	Config    map[string]any    `json:"config,omitempty"` // fields of KubeletConfiguration
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// ComponentSettings go to a control-plane component.
type ComponentSettings struct {
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
	// CertSANs are further names in the API server's certificate.
	CertSANs []string `json:"certSANs,omitempty"`
}

// Certificates says how long certificates are valid, and who renews them.
type Certificates struct {
	Validity   *metav1.Duration `json:"validity,omitempty"`   // default: 8760h (one year)
	CAValidity *metav1.Duration `json:"caValidity,omitempty"` // default: 87600h (ten years)
	// AutoRenew has every host renew its own when they are due (default: true).
	AutoRenew *bool `json:"autoRenew,omitempty"`
}

// Etcd is the cluster's store.
type Etcd struct {
	// Type is stacked (default: a member on every control plane, run by its
	// kubelet), managed (a service on the hosts with the role etcd) or external.
	Type      string            `json:"type,omitempty"`
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
	// External is for type external alone.
	External *ExternalEtcd `json:"external,omitempty"`
	// Backup has the members' hosts take snapshots by themselves; nil has not.
	Backup *EtcdBackup `json:"backup,omitempty"`
}

// EtcdBackup is how often each member's host takes a snapshot of etcd, and how many
// of its own it keeps.
type EtcdBackup struct {
	Every *metav1.Duration `json:"every,omitempty"` // default: 6h
	Keep  int              `json:"keep,omitempty"`  // default: 8
	// DrillEvery is how often each host tries its newest one, in an etcd of its own:
	// default: 168h (a week), or Every if that is longer; 0s: never.
	DrillEvery *metav1.Duration `json:"drillEvery,omitempty"`
	// Recipients are keys of age's (age1…) that copies are encrypted to: without any
	// there are none.
	Recipients []string `json:"recipients,omitempty"`
	// Copies are where each snapshot is copied to, in a backup set.
	Copies []EtcdCopy `json:"copies,omitempty"`
}

// EtcdCopy is where copies of backup sets are kept: exactly one of Directory,
// SSH and S3.
type EtcdCopy struct {
	Name string `json:"name"`           // unique
	Keep int    `json:"keep,omitempty"` // of each host; default: as many as it keeps itself
	// Directory is one of every member's host, on another disk: a file system that
	// is mounted there.
	Directory string   `json:"directory,omitempty"`
	SSH       *SSHCopy `json:"ssh,omitempty"`
	S3        *S3Copy  `json:"s3,omitempty"`
}

// S3Copy is a bucket of storage that is spoken to in the way of S3.
type S3Copy struct {
	Endpoint string `json:"endpoint"`         // https://HOST or https://HOST:PORT
	Region   string `json:"region,omitempty"` // default: us-east-1
	Bucket   string `json:"bucket"`
	// Prefix is what keys have before a '/' and the copy's name.
	Prefix string `json:"prefix,omitempty"`
	// PathStyle has the bucket in the path instead of in the host's name; default:
	// true, but of AWS.
	PathStyle *bool `json:"pathStyle,omitempty"`
	// CAFile has the certificates of the storage's authority, in PEM form, which are
	// trusted besides the system's.
	CAFile string `json:"caFile,omitempty"`
	// AccessKeyFrom and SecretKeyFrom go to the members' hosts.
	AccessKeyFrom *SecretSource `json:"accessKeyFrom"`
	SecretKeyFrom *SecretSource `json:"secretKeyFrom"`
}

// SSHCopy is a directory of another machine, by SFTP.
type SSHCopy struct {
	Address   string `json:"address"`
	Port      int    `json:"port,omitempty"` // default: 22
	User      string `json:"user"`
	Directory string `json:"directory"`
	// PrivateKeyFrom is a private key, without a passphrase: it goes to the members'
	// hosts.
	PrivateKeyFrom *SecretSource `json:"privateKeyFrom"`
	// HostKey is the machine's: "ssh-ed25519 AAAA…" or "SHA256:…".
	HostKey string `json:"hostKey"`
}

// ExternalEtcd is an etcd cluster that others look after. The files are on the
// manager and go to the control planes.
type ExternalEtcd struct {
	Endpoints []string `json:"endpoints"` // client URLs: https://HOST:PORT
	CAFile    string   `json:"caFile"`    // what signed the members' certificates
	CertFile  string   `json:"certFile"`  // the API servers' client certificate
	KeyFile   string   `json:"keyFile"`
}

// Network is the pod network.
type Network struct {
	Plugin      string   `json:"plugin,omitempty"`      // flannel (default), none; calico, cilium, kube-ovn to come
	PodCIDR     []string `json:"podCIDR,omitempty"`     // default: 10.244.0.0/16
	ServiceCIDR []string `json:"serviceCIDR,omitempty"` // default: 10.96.0.0/16
	Flannel     Flannel  `json:"flannel,omitempty"`
}

// Flannel is settings of that plugin.
type Flannel struct {
	Backend string `json:"backend,omitempty"` // vxlan (default), host-gw
	MTU     int    `json:"mtu,omitempty"`     // 0: flannel's own choice
}

// ContainerRuntime runs containers.
type ContainerRuntime struct {
	Type string `json:"type,omitempty"` // containerd (default), docker
	// Config is further settings of containerd, in TOML and without a version;
	// a plugin's section that stands here stands for ours.
	Config string `json:"config,omitempty"`
}

// Registry is where images come from besides the bundle.
type Registry struct {
	// Mirrors are tried in order, for a registry's name ("docker.io"): URLs. One
	// whose path begins with /v2/ is a namespace of a registry.
	Mirrors  map[string][]string `json:"mirrors,omitempty"`
	Insecure []string            `json:"insecure,omitempty"`
	// Auths are how hosts log in to registries and mirrors, and whom they trust.
	Auths []RegistryAuth `json:"auths,omitempty"`
	// Private is the registry on the host with the role registry.
	Private *PrivateRegistry `json:"private,omitempty"`
}

// PrivateRegistry is a registry that one of the hosts is. It has the images of the
// bundle, and all that is pushed to it; nodes know it with its login and its
// authority.
type PrivateRegistry struct {
	Port int `json:"port,omitempty"` // default: 5000
	// Names are DNS names of its own, which all hosts are told; nodes pull by the
	// first. Default: the host's internal address.
	Names []string `json:"names,omitempty"`
	// Directory is where it keeps images; default: /var/lib/slipway-registry.
	Directory string `json:"directory,omitempty"`
	Username  string `json:"username,omitempty"` // default: slipway
	// PasswordFrom is its password; default: one is made, and kept with the records.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// CertFile and KeyFile are the user's own certificate, which CAFile has signed;
	// default: Slipway makes one, and an authority for it.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	CAFile   string `json:"caFile,omitempty"`
	// MirrorOf are registries whose images nodes ask it for first; default:
	// docker.io, ghcr.io, quay.io, registry.k8s.io and slipway.dev; none with Docker.
	MirrorOf []string `json:"mirrorOf,omitempty"`
}

// RegistryAuth is how one registry, or mirror, is logged in to and trusted: its
// credentials go to that host and to no other.
type RegistryAuth struct {
	Registry     string        `json:"registry"` // host or host:port, unique
	Username     string        `json:"username,omitempty"`
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// CAFile has the certificates of its authority, in PEM form, which are trusted
	// beside the host's.
	CAFile string `json:"caFile,omitempty"`
}

// DNS is settings of CoreDNS and of the hosts files.
type DNS struct {
	// Upstream servers; default: the host's /etc/resolv.conf.
	Upstream []string `json:"upstream,omitempty"`
	// Hosts are further entries for every host's hosts file and for CoreDNS.
	Hosts map[string][]string `json:"hosts,omitempty"` // address → names
}

// System is the hosts' preparation.
type System struct {
	NTPServers    []string          `json:"ntpServers,omitempty"`
	Timezone      string            `json:"timezone,omitempty"`
	Sysctls       map[string]string `json:"sysctls,omitempty"` // over ours
	SkipConfigure bool              `json:"skipConfigure,omitempty"`
}

// HookPhase is when a hook runs.
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

// Hook is a user's script.
type Hook struct {
	Name      string           `json:"name"` // unique
	Phase     HookPhase        `json:"phase"`
	Roles     []Role           `json:"roles,omitempty"`     // default: all
	Script    string           `json:"script"`              // a file, relative to the cluster file
	Materials []string         `json:"materials,omitempty"` // files sent beside it
	Timeout   *metav1.Duration `json:"timeout,omitempty"`   // default: 10m
	// IgnoreErrors lets the operation go on.
	IgnoreErrors bool `json:"ignoreErrors,omitempty"`
}

// Addon is what goes into the cluster when it runs: manifests, a chart, or what
// the bundle has under the add-on's name.
type Addon struct {
	Name string `json:"name"` // unique
	// Manifests are files, directories of them, or URLs; "URL@sha256:…" pins
	// what is there.
	Manifests []string `json:"manifests,omitempty"`
	Chart     *Chart   `json:"chart,omitempty"`
	// Values are a chart's, over those of ValuesFiles, of which the later come
	// before the earlier.
	Values      map[string]any `json:"values,omitempty"`
	ValuesFiles []string       `json:"valuesFiles,omitempty"`
	Namespace   string         `json:"namespace,omitempty"`  // of objects that name none; default: default
	Kubernetes  []string       `json:"kubernetes,omitempty"` // minors it works with, "1.37"; default: all
	// Wait: false does not wait until what it runs is there.
	Wait    *bool            `json:"wait,omitempty"`
	Timeout *metav1.Duration `json:"timeout,omitempty"` // of that wait; default: 5m
	Retries int              `json:"retries,omitempty"` // how often more it is tried; default: 0
}

// Chart is where a Helm chart is: Path, or Repository, Name and Version.
type Chart struct {
	Path       string `json:"path,omitempty"`       // a directory, or an archive
	Repository string `json:"repository,omitempty"` // https://…, with an index.yaml, or oci://…
	Name       string `json:"name,omitempty"`
	Version    string `json:"version,omitempty"`
	Digest     string `json:"digest,omitempty"` // "sha256:…", of the archive
}

// Phase is the state of a cluster in one word.
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

// ClusterStatus is what the cluster is.
type ClusterStatus struct {
	Phase      Phase              `json:"phase,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Version    string             `json:"version,omitempty"`
	Plugin     string             `json:"networkPlugin,omitempty"`
	Endpoint   string             `json:"endpoint,omitempty"`
	Nodes      []NodeStatus       `json:"nodes,omitempty"`
	Operation  string             `json:"operation,omitempty"` // the latest
}

// NodeStatus is one node.
type NodeStatus struct {
	Name       string `json:"name"`
	InternalIP string `json:"internalIP,omitempty"`
	// MachineID is that of the machine that the node was when it was last seen.
	MachineID string `json:"machineID,omitempty"`
	Roles     []Role `json:"roles,omitempty"`
	Version   string `json:"version,omitempty"`
	Ready     bool   `json:"ready"`
	Message   string `json:"message,omitempty"`
}
