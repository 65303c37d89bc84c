package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// The number of days for which a file is kept. Default: `30`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=36500
	MaxAge int `json:"maxAge,omitempty"`
	// The number of files that are kept in addition to the current one. Default: `10`.
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
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule=`duration(self) > duration("0s")`,message="the duration must be above zero"
	Validity *metav1.Duration `json:"validity,omitempty"`
	// The validity of CAs; at least `validity`. Default: `87600h` (ten years).
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule=`duration(self) > duration("0s")`,message="the duration must be above zero"
	CAValidity *metav1.Duration `json:"caValidity,omitempty"`
	// Each host renews its own certificates with a timer when they are due. Can be
	// changed at any time. Default: `true`.
	AutoRenew *bool `json:"autoRenew,omitempty"`
}
