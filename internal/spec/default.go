package spec

import (
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

// Defaults that other packages need as well.
const (
	DefaultSSHUser     = "root"
	DefaultSSHPort     = 22
	DefaultAPIPort     = 6443
	DefaultDNSDomain   = "cluster.local"
	DefaultPodCIDR     = "10.244.0.0/16"
	DefaultServiceCIDR = "10.96.0.0/16"
	DefaultHookTimeout = 10 * time.Minute
	DefaultValidity    = 365 * 24 * time.Hour
	DefaultCAValidity  = 10 * DefaultValidity
	DefaultBackupEvery = 6 * time.Hour
	DefaultBackupKeep  = 8
	DefaultDrillEvery  = 7 * 24 * time.Hour

	DefaultAuditDays      = 30
	DefaultAuditFiles     = 10
	DefaultAuditMegabytes = 100

	localhost = "localhost"
)

// DefaultOptions are the defaults that are not constant.
type DefaultOptions struct {
	// KubernetesVersion fills spec.kubernetes.version; "" leaves it empty.
	KubernetesVersion string
}

// SetDefaults sets the empty fields of c, and writes its addresses like CanonicalizeAddresses. It depends
// only on its arguments, and a second call changes nothing. The internalAddress of a host
// is set if other hosts can use its address; for a name, or localhost, the host itself
// has to report it. User and port of SSH stay empty: the connection takes them from the
// SSH configuration, or uses root and 22.
func SetDefaults(c *v1alpha1.Cluster, opts DefaultOptions) {
	CanonicalizeAddresses(c)
	s := &c.Spec
	for i := range s.Hosts {
		h := &s.Hosts[i]
		if ip, err := netip.ParseAddr(h.Address); err == nil && !ip.IsLoopback() {
			setDefault(&h.InternalAddress, h.Address)
		}
	}
	mode := v1alpha1.EndpointNone
	if len(HostsWithRole(c, v1alpha1.RoleControlPlane)) > 1 {
		mode = v1alpha1.EndpointHAProxy
	}
	setDefault(&s.ControlPlaneEndpoint.Mode, mode)
	setDefault(&s.ControlPlaneEndpoint.Domain, defaultDomain(c.Name))
	setDefault(&s.ControlPlaneEndpoint.Port, DefaultAPIPort)
	setDefault(&s.Kubernetes.Version, opts.KubernetesVersion)
	setDefault(&s.Kubernetes.DNSDomain, DefaultDNSDomain)
	setDefault(&s.Kubernetes.ProxyMode, proxyNFTables)
	setDuration(&s.Kubernetes.Certificates.Validity, DefaultValidity)
	setDuration(&s.Kubernetes.Certificates.CAValidity, DefaultCAValidity)
	if a := s.Kubernetes.Audit; a != nil {
		setDefault(&a.MaxAge, DefaultAuditDays)
		setDefault(&a.MaxBackups, DefaultAuditFiles)
		setDefault(&a.MaxSize, DefaultAuditMegabytes)
	}
	if e := s.Kubernetes.Encryption; e != nil {
		setDefault(&e.Provider, EncryptionSecretbox)
		setDefault(&e.Generation, 1)
		if len(e.Resources) == 0 {
			e.Resources = []string{"secrets"}
		}
	}
	setKubeletDefaults(&s.Kubernetes)
	setDefault(&s.Etcd.Type, EtcdStacked)
	setBackupDefaults(s.Etcd.Backup)
	setDefault(&s.Network.Plugin, pluginFlannel)
	if len(s.Network.PodCIDR) == 0 {
		s.Network.PodCIDR = []string{DefaultPodCIDR}
	}
	if len(s.Network.ServiceCIDR) == 0 {
		s.Network.ServiceCIDR = []string{DefaultServiceCIDR}
	}
	setEndpointDefaults(c)
	if s.Network.Plugin == pluginFlannel {
		setDefault(&s.Network.Flannel.Backend, backendVXLAN)
	}
	setDefault(&s.ContainerRuntime.Type, runtimeContainerd)
	setRegistryDefaults(c)
	for i := range s.Hooks {
		setDuration(&s.Hooks[i].Timeout, DefaultHookTimeout)
	}
}

// serverTLSBootstrap is the field of the kubelet configuration with which a kubelet
// requests its serving certificate from the cluster.
const serverTLSBootstrap = "serverTLSBootstrap"

// SignsKubelets reports whether the kubelets of a cluster use serving certificates that
// the cluster has signed.
func SignsKubelets(c *v1alpha1.Cluster) bool {
	k := c.Spec.Kubernetes.Kubelet
	return k.Config[serverTLSBootstrap] == true || k.ExtraArgs["rotate-server-certificates"] == "true"
}

// setKubeletDefaults makes kubelets request their serving certificates from the cluster,
// unless the user decides otherwise, provides other certificates, or disables the feature
// that it needs. Slipway does not know the addresses of a kubelet with a cloud provider,
// and could not approve its requests.
func setKubeletDefaults(k *v1alpha1.Kubernetes) {
	for _, field := range []string{serverTLSBootstrap, "tlsCertFile", "tlsPrivateKeyFile"} {
		if _, ok := k.Kubelet.Config[field]; ok {
			return
		}
	}
	for _, flag := range []string{"tls-cert-file", "tls-private-key-file", "rotate-server-certificates", "cloud-provider"} {
		if _, ok := k.Kubelet.ExtraArgs[flag]; ok {
			return
		}
	}
	if !rotatesServing(k) {
		return
	}
	if k.Kubelet.Config == nil {
		k.Kubelet.Config = map[string]any{}
	}
	k.Kubelet.Config[serverTLSBootstrap] = true
}

// KeepServing removes the default with which kubelets request their serving certificates
// from the cluster, if the file does not set it and the saved state is older than the
// default.
func KeepServing(c, file, recorded *v1alpha1.Cluster) {
	for _, said := range []*v1alpha1.Cluster{file, recorded} {
		if _, ok := said.Spec.Kubernetes.Kubelet.Config[serverTLSBootstrap]; ok {
			return
		}
	}
	delete(c.Spec.Kubernetes.Kubelet.Config, serverTLSBootstrap)
}

// rotatesServing reports whether kubelets have the feature that serverTLSBootstrap needs:
// without it, a kubelet with that setting does not start. The kubelet's own gates
// override the gates of all components, and a gate overrides AllBeta.
func rotatesServing(k *v1alpha1.Kubernetes) bool {
	own, _ := k.Kubelet.Config["featureGates"].(map[string]any)
	for _, gate := range []string{"RotateKubeletServerCertificate", "AllBeta"} {
		if on, ok := own[gate].(bool); ok {
			return on
		}
		if on, ok := k.FeatureGates[gate]; ok {
			return on
		}
	}
	return true
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setDuration(field **metav1.Duration, value time.Duration) {
	if *field == nil {
		*field = &metav1.Duration{Duration: value}
	}
}

func defaultDomain(cluster string) string {
	if cluster == "" {
		return ""
	}
	return "api." + cluster + ".internal"
}

// KeepLogin keeps user and port of saved state from earlier versions, if the file does
// not set them: such state has root and 22 whether or not the file had them, and the SSH
// configuration must not replace them.
func KeepLogin(c, recorded *v1alpha1.Cluster) {
	if recorded.Spec.SSH.User == DefaultSSHUser {
		setDefault(&c.Spec.SSH.User, DefaultSSHUser)
	}
	if recorded.Spec.SSH.Port == DefaultSSHPort {
		setDefault(&c.Spec.SSH.Port, DefaultSSHPort)
	}
}

// MergeSSH returns the login settings of a host: its own settings override the defaults
// of the cluster, field by field. A credential of the host replaces defaults that would
// contradict it. Fields that neither sets stay empty.
func MergeSSH(defaults, host v1alpha1.SSH) v1alpha1.SSH {
	base := defaults
	ownKey := host.PrivateKeyFile != ""
	ownPassword := host.Password != "" || host.PasswordFrom != nil
	if ownKey || ownPassword {
		base.Agent = nil
	}
	if ownKey {
		base.PassphraseFrom = nil // it belongs to the other key
	}
	if ownPassword {
		base.Password, base.PasswordFrom = "", nil
	}
	if host.Agent != nil && *host.Agent {
		base.PrivateKeyFile, base.PassphraseFrom, base.Password, base.PasswordFrom = "", nil, "", nil
	}
	overrideIfSet(&base.User, host.User)
	overrideIfSet(&base.Port, host.Port)
	overrideIfSet(&base.PrivateKeyFile, host.PrivateKeyFile)
	overrideIfSet(&base.PassphraseFrom, host.PassphraseFrom)
	overrideIfSet(&base.Password, host.Password)
	overrideIfSet(&base.PasswordFrom, host.PasswordFrom)
	overrideIfSet(&base.Agent, host.Agent)
	overrideIfSet(&base.Sudo, host.Sudo)
	overrideIfSet(&base.SudoPasswordFrom, host.SudoPasswordFrom)
	overrideIfSet(&base.Bastion, host.Bastion)
	overrideIfSet(&base.HostKey, host.HostKey)
	return base
}

func overrideIfSet[T comparable](field *T, value T) {
	var zero T
	if value != zero {
		*field = value
	}
}
