package kubekey

// The types of KubeKey 3's Cluster, kubekey.kubesphere.io/v1alpha2, with the fields that
// a file can set; names are JSON names.

type cluster struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   metadata       `json:"metadata"`
	Spec       clusterSpec    `json:"spec"`
	Status     map[string]any `json:"status"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type clusterSpec struct {
	Hosts                []host               `json:"hosts"`
	RoleGroups           map[string][]string  `json:"roleGroups"`
	ControlPlaneEndpoint controlPlaneEndpoint `json:"controlPlaneEndpoint"`
	System               system               `json:"system"`
	Etcd                 etcd                 `json:"etcd"`
	DNS                  dns                  `json:"dns"`
	Kubernetes           kubernetes           `json:"kubernetes"`
	Network              network              `json:"network"`
	Storage              storage              `json:"storage"`
	Registry             registry             `json:"registry"`
	Addons               []addon              `json:"addons"`
	KubeSphere           kubeSphere           `json:"kubesphere"`
}

type host struct {
	Name            string            `json:"name"`
	Address         string            `json:"address"`
	InternalAddress string            `json:"internalAddress"` // IPv4, or "IPv4,IPv6"
	Port            int               `json:"port"`
	User            string            `json:"user"`
	Password        string            `json:"password"`
	PrivateKey      string            `json:"privateKey"`
	PrivateKeyPath  string            `json:"privateKeyPath"`
	Arch            string            `json:"arch"`
	Timeout         *int64            `json:"timeout"` // seconds
	Labels          map[string]string `json:"labels"`
}

type controlPlaneEndpoint struct {
	InternalLoadbalancer string  `json:"internalLoadbalancer"` // "", haproxy, kube-vip
	Domain               string  `json:"domain"`
	ExternalDNS          *bool   `json:"externalDNS"`
	Address              string  `json:"address"`
	Port                 int     `json:"port"`
	KubeVip              kubeVip `json:"kubevip"`
}

type kubeVip struct {
	Mode string `json:"mode"` // ARP, BGP
}

type system struct {
	NtpServers         []string `json:"ntpServers"`
	Timezone           string   `json:"timezone"`
	Rpms               []string `json:"rpms"`
	Debs               []string `json:"debs"`
	PreInstall         []script `json:"preInstall"`
	PostClusterInstall []script `json:"postClusterInstall"`
	PostInstall        []script `json:"postInstall"`
	SkipConfigureOS    bool     `json:"skipConfigureOS"`
}

type script struct {
	Name      string   `json:"name"`
	Bash      string   `json:"bash"`
	Role      string   `json:"role"`
	Materials []string `json:"materials"`
}

type etcd struct {
	Type                    string       `json:"type"` // kubekey, kubeadm, external
	External                externalEtcd `json:"external"`
	Port                    *int         `json:"port"`
	PeerPort                *int         `json:"peerPort"`
	ExtraArgs               []string     `json:"extraArgs"` // lines of /etc/etcd.env
	BackupDir               string       `json:"backupDir"`
	BackupPeriod            int          `json:"backupPeriod"` // minutes
	KeepBackupNumber        int          `json:"keepBackupNumber"`
	BackupScript            string       `json:"backupScript"`
	DataDir                 *string      `json:"dataDir"`
	HeartbeatInterval       *int         `json:"heartbeatInterval"` // milliseconds
	ElectionTimeout         *int         `json:"electionTimeout"`   // milliseconds
	SnapshotCount           *int         `json:"snapshotCount"`
	AutoCompactionRetention *int         `json:"autoCompactionRetention"` // hours
	Metrics                 *string      `json:"metrics"`
	QuotaBackendBytes       *int64       `json:"quotaBackendBytes"`
	MaxRequestBytes         *int64       `json:"maxRequestBytes"`
	MaxSnapshots            *int         `json:"maxSnapshots"`
	MaxWals                 *int         `json:"maxWals"`
	LogLevel                *string      `json:"logLevel"`
}

type externalEtcd struct {
	Endpoints []string `json:"endpoints"`
	CAFile    string   `json:"caFile"`
	CertFile  string   `json:"certFile"`
	KeyFile   string   `json:"keyFile"`
}

type dns struct {
	DNSEtcHosts  string       `json:"dnsEtcHosts"`
	NodeEtcHosts string       `json:"nodeEtcHosts"`
	CoreDNS      coreDNS      `json:"coredns"`
	NodeLocalDNS nodeLocalDNS `json:"nodelocaldns"`
}

type coreDNS struct {
	AdditionalConfigs  string         `json:"additionalConfigs"`
	ExternalZones      []externalZone `json:"externalZones"`
	RewriteBlock       string         `json:"rewriteBlock"`
	UpstreamDNSServers []string       `json:"upstreamDNSServers"`
}

type nodeLocalDNS struct {
	ExternalZones []externalZone `json:"externalZones"`
}

type externalZone struct {
	Zones       []string `json:"zones"`
	Nameservers []string `json:"nameservers"`
	Cache       int      `json:"cache"`
	Rewrite     []string `json:"rewrite"`
}

type kubernetes struct {
	Type                     string          `json:"type"` // kubernetes, k3s, k8e
	Version                  string          `json:"version"`
	ClusterName              string          `json:"clusterName"`
	DNSDomain                string          `json:"dnsDomain"`
	DisableKubeProxy         bool            `json:"disableKubeProxy"`
	MasqueradeAll            bool            `json:"masqueradeAll"`
	MaxPods                  int             `json:"maxPods"`
	PodPidsLimit             int             `json:"podPidsLimit"`
	NodeCidrMaskSize         int             `json:"nodeCidrMaskSize"`
	NodeCidrMaskSizeIPv6     int             `json:"nodeCidrMaskSizeIPv6"`
	ApiserverCertExtraSans   []string        `json:"apiserverCertExtraSans"`
	ProxyMode                string          `json:"proxyMode"`
	AutoRenewCerts           *bool           `json:"autoRenewCerts"`
	Nodelocaldns             *bool           `json:"nodelocaldns"`
	ContainerManager         string          `json:"containerManager"`
	ContainerRuntimeEndpoint string          `json:"containerRuntimeEndpoint"`
	NodeFeatureDiscovery     enabled         `json:"nodeFeatureDiscovery"`
	Kata                     enabled         `json:"kata"`
	Audit                    enabled         `json:"audit"`
	ApiserverArgs            []string        `json:"apiserverArgs"`
	ControllerManagerArgs    []string        `json:"controllerManagerArgs"`
	SchedulerArgs            []string        `json:"schedulerArgs"`
	KubeletArgs              []string        `json:"kubeletArgs"`
	KubeProxyArgs            []string        `json:"kubeProxyArgs"`
	FeatureGates             map[string]bool `json:"featureGates"`
	KubeletConfiguration     map[string]any  `json:"kubeletConfiguration"`
	KubeProxyConfiguration   map[string]any  `json:"kubeProxyConfiguration"`
	NvidiaRuntime            *bool           `json:"nvidiaRuntime"`
}

type enabled struct {
	Enabled *bool `json:"enabled"`
}

type network struct {
	Plugin          string         `json:"plugin"`
	KubePodsCIDR    string         `json:"kubePodsCIDR"`    // "v4" or "v4,v6"
	KubeServiceCIDR string         `json:"kubeServiceCIDR"` // "v4" or "v4,v6"
	Calico          map[string]any `json:"calico"`
	Flannel         flannel        `json:"flannel"`
	Kubeovn         map[string]any `json:"kubeovn"`
	MultusCNI       enabled        `json:"multusCNI"`
	Hybridnet       map[string]any `json:"hybridnet"`
}

type flannel struct {
	BackendMode   string `json:"backendMode"`
	DirectRouting bool   `json:"directRouting"`
}

type storage struct {
	OpenEBS openEBS `json:"openebs"`
}

type openEBS struct {
	BasePath string `json:"basePath"`
}

type registry struct {
	Type               string                  `json:"type"`
	RegistryMirrors    []string                `json:"registryMirrors"`
	InsecureRegistries []string                `json:"insecureRegistries"`
	PrivateRegistry    string                  `json:"privateRegistry"`
	NamespaceOverride  string                  `json:"namespaceOverride"`
	NamespaceRewrite   map[string]any          `json:"namespaceRewrite"`
	RemoteMirrors      map[string]remoteMirror `json:"remoteMirrors"`
	Auths              map[string]auth         `json:"auths"`
	ContainerdDataDir  string                  `json:"containerdDataDir"`
	DockerDataDir      string                  `json:"dockerDataDir"`
	RegistryDataDir    string                  `json:"registryDataDir"`
	DataRoot           string                  `json:"dataRoot"`
	PlainHTTP          bool                    `json:"plainHTTP"`
	BridgeIP           string                  `json:"bridgeIP"`
}

type remoteMirror struct {
	Endpoint []string `json:"endpoint"`
}

type auth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	SkipTLSVerify bool   `json:"skipTLSVerify"`
	PlainHTTP     bool   `json:"plainHTTP"`
	CertsPath     string `json:"certsPath"`
	CAFile        string `json:"caFile"`
	CertFile      string `json:"certFile"`
	KeyFile       string `json:"keyFile"`
}

type addon struct {
	Name        string         `json:"name"`
	Namespace   string         `json:"namespace"`
	PreInstall  []any          `json:"preInstall"`
	Sources     map[string]any `json:"sources"`
	PostInstall []any          `json:"postInstall"`
	Retries     int            `json:"retries"`
	Delay       int            `json:"delay"`
}

type kubeSphere struct {
	Enabled        bool   `json:"enabled"`
	Version        string `json:"version"`
	Configurations string `json:"configurations"`
}
