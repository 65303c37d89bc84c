package module

import (
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
)

// KeepalivedManifest is the static pod of keepalived on a control plane that can hold the
// API address.
const KeepalivedManifest = "/etc/kubernetes/manifests/slipway-keepalived.yaml"

// KubeVIPManifest is the static pod of kube-vip.
const KubeVIPManifest = "/etc/kubernetes/manifests/slipway-kube-vip.yaml"

// The credentials of kube-vip for the API. It mounts the directory as /etc/kubernetes.
const (
	KubeVIPDir  = "/etc/kubernetes/slipway/kube-vip"
	KubeVIPCert = KubeVIPDir + "/client.crt"
	KubeVIPKey  = KubeVIPDir + "/client.key"
)

// EndpointImages returns the images that a host needs for the endpoint mode.
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
