package controlplane

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // each install package registers the kinds of a group
	_ "k8s.io/kubernetes/pkg/apis/apiserverinternal/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	_ "k8s.io/kubernetes/pkg/features" // registers the feature gates of Kubernetes
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	certapproval "k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	certsigning "k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	certsubject "k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"

	"slipway.dev/slipway/internal/safefile"
)

const (
	// The audit log: the number of old files, and the size of each in MB.
	auditFiles, auditMegabytes = 10, 100
	// watchStopTime limits the time in which all watches end at a stop.
	watchStopTime = 3 * time.Second
)

// auditPolicy selects the audited requests: all writes, without their bodies. Leases are
// renewed every few seconds and say nothing about a user.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
- level: None
  nonResourceURLs: [/livez*, /readyz*, /healthz*, /version, /metrics, /api*, /openapi/*]
- level: Metadata
`

// servedResources returns the native resources of the server: the stable versions of the
// groups that a management API needs. Quotas need a controller that the server does not have.
func servedResources() *serverstorage.ResourceConfig {
	r := serverstorage.NewResourceConfig()
	r.EnableVersions(
		admissionregistrationv1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion,
		certificatesv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, corev1.SchemeGroupVersion,
		eventsv1.SchemeGroupVersion, flowcontrolv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion,
	)
	r.DisableResources(corev1.SchemeGroupVersion.WithResource("resourcequotas"))
	return r
}

// admissionPlugins are the admission plugins of the server. The others are about pods, nodes,
// volumes and quotas.
var admissionPlugins = []string{
	lifecycle.PluginName, mutatingwebhook.PluginName, validatingwebhook.PluginName,
	mutatingpolicy.PluginName, validatingpolicy.PluginName,
	certapproval.PluginName, certsigning.PluginName, certsubject.PluginName,
}

// newOptions returns the options of the API server.
func (s *Server) newOptions(ctx context.Context, listener net.Listener) (*options.Options, error) {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("the listener at %s is not a TCP listener", listener.Addr())
	}
	o := options.NewOptions()
	o.GenericServerRunOptions.AdvertiseAddress = address.IP
	o.GenericServerRunOptions.ExternalHost = listener.Addr().String()
	// At a stop, watches end at once, and new requests get 429 until the others have ended.
	o.GenericServerRunOptions.ShutdownSendRetryAfter = true
	o.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = watchStopTime
	o.SystemNamespaces = []string{"kube-system", "default", SystemNamespace}
	o.SecureServing.Listener = listener
	o.SecureServing.BindAddress, o.SecureServing.BindPort = address.IP, address.Port
	o.SecureServing.ServerCert.CertKey = serveroptions.CertKey{
		CertFile: s.config.Certificates.ServingCertFile(), KeyFile: s.config.Certificates.ServingKeyFile(),
	}
	o.Admission.GenericAdmission.DefaultOffPlugins = sets.New(kubeoptions.AllOrderedPlugins...).Difference(sets.New(admissionPlugins...))
	registerClusterCheck(o.Admission.GenericAdmission.Plugins, s.config.Admission)
	o.Admission.GenericAdmission.RecommendedPluginOrder = append(o.Admission.GenericAdmission.RecommendedPluginOrder, clusterPlugin)
	o.Authorization.Modes = []string{modes.ModeRBAC}
	s.setStorage(o)
	if err := s.setAudit(o); err != nil {
		return nil, err
	}
	return o, s.setAuthentication(ctx, o)
}

// setStorage sets the options of the storage in etcd.
func (s *Server) setStorage(o *options.Options) {
	o.Etcd.StorageConfig.Transport.ServerList = s.etcd.servers
	o.Etcd.StorageConfig.Transport.TrustedCAFile = s.etcd.tls.TrustedCAFile
	o.Etcd.StorageConfig.Transport.CertFile = s.etcd.tls.CertFile
	o.Etcd.StorageConfig.Transport.KeyFile = s.etcd.tls.KeyFile
	o.Etcd.StorageConfig.Prefix = s.etcd.prefix
	o.Etcd.StorageConfig.CompactionInterval = s.config.CompactionInterval
	o.Etcd.EncryptionProviderConfigFilepath = s.config.Keys.EncryptionConfig()
	o.Etcd.EncryptionProviderConfigAutomaticReload = true
}

// setAudit sets the options of the audit log.
func (s *Server) setAudit(o *options.Options) error {
	policy := s.config.Dir.Path("tmp", "audit-policy.yaml")
	if err := safefile.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	o.Audit.PolicyFile = policy
	o.Audit.LogOptions.Path = filepath.Join(s.config.Dir.Path("audit"), "audit.log")
	o.Audit.LogOptions.MaxBackups, o.Audit.LogOptions.MaxSize = auditFiles, auditMegabytes
	return nil
}
