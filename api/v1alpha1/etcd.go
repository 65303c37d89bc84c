package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Etcd is the data store of the cluster.
type Etcd struct {
	// `stacked`: an etcd member on every control plane, run by its kubelet. `managed`:
	// a systemd service on the hosts with the role `etcd`. `external`: an etcd that
	// Slipway does not manage. Cannot be changed. Default: `stacked`.
	// +kubebuilder:validation:Enum=stacked;managed;external
	Type string `json:"type,omitempty"`
	// Flags of etcd, without dashes: `quota-backend-bytes: "4294967296"`. Flags for the
	// identity, addresses, keys and data directory of a member are not allowed. Not
	// with `external`.
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
	// The endpoints and credentials of an external etcd. Required with `external`.
	External *ExternalEtcd `json:"external,omitempty"`
	// Each etcd host takes and keeps snapshots automatically. Not with `external`. Can
	// be changed at any time.
	Backup *EtcdBackup `json:"backup,omitempty"`
}

// EtcdBackup configures how often each etcd host takes a snapshot, and how many of
// its own snapshots it keeps.
type EtcdBackup struct {
	// The interval of snapshots: `1m` or more. Default: `6h`.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule=`duration(self) >= duration("1m")`,message="the shortest interval is 1m"
	Every *metav1.Duration `json:"every,omitempty"`
	// The number of snapshots that each host keeps, 1 to 1000. Default: `8`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Keep int `json:"keep,omitempty"`
	// How often each host runs a restore test with its newest snapshot, in a temporary
	// etcd; at least `every`. `0s`: never. Default: `168h`, or `every` if that is
	// longer.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	DrillEvery *metav1.Duration `json:"drillEvery,omitempty"`
	// age public keys (`age1…`) for the encryption of copies. The private key of any of
	// them decrypts the copies. Required with `copies`.
	// +listType=atomic
	Recipients []string `json:"recipients,omitempty"`
	// The targets to which each host copies its snapshots, as encrypted backup sets. Each entry has
	// `directory`, `ssh` or `s3`. Only etcd hosts that are control planes make copies.
	// +listType=map
	// +listMapKey=name
	Copies []EtcdCopy `json:"copies,omitempty"`
}

// EtcdCopy is a target for copies of backup sets: exactly one of `directory`, `ssh` and
// `s3`.
// +kubebuilder:validation:XValidation:rule=`(has(self.directory) && self.directory != "" ? 1 : 0) + (has(self.ssh) ? 1 : 0) + (has(self.s3) ? 1 : 0) == 1`,message="exactly one of directory, ssh and s3 must be set"
type EtcdCopy struct {
	// The name of the copy target: a–z, 0–9 and `-`, at most 63 characters, unique.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// The number of copies that each host keeps there, 1 to 1000. Default: `keep`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Keep int `json:"keep,omitempty"`
	// A directory on every host that makes copies; another disk must be mounted there.
	Directory string `json:"directory,omitempty"`
	// A directory on another machine, through SFTP.
	SSH *SSHCopy `json:"ssh,omitempty"`
	// A bucket of S3-compatible storage.
	S3 *S3Copy `json:"s3,omitempty"`
}

// S3Copy is a bucket of S3-compatible storage.
type S3Copy struct {
	// The URL of the storage, reachable from the hosts: `https://s3.example.com:9000`.
	Endpoint string `json:"endpoint"`
	// The region of the bucket. For storage without regions, keep the default. Default:
	// `us-east-1`.
	Region string `json:"region,omitempty"`
	// An existing bucket.
	Bucket string `json:"bucket"`
	// A prefix of the object keys, before `/` and the name of the copy: `etcd/prod`.
	Prefix string `json:"prefix,omitempty"`
	// `true`: the bucket is in the path, `https://HOST/BUCKET`. `false`: it is in the
	// host name, `https://BUCKET.HOST`. Default: `true`, except for AWS.
	PathStyle *bool `json:"pathStyle,omitempty"`
	// PEM certificates of the storage's CA, trusted in addition to the CAs of the
	// system. Slipway stores them on the etcd hosts. Default: the CAs of the system.
	CAFile string `json:"caFile,omitempty"`
	// `file` or `env`: the access key. Slipway stores it on the hosts that make copies.
	AccessKeyFrom *SecretSource `json:"accessKeyFrom"`
	// `file` or `env`: the secret key of the access key. Slipway stores it on the same
	// hosts.
	SecretKeyFrom *SecretSource `json:"secretKeyFrom"`
}

// SSHCopy is a directory on another machine, through SFTP.
type SSHCopy struct {
	// The name or address of the machine, reachable from the hosts.
	Address string `json:"address"`
	// The SSH port of the machine. Default: `22`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// The user for the login.
	User string `json:"user"`
	// An existing directory that the user can write to.
	Directory string `json:"directory"`
	// `file` or `env`: a private key without a passphrase. Slipway stores it on the
	// hosts that make copies.
	PrivateKeyFrom *SecretSource `json:"privateKeyFrom"`
	// The host key of the machine: `ssh-ed25519 AAAA…` or `SHA256:…`.
	HostKey string `json:"hostKey"`
}

// ExternalEtcd is an etcd cluster that Slipway does not manage. The files are on the
// manager, and are copied to the control planes.
type ExternalEtcd struct {
	// The client URLs of the members: `https://10.0.0.21:2379`. They can change, but
	// each change must keep one of them.
	// +kubebuilder:validation:MinItems=1
	// +listType=atomic
	Endpoints []string `json:"endpoints"`
	// The certificate of the CA that signed the members' certificates.
	CAFile string `json:"caFile"`
	// A client certificate that the members accept.
	CertFile string `json:"certFile"`
	// The key of `certFile`, without a passphrase.
	KeyFile string `json:"keyFile"`
}
