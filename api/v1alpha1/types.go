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
// +kubebuilder:resource:shortName=slc,categories=slipway
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=.status.version
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Endpoint,type=string,JSONPath=.status.endpoint,priority=1
// +kubebuilder:printcolumn:name=Operation,type=string,JSONPath=.status.operation,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a cluster has at most 40 characters: a-z, 0-9 and '-', with a letter or digit first and last"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.kubernetes) && has(self.spec.kubernetes.dnsDomain) && self.spec.kubernetes.dnsDomain != '' ? self.spec.kubernetes.dnsDomain : 'cluster.local') == (has(oldSelf.spec.kubernetes) && has(oldSelf.spec.kubernetes.dnsDomain) && oldSelf.spec.kubernetes.dnsDomain != '' ? oldSelf.spec.kubernetes.dnsDomain : 'cluster.local')",message="this field cannot change while the cluster exists",fieldPath=".spec.kubernetes.dnsDomain"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.etcd) && has(self.spec.etcd.type) && self.spec.etcd.type != '' ? self.spec.etcd.type : 'stacked') == (has(oldSelf.spec.etcd) && has(oldSelf.spec.etcd.type) && oldSelf.spec.etcd.type != '' ? oldSelf.spec.etcd.type : 'stacked')",message="this field cannot change while the cluster exists",fieldPath=".spec.etcd.type"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.network) && has(self.spec.network.plugin) && self.spec.network.plugin != '' ? self.spec.network.plugin : 'flannel') == (has(oldSelf.spec.network) && has(oldSelf.spec.network.plugin) && oldSelf.spec.network.plugin != '' ? oldSelf.spec.network.plugin : 'flannel')",message="this field cannot change while the cluster exists",fieldPath=".spec.network.plugin"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.network) && has(self.spec.network.podCIDR) && self.spec.network.podCIDR.size() > 0 ? self.spec.network.podCIDR : ['10.244.0.0/16']) == (has(oldSelf.spec.network) && has(oldSelf.spec.network.podCIDR) && oldSelf.spec.network.podCIDR.size() > 0 ? oldSelf.spec.network.podCIDR : ['10.244.0.0/16'])",message="this field cannot change while the cluster exists",fieldPath=".spec.network.podCIDR"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.network) && has(self.spec.network.serviceCIDR) && self.spec.network.serviceCIDR.size() > 0 ? self.spec.network.serviceCIDR : ['10.96.0.0/16']) == (has(oldSelf.spec.network) && has(oldSelf.spec.network.serviceCIDR) && oldSelf.spec.network.serviceCIDR.size() > 0 ? oldSelf.spec.network.serviceCIDR : ['10.96.0.0/16'])",message="this field cannot change while the cluster exists",fieldPath=".spec.network.serviceCIDR"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.controlPlaneEndpoint) && has(self.spec.controlPlaneEndpoint.port) && self.spec.controlPlaneEndpoint.port != 0 ? self.spec.controlPlaneEndpoint.port : 6443) == (has(oldSelf.spec.controlPlaneEndpoint) && has(oldSelf.spec.controlPlaneEndpoint.port) && oldSelf.spec.controlPlaneEndpoint.port != 0 ? oldSelf.spec.controlPlaneEndpoint.port : 6443)",message="this field cannot change while the cluster exists",fieldPath=".spec.controlPlaneEndpoint.port"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Created' && c.status == 'True')) || (has(self.spec.controlPlaneEndpoint) && has(self.spec.controlPlaneEndpoint.domain) && self.spec.controlPlaneEndpoint.domain != '' ? self.spec.controlPlaneEndpoint.domain : 'api.' + self.metadata.name + '.internal') == (has(oldSelf.spec.controlPlaneEndpoint) && has(oldSelf.spec.controlPlaneEndpoint.domain) && oldSelf.spec.controlPlaneEndpoint.domain != '' ? oldSelf.spec.controlPlaneEndpoint.domain : 'api.' + self.metadata.name + '.internal')",message="this field cannot change while the cluster exists",fieldPath=".spec.controlPlaneEndpoint.domain"

// Cluster is a Kubernetes cluster on existing hosts.
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The wanted state.
	Spec ClusterSpec `json:"spec"`
	// The observed state.
	Status ClusterStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// ClusterList is a list of clusters.
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterSpec is the wanted state of a cluster.
type ClusterSpec struct {
	// The machines, at least one. At least one has the role `control-plane`.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=name
	Hosts []Host `json:"hosts"`
	// Defaults for every host.
	SSH SSH `json:"ssh,omitempty"`
	// The name and address of the API.
	ControlPlaneEndpoint ControlPlaneEndpoint `json:"controlPlaneEndpoint,omitempty"`
	// The version and the settings of the components.
	Kubernetes Kubernetes `json:"kubernetes,omitempty"`
	// The data store of the cluster.
	Etcd Etcd `json:"etcd,omitempty"`
	// The pod network.
	Network Network `json:"network,omitempty"`
	// The container runtime.
	ContainerRuntime ContainerRuntime `json:"containerRuntime,omitempty"`
	// Registries for other images.
	Registry Registry `json:"registry,omitempty"`
	// Name resolution of hosts and pods.
	DNS DNS `json:"dns,omitempty"`
	// The preparation of the hosts.
	System System `json:"system,omitempty"`
	// Scripts, in the order in which they run.
	// +listType=map
	// +listMapKey=name
	Hooks []Hook `json:"hooks,omitempty"`
	// The add-ons. Each one is installed completely before the next one starts.
	// +listType=map
	// +listMapKey=name
	Addons []Addon `json:"addons,omitempty"`
	// The content to install. A path begins with `/`, `./`, `../` or `~`; any other
	// value is a reference to a registry. Default: an existing bundle of this version,
	// else Slipway builds one.
	Bundle string `json:"bundle,omitempty"`
	// One of these keys must have signed the bundle (`ed25519:…`). Otherwise the bundle
	// is rejected before any host is changed, and Slipway does not build one. Default:
	// any bundle is accepted.
	// +listType=atomic
	BundleKeys []string `json:"bundleKeys,omitempty"`
	// Secrets and ConfigMaps in the namespace of the cluster. Their keys are the files that
	// other fields name. Later sources override earlier ones. Only the management plane
	// reads them; the command line reads local files.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	FilesFrom []FilesSource `json:"filesFrom,omitempty"`
	// `Automatic`: the management plane starts an operation when this object changes.
	// `Manual`: it waits until a user approves the plan. The command line asks, except with
	// `--yes`. Default: `Automatic`.
	// +kubebuilder:validation:Enum=Automatic;Manual
	Approval ApprovalMode `json:"approval,omitempty"`
	// `true`: neither `slipway create` and `slipway apply` with this file nor the management
	// plane change the cluster. Other commands do. Default: `false`.
	Paused bool `json:"paused,omitempty"`
	// The effect of a deletion of this object on the hosts. `Delete`: the cluster is
	// deleted. `Retain`: the hosts are not changed. Default: `Retain`.
	// +kubebuilder:validation:Enum=Delete;Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// The reaction of the management plane to hosts that differ from this object.
	// `Report`: it sets the condition `Drifted`. `Repair`: it also starts an operation.
	// Default: `Report`.
	// +kubebuilder:validation:Enum=Report;Repair
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`
	// When the management plane may start operations automatically.
	Maintenance Maintenance `json:"maintenance,omitempty"`
}

// FilesSource is a Secret or a ConfigMap with files; exactly one field is set.
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.configMapRef)",message="exactly one of secretRef and configMapRef must be set"
type FilesSource struct {
	// A Secret.
	SecretRef *LocalReference `json:"secretRef,omitempty"`
	// A ConfigMap.
	ConfigMapRef *LocalReference `json:"configMapRef,omitempty"`
}

// LocalReference names an object in the same namespace.
type LocalReference struct {
	// The name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ApprovalMode selects who approves the plan of an operation.
type ApprovalMode string

// The approval modes.
const (
	ApprovalAutomatic ApprovalMode = "Automatic"
	ApprovalManual    ApprovalMode = "Manual"
)

// DeletionPolicy selects the effect of the deletion of a Cluster object on its hosts.
type DeletionPolicy string

// The deletion policies.
const (
	DeletionDelete DeletionPolicy = "Delete"
	DeletionRetain DeletionPolicy = "Retain"
)

// DriftPolicy selects the reaction to hosts that differ from the wanted state.
type DriftPolicy string

// The drift policies.
const (
	DriftReport DriftPolicy = "Report"
	DriftRepair DriftPolicy = "Repair"
)

// Maintenance limits when automatic operations start.
type Maintenance struct {
	// The windows. Without any, such operations start at any time.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Windows []MaintenanceWindow `json:"windows,omitempty"`
}

// MaintenanceWindow is a period that repeats.
type MaintenanceWindow struct {
	// The days on which the window starts: `Mon`, `Tue`, `Wed`, `Thu`, `Fri`, `Sat`, `Sun`.
	// Default: every day.
	// +kubebuilder:validation:items:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
	// +listType=atomic
	Days []string `json:"days,omitempty"`
	// The time at which the window starts: `22:30`.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// How long after `start` operations may begin: `1m` to `24h`.
	Duration *metav1.Duration `json:"duration"`
	// The time zone of `start`, such as `Europe/Berlin`. Default: `UTC`.
	TimeZone string `json:"timeZone,omitempty"`
}

// Role is the role of a host in the cluster.
// +kubebuilder:validation:Enum=control-plane;worker;etcd;registry
type Role string

// The roles.
const (
	RoleControlPlane Role = "control-plane"
	RoleWorker       Role = "worker"
	RoleEtcd         Role = "etcd"
	RoleRegistry     Role = "registry"
)

// Host is one machine.
// +kubebuilder:validation:XValidation:rule="['control-plane', 'worker', 'etcd'].all(r, (r in self.roles) == (r in oldSelf.roles))",message="the roles of a host cannot change while it is in the cluster",fieldPath=".roles"
type Host struct {
	// The name of the node and the host name of the machine: a–z, 0–9, `-` and `.`, at
	// most 63 characters, unique.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// The address for SSH: an IP address or a name. `localhost` is this machine,
	// without SSH. Unique, unless `ssh.port` differs.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	Address string `json:"address"`
	// The address for other nodes. Unique. Cannot be changed. Default: `address` if it
	// is an IP address, else the primary address of the host.
	InternalAddress string `json:"internalAddress,omitempty"`
	// `control-plane`, `worker`, and with `etcd.type: managed` also `etcd`; one host
	// may be `registry`. Alone or together.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	Roles []Role `json:"roles"`
	// `amd64` or `arm64`. If set, a host with another architecture is rejected.
	// Default: detected on the host.
	// +kubebuilder:validation:Enum=amd64;arm64
	Arch string `json:"arch,omitempty"`
	// Labels of the node. Prefixes of `kubernetes.io` and `k8s.io` are rejected, except
	// the labels that a kubelet can set.
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the node.
	// +listType=atomic
	Taints []Taint `json:"taints,omitempty"`
	// SSH settings of this host. Each field overrides the same field of `spec.ssh`.
	// Default: `spec.ssh`.
	SSH SSH `json:"ssh,omitempty"`
}

// Taint is a taint of a node.
type Taint struct {
	// The key of the taint.
	Key string `json:"key"`
	// The value of the taint.
	Value string `json:"value,omitempty"`
	// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect string `json:"effect"`
}

// SSH configures the login.
type SSH struct {
	// The user for the login. Default: from `~/.ssh/config`, else `root`.
	User string `json:"user,omitempty"`
	// The port of the SSH server. Default: from `~/.ssh/config`, else `22`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// A private key. Without a key, a password or `agent: true`, Slipway tries the keys
	// that `~/.ssh/config` names, the agent and the default files in `~/.ssh`. A
	// certificate next to a key (`KEY-cert.pub`) is used as well.
	PrivateKeyFile string `json:"privateKeyFile,omitempty"`
	// The passphrase of the key.
	PassphraseFrom *SecretSource `json:"passphraseFrom,omitempty"`
	// A password in the file: accepted with a warning. It is not in plans, journals or
	// logs. Everybody who can read the saved cluster, or this object, can read it.
	Password string `json:"password,omitempty"`
	// A password from a file or a variable.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// `true`: use only the agent at `SSH_AUTH_SOCK`. Default: `false`.
	Agent *bool `json:"agent,omitempty"`
	// Run commands through `sudo`. Default: `true` for users other than root.
	Sudo *bool `json:"sudo,omitempty"`
	// The password for `sudo`. Default: the password of the login.
	SudoPasswordFrom *SecretSource `json:"sudoPasswordFrom,omitempty"`
	// A bastion host for the connection. Without it, `ProxyJump` in `~/.ssh/config` is
	// used. The bastion of a host replaces the default bastion completely.
	Bastion *Bastion `json:"bastion,omitempty"`
	// The host key: `SHA256:…` as `ssh-keygen -lf` prints it, or `ssh-ed25519 AAAA…` as
	// in `known_hosts`. Default: `known_hosts`, else the first key seen.
	HostKey string `json:"hostKey,omitempty"`
}

// Bastion is a host through which connections are forwarded.
type Bastion struct {
	// The IP address or name of the bastion.
	Address string `json:"address"`
	// The user for the login on the bastion. Default: from `~/.ssh/config`, else
	// `root`.
	User string `json:"user,omitempty"`
	// The port of its SSH server. Default: from `~/.ssh/config`, else `22`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// The private key for the bastion. Default: the agent and the default files.
	PrivateKeyFile string `json:"privateKeyFile,omitempty"`
	// The passphrase of that key.
	PassphraseFrom *SecretSource `json:"passphraseFrom,omitempty"`
	// The password for the bastion.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// The host key of the bastion.
	HostKey string `json:"hostKey,omitempty"`
}

// SecretSource names the source of a secret; exactly one field is set.
type SecretSource struct {
	// The file with the secret; a line break at its end is removed.
	File string `json:"file,omitempty"`
	// The environment variable with the secret, instead of `file`.
	Env string `json:"env,omitempty"`
}

// EndpointMode selects how nodes reach the control plane.
// +kubebuilder:validation:Enum=none;external;haproxy;updater;keepalived;kube-vip
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
	// `none`: the control plane itself; only for one control plane. `external`: your
	// own load balancer. `haproxy`: a load balancer on every worker. `updater`: a
	// Service with its own address. `keepalived`, `kube-vip`: an address that one of
	// the control planes holds. The mode can be changed. Default: `none`; `haproxy` for
	// several control planes.
	Mode EndpointMode `json:"mode,omitempty"`
	// The name of the endpoint, in the hosts file of every host and in the
	// certificates. Cannot be changed. Default: `api.NAME.internal`.
	// +kubebuilder:validation:MaxLength=253
	Domain string `json:"domain,omitempty"`
	// With `external`: the address of the load balancer; required, unless every host
	// resolves your own `domain`. With `keepalived` and `kube-vip`: a free address in
	// the network of the control planes; required. With `updater`: one of the addresses
	// that the API server assigns last. Default: with `updater` the second address of
	// `serviceCIDR`.
	Address string `json:"address,omitempty"`
	// The port. Cannot be changed. Default: `6443`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// With `keepalived` and `kube-vip`: the interface that holds the address. Default:
	// the interface of the internal address of the host.
	Interface string `json:"interface,omitempty"`
	// With `keepalived`: 1 to 255, different from the IDs of other VRRP routers on the
	// network. Default: the last byte of `address`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	RouterID int `json:"routerID,omitempty"`
	// Settings of kube-vip.
	KubeVIP *KubeVIP `json:"kubeVIP,omitempty"`
}

// KubeVIP configures how kube-vip announces the address.
type KubeVIP struct {
	// `arp`; or `bgp`: every control plane has the address and announces it to routers.
	// Default: `arp`.
	// +kubebuilder:validation:Enum=arp;bgp
	Announce string `json:"announce,omitempty"`
	// BGP settings, for `announce: bgp`.
	BGP *BGP `json:"bgp,omitempty"`
}

// BGP configures how control planes announce the address to routers.
type BGP struct {
	// The autonomous system of the control planes.
	AS int `json:"as"`
	// The routers.
	// +kubebuilder:validation:MinItems=1
	// +listType=atomic
	Peers []BGPPeer `json:"peers"`
}

// BGPPeer is a router.
type BGPPeer struct {
	// The address of a router.
	Address string `json:"address"`
	// The autonomous system of the router.
	AS int `json:"as"`
	// The router is not in the network of the control planes. Default: `false`.
	MultiHop bool `json:"multiHop,omitempty"`
}

// Kubernetes is the version and the settings of its components.
type Kubernetes struct {
	// `vX.Y.Z`. Changed by `slipway upgrade`. Default: the newest version that this
	// Slipway supports.
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+$`
	Version string `json:"version,omitempty"`
	// The domain of services. Cannot be changed. Default: `cluster.local`.
	// +kubebuilder:validation:MaxLength=253
	DNSDomain string `json:"dnsDomain,omitempty"`
	// `nftables`, `iptables`, `ipvs`, or `none` for no kube-proxy. Default: `nftables`.
	// +kubebuilder:validation:Enum=nftables;iptables;ipvs;none
	ProxyMode string `json:"proxyMode,omitempty"`
	// Settings of all kubelets.
	Kubelet KubeletSettings `json:"kubelet,omitempty"`
	// Settings of the API server.
	APIServer ComponentSettings `json:"apiServer,omitempty"`
	// Settings of the controller manager.
	ControllerManager ComponentSettings `json:"controllerManager,omitempty"`
	// Settings of the scheduler.
	Scheduler ComponentSettings `json:"scheduler,omitempty"`
	// Feature gates of all components. The version must have them and must not lock
	// them.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// The validity and the renewal of certificates.
	Certificates Certificates `json:"certificates,omitempty"`
	// Each API server records requests in `/var/log/kubernetes/audit` on its host,
	// readable only by root. `audit: {}` is enough. Without it, requests are not
	// recorded.
	Audit *Audit `json:"audit,omitempty"`
	// API servers encrypt data in etcd; `encryption: {}` is enough. It can be switched
	// on, changed and switched off on a running cluster. Without it, data are not
	// encrypted.
	Encryption *Encryption `json:"encryption,omitempty"`
	// All components use stricter settings. Your own settings override them, with a
	// warning. Can be switched on and off on a running cluster. Default: `false`.
	Hardening bool `json:"hardening,omitempty"`
}

// Encryption configures how API servers encrypt data in etcd. The keys are not in
// files of the user: Slipway creates them, and stores them only on control planes.
type Encryption struct {
	// The encryption provider. `aesgcm` is rejected: it needs a new key every 200,000
	// writes. Default: `secretbox`.
	// +kubebuilder:validation:Enum=secretbox;aescbc
	Provider string `json:"provider,omitempty"`
	// The resources to encrypt: `secrets`, `configmaps`, `serviceaccounts`,
	// `persistentvolumes`, `persistentvolumeclaims`. Default: `secrets`.
	// +listType=set
	Resources []string `json:"resources,omitempty"`
	// The number of the key. Another number creates another key, and all data are
	// encrypted with it. The keys are never in your files. Default: `1`.
	// +kubebuilder:validation:Minimum=0
	Generation int `json:"generation,omitempty"`
}

// Audit configures which requests API servers record, each in files on its host.
type Audit struct {
	// A policy (`audit.k8s.io/v1`) that selects the requests to record. Slipway's
	// policy leaves out frequent requests of the cluster's own components. It records
	// the content of changed objects, but never of Secrets and ConfigMaps. Default:
	// Slipway's policy.
	PolicyFile string `json:"policyFile,omitempty"`
	// How many days a file is kept. Default: `30`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=36500
	MaxAge int `json:"maxAge,omitempty"`
	// How many files are kept in addition to the current one. Default: `10`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxBackups int `json:"maxBackups,omitempty"`
	// The size in megabytes at which a new file begins. Default: `100`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	MaxSize int `json:"maxSize,omitempty"`
}

// KubeletSettings are the settings of all kubelets.
type KubeletSettings struct {
	// Fields of KubeletConfiguration, merged key by key over Slipway's settings. Names
	// and types are checked. `serverTLSBootstrap` is `true` by default. `podLogsDir`
	// and `staticPodPath` are not allowed.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Config Object `json:"config,omitempty"`
	// Flags of this version, without dashes. Prefer `config`. `root-dir` and `cert-dir`
	// are not allowed: mount a data disk at `/var/lib/kubelet`.
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// ComponentSettings are the settings of a control plane component.
type ComponentSettings struct {
	// Flags of the cluster's version, without dashes. They override Slipway's flags.
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
	// More names and addresses for the certificate of the API server. Rejected for other
	// components.
	// +listType=atomic
	CertSANs []string `json:"certSANs,omitempty"`
}

// Certificates configures the validity and the renewal of certificates.
type Certificates struct {
	// The validity of new and renewed certificates. Default: `8760h` (a year).
	Validity *metav1.Duration `json:"validity,omitempty"`
	// The validity of CAs; at least `validity`. Default: `87600h` (ten years).
	CAValidity *metav1.Duration `json:"caValidity,omitempty"`
	// Each host renews its own certificates with a timer when they are due. Can be
	// changed at any time. Default: `true`.
	AutoRenew *bool `json:"autoRenew,omitempty"`
}

// Network is the pod network.
type Network struct {
	// `flannel`, or `none` to install your own. `calico`, `cilium`, `kube-ovn` are not
	// supported yet. Cannot be changed. Default: `flannel`.
	// +kubebuilder:validation:Enum=flannel;none
	Plugin string `json:"plugin,omitempty"`
	// Pod addresses: one range, or for dual stack one IPv4 and one IPv6 range. A host
	// takes a `/24` (IPv6: `/64`) from it. Cannot be changed. Default:
	// `[10.244.0.0/16]`.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=49
	// +listType=atomic
	PodCIDR []string `json:"podCIDR,omitempty"`
	// Service addresses, `/12` to `/28` (IPv6: `/108` to `/124`), with the IP versions
	// in the same order. Cannot be changed. Default: `[10.96.0.0/16]`.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=49
	// +listType=atomic
	ServiceCIDR []string `json:"serviceCIDR,omitempty"`
	// Settings of flannel.
	Flannel Flannel `json:"flannel,omitempty"`
}

// Flannel has the settings of the plugin flannel.
type Flannel struct {
	// `vxlan`, or `host-gw` if all nodes share one network. Default: `vxlan`.
	// +kubebuilder:validation:Enum=vxlan;host-gw
	Backend string `json:"backend,omitempty"`
	// The MTU of pod interfaces; `0` is the default of flannel. Default: `0`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MTU int `json:"mtu,omitempty"`
}

// ContainerRuntime runs containers.
type ContainerRuntime struct {
	// `containerd`, or `docker`, which needs a bundle with Docker. Default:
	// `containerd`.
	// +kubebuilder:validation:Enum=containerd;docker
	Type string `json:"type,omitempty"`
	// More containerd settings, in TOML, of version 3 and without `version`. containerd
	// imports this file after Slipway's file. A section of a plugin in it can replace
	// Slipway's section. `root`, `state` and `root_path` of a snapshotter are not
	// allowed: mount a data disk at `/var/lib/containerd`.
	Config string `json:"config,omitempty"`
}

// Registry configures the sources of images that are not in the bundle.
type Registry struct {
	// Mirrors of a registry, tried in order. `https://host/v2/team` is a namespace of a
	// registry that has its images.
	Mirrors map[string][]string `json:"mirrors,omitempty"`
	// Registries (`host:port`) whose certificates are not verified.
	// +listType=atomic
	Insecure []string `json:"insecure,omitempty"`
	// Logins and CAs for registries and mirrors.
	// +listType=map
	// +listMapKey=registry
	Auths []RegistryAuth `json:"auths,omitempty"`
	// The registry on the host with the role `registry`. Default: set if a host has that
	// role.
	Private *PrivateRegistry `json:"private,omitempty"`
}

// PrivateRegistry is the registry on one of the hosts. It has the images of the
// bundle, and images that users push to it. Nodes have its login and trust its CA.
type PrivateRegistry struct {
	// The port of the registry. Default: `5000`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// DNS names of the registry, which Slipway adds on all hosts. The first one is used
	// in image names. Without a name, image names have the internal address of the
	// host.
	// +listType=atomic
	Names []string `json:"names,omitempty"`
	// The directory for images, on the host. Cannot be changed. Default:
	// `/var/lib/slipway-registry`.
	Directory string `json:"directory,omitempty"`
	// The only user of the registry. Default: `slipway`.
	Username string `json:"username,omitempty"`
	// The password of the user, at most 72 bytes. Default: generated, and saved in
	// Slipway's state.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// The certificate of the registry (PEM). Default: created by Slipway.
	CertFile string `json:"certFile,omitempty"`
	// The key of `certFile`. Default: created by Slipway.
	KeyFile string `json:"keyFile,omitempty"`
	// With `certFile`: certificates of its CA, for nodes to trust.
	CAFile string `json:"caFile,omitempty"`
	// Registries for which nodes use this registry first. Not with Docker. Default:
	// `docker.io`, `ghcr.io`, `quay.io`, `registry.k8s.io` and `slipway.dev`; with Docker
	// none.
	// +listType=atomic
	MirrorOf []string `json:"mirrorOf,omitempty"`
}

// RegistryAuth has the login and the CA of one registry or mirror. The credentials
// are only sent to that host.
type RegistryAuth struct {
	// The registry, or the host of a mirror: `host` or `host:port`.
	Registry string `json:"registry"`
	// The user; needs `passwordFrom`.
	Username string `json:"username,omitempty"`
	// The password or token of the user.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// PEM certificates of the registry's CA, trusted in addition to the CAs of the
	// host.
	CAFile string `json:"caFile,omitempty"`
}

// DNS has settings of CoreDNS and of the hosts files.
type DNS struct {
	// Upstream servers of the cluster DNS: addresses, with `:port` if it is not 53.
	// Default: the DNS servers of each host.
	// +kubebuilder:validation:MaxItems=15
	// +listType=atomic
	Upstream []string `json:"upstream,omitempty"`
	// Zones with their own servers in the cluster DNS. The longest matching name
	// decides.
	// +listType=atomic
	Zones []DNSZone `json:"zones,omitempty"`
	// More entries, address to names, for the hosts file of every host and for the
	// cluster DNS.
	Hosts map[string][]string `json:"hosts,omitempty"`
}

// DNSZone holds the servers for some zones of the cluster DNS.
type DNSZone struct {
	// The zones: `corp.example.com`, or `10.in-addr.arpa` for addresses. They must not
	// overlap with `kubernetes.dnsDomain`.
	// +kubebuilder:validation:MinItems=1
	// +listType=atomic
	Names []string `json:"names"`
	// The servers of these zones: addresses, with `:port` if it is not 53. At most 15.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +listType=atomic
	Servers []string `json:"servers"`
	// The longest time that CoreDNS keeps an answer of these servers. Default: `30`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	CacheSeconds int `json:"cacheSeconds,omitempty"`
}

// System configures the preparation of the hosts.
type System struct {
	// Time servers. Default: the servers of the host.
	// +listType=atomic
	NTPServers []string `json:"ntpServers,omitempty"`
	// A time zone, such as `Europe/Berlin`. Default: the time zone of the host.
	Timezone string `json:"timezone,omitempty"`
	// Kernel settings; they override Slipway's settings.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Limits of login sessions on nodes, also of root: `nofile`, `nproc`, `memlock`
	// (KiB), `core` (KiB). A number, `unlimited`, or `SOFT:HARD`.
	Limits map[string]string `json:"limits,omitempty"`
	// `true`: Slipway does not change kernel settings, limits, time and swap, but the
	// prechecks still require correct values. On an existing cluster, earlier settings
	// by Slipway remain until `delete cluster`. Default: `false`.
	SkipConfigure bool `json:"skipConfigure,omitempty"`
}

// HookPhase selects when a hook runs.
// +kubebuilder:validation:Enum=preInstall;postControlPlane;postInstall;preDelete;preUpgrade;postUpgrade
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
	// A unique name: a–z, 0–9 and `-`.
	Name string `json:"name"`
	// `preInstall`, `postControlPlane`, `postInstall`, `preDelete`, `preUpgrade` or
	// `postUpgrade`.
	Phase HookPhase `json:"phase"`
	// The roles of the hosts on which the hook runs: `control-plane`, `worker`. Default:
	// all hosts.
	// +kubebuilder:validation:items:Enum=control-plane;worker
	// +listType=atomic
	Roles []Role `json:"roles,omitempty"`
	// The file of the script.
	Script string `json:"script"`
	// Files that are sent to the same directory, with their base names.
	// +listType=atomic
	Materials []string `json:"materials,omitempty"`
	// After this time the hook is stopped and counts as failed. Default: `10m`.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// `true`: the operation continues if the hook fails. Default: `false`.
	IgnoreErrors bool `json:"ignoreErrors,omitempty"`
}

// Addon is installed in the running cluster: manifests, a chart, or the content that
// the bundle has under the name of the add-on.
type Addon struct {
	// A unique name: a–z, 0–9 and `-`, at most 40 characters. Every object has it in
	// the label `slipway.dev/addon`.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Files, directories (their `*.yaml`, `*.yml` and `*.json`, sorted by name) or
	// URLs, which the manager downloads. `https://…@sha256:…` pins the content.
	// +listType=atomic
	Manifests []string `json:"manifests,omitempty"`
	// A chart, instead of manifests.
	Chart *Chart `json:"chart,omitempty"`
	// Values of the chart, or of `local-path`.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Values Object `json:"values,omitempty"`
	// Files with values: a later file overrides an earlier one, and `values` overrides
	// all files.
	// +listType=atomic
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// The namespace of objects without a namespace. Slipway creates it if it is
	// missing, and does not delete it. Default: `default`.
	Namespace string `json:"namespace,omitempty"`
	// The minor versions that the add-on supports, `"1.37"`. For another version,
	// Slipway rejects the cluster or the upgrade; `--ignore-check addons` skips this
	// check. Default: all.
	// +listType=atomic
	Kubernetes []string `json:"kubernetes,omitempty"`
	// `false`: do not wait for its pods. Default: `true`.
	Wait *bool `json:"wait,omitempty"`
	// How long to wait for its pods. Default: `5m`.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// How many more times to try after a failure, at most 10. Default: `0`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Retries int `json:"retries,omitempty"`
}

// Chart is the source of a Helm chart: Path, or Repository, Name and Version.
type Chart struct {
	// A directory or an archive.
	Path string `json:"path,omitempty"`
	// A chart repository, `https://…`, or a path in a registry, `oci://HOST/PATH`,
	// without the chart's name.
	Repository string `json:"repository,omitempty"`
	// The name of the chart. Required with `repository`.
	Name string `json:"name,omitempty"`
	// One exact version of the chart. Required with `repository`.
	Version string `json:"version,omitempty"`
	// `sha256:` and the checksum of the archive. Default: from the repository.
	Digest string `json:"digest,omitempty"`
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
	// `Pending`, `Prechecking`, `Creating`, `Running`, `Scaling`, `Upgrading`,
	// `Reconfiguring`, `Paused`, `Failed` or `Deleting`.
	Phase Phase `json:"phase,omitempty"`
	// Conditions, as in other Kubernetes objects.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The Kubernetes version.
	Version string `json:"version,omitempty"`
	// The network plugin.
	Plugin string `json:"networkPlugin,omitempty"`
	// The URL of the API.
	Endpoint string `json:"endpoint,omitempty"`
	// The nodes.
	// +listType=map
	// +listMapKey=name
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// The ID of the latest operation.
	Operation string `json:"operation,omitempty"`
}

// NodeStatus is the observed state of one node.
type NodeStatus struct {
	// The name of the node.
	Name string `json:"name"`
	// The address of the node.
	InternalIP string `json:"internalIP,omitempty"`
	// The ID of its machine, when Slipway last saw it.
	MachineID string `json:"machineID,omitempty"`
	// The roles of the node.
	// +listType=set
	Roles []Role `json:"roles,omitempty"`
	// The version of its kubelet.
	Version string `json:"version,omitempty"`
	// Whether the node is ready.
	Ready bool `json:"ready"`
	// Why the node is not ready.
	Message string `json:"message,omitempty"`
}
