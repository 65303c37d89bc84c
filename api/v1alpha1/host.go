package v1alpha1

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
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
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
// +kubebuilder:validation:XValidation:rule=`(has(self.file) && self.file != "") != (has(self.env) && self.env != "")`,message="exactly one of file and env must be set"
type SecretSource struct {
	// The file with the secret; a line break at its end is removed.
	File string `json:"file,omitempty"`
	// The environment variable with the secret, instead of `file`.
	Env string `json:"env,omitempty"`
}
