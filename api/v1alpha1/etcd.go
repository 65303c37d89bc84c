package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Etcd is the data store of the cluster.
type Etcd struct {
	// Type is stacked (default: a member on every control plane, run by its
	// kubelet), managed (a service on the hosts with the role etcd) or external.
	Type      string            `json:"type,omitempty"`
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
	// External is only for type external.
	External *ExternalEtcd `json:"external,omitempty"`
	// Backup makes etcd hosts take snapshots automatically; nil disables this.
	Backup *EtcdBackup `json:"backup,omitempty"`
}

// EtcdBackup configures how often each etcd host takes a snapshot, and how many of
// its own snapshots it keeps.
type EtcdBackup struct {
	Every *metav1.Duration `json:"every,omitempty"` // default: 6h
	Keep  int              `json:"keep,omitempty"`  // default: 8
	// DrillEvery is the interval of restore tests: each host restores its newest
	// snapshot into a temporary etcd. Default: 168h (a week), or Every if that is
	// longer; 0s: never.
	DrillEvery *metav1.Duration `json:"drillEvery,omitempty"`
	// Recipients lists age public keys (age1…) for the encryption of copies. Copies
	// need at least one.
	Recipients []string `json:"recipients,omitempty"`
	// Copies lists the targets of copies: each snapshot is copied as a backup set.
	Copies []EtcdCopy `json:"copies,omitempty"`
}

// EtcdCopy is a target for copies of backup sets: exactly one of Directory, SSH and
// S3.
type EtcdCopy struct {
	Name string `json:"name"`           // unique
	Keep int    `json:"keep,omitempty"` // for each host; default: as many as the host keeps locally
	// Directory is a directory on every etcd host at which another disk is mounted.
	Directory string   `json:"directory,omitempty"`
	SSH       *SSHCopy `json:"ssh,omitempty"`
	S3        *S3Copy  `json:"s3,omitempty"`
}

// S3Copy is a bucket of S3-compatible storage.
type S3Copy struct {
	Endpoint string `json:"endpoint"`         // https://HOST or https://HOST:PORT
	Region   string `json:"region,omitempty"` // default: us-east-1
	Bucket   string `json:"bucket"`
	// Prefix begins the object keys, before a '/' and the name of the copy.
	Prefix string `json:"prefix,omitempty"`
	// PathStyle puts the bucket into the path instead of the host name; default: true,
	// except for AWS.
	PathStyle *bool `json:"pathStyle,omitempty"`
	// CAFile has PEM certificates of the storage's CA, which are trusted in addition to
	// the CAs of the system.
	CAFile string `json:"caFile,omitempty"`
	// AccessKeyFrom and SecretKeyFrom are stored on the etcd hosts.
	AccessKeyFrom *SecretSource `json:"accessKeyFrom"`
	SecretKeyFrom *SecretSource `json:"secretKeyFrom"`
}

// SSHCopy is a directory on another machine, through SFTP.
type SSHCopy struct {
	Address   string `json:"address"`
	Port      int    `json:"port,omitempty"` // default: 22
	User      string `json:"user"`
	Directory string `json:"directory"`
	// PrivateKeyFrom is a private key without a passphrase. It is stored on the etcd
	// hosts.
	PrivateKeyFrom *SecretSource `json:"privateKeyFrom"`
	// HostKey is the host key of the machine: "ssh-ed25519 AAAA…" or "SHA256:…".
	HostKey string `json:"hostKey"`
}

// ExternalEtcd is an etcd cluster that Slipway does not manage. The files are on the
// manager, and are copied to the control planes.
type ExternalEtcd struct {
	Endpoints []string `json:"endpoints"` // client URLs: https://HOST:PORT
	CAFile    string   `json:"caFile"`    // the CA that signed the members' certificates
	CertFile  string   `json:"certFile"`  // the API servers' client certificate
	KeyFile   string   `json:"keyFile"`
}
