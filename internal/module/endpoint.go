package module

import (
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
)

// KeepalivedManifest is the static pod of a control plane that may hold the
// API's address.
const KeepalivedManifest = "/etc/kubernetes/manifests/slipway-keepalived.yaml"

// KubeVIPManifest is the same of kube-vip.
const KubeVIPManifest = "/etc/kubernetes/manifests/slipway-kube-vip.yaml"

// What kube-vip asks the API with: a directory that it has as /etc/kubernetes.
const (
	KubeVIPDir  = "/etc/kubernetes/slipway/kube-vip"
	KubeVIPCert = KubeVIPDir + "/client.crt"
	KubeVIPKey  = KubeVIPDir + "/client.key"
)

// EndpointImages are those that a host needs for the API to be found in a
// mode.
func EndpointImages(mode v1alpha1.EndpointMode, h *engine.Host) []string {
	if h.HasRole(v1alpha1.RoleControlPlane) {
		return map[v1alpha1.EndpointMode][]string{
			v1alpha1.EndpointKeepalived: {"keepalived"},
			v1alpha1.EndpointKubeVIP:    {"kube-vip"},
			v1alpha1.EndpointUpdater:    {"apiserver-updater"},
		}[mode]
	}
	return map[v1alpha1.EndpointMode][]string{
		v1alpha1.EndpointHAProxy: {"haproxy"},
		v1alpha1.EndpointUpdater: {"haproxy", "keepalived"},
	}[mode]
}
