package module

import (
	"slices"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
)

// SigningCert is the one certificate that controller managers sign with while the
// cluster's authority is exchanged: they refuse a file that holds more, and what
// everybody trusts holds two then. A control plane that has it goes by it.
const SigningCert = "/etc/kubernetes/pki/ca-signing.crt"

// NextCA is the cluster's authority that comes, on the control plane that speaks
// for the cluster: as long as it is there, an exchange is not over.
const NextCA = "/etc/slipway/rotate/cluster-ca.crt"

// KeyKubeAfter is a client with administrator's rights, by what the administrator
// has when the cluster's authority has been exchanged.
var KeyKubeAfter = engine.NewKey[*kube.Client]("kube-after", nil)

// SignsApart says that a control plane signs with what is in SigningCert.
func SignsApart(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, SigningCert)
}
