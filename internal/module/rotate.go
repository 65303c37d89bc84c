package module

import (
	"slices"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
)

// SigningCert is the CA certificate that controller managers sign with during a rotation
// of the cluster CA. They reject a file with several certificates, and the file that
// everyone trusts has two then. A control plane that has SigningCert signs with it.
const SigningCert = "/etc/kubernetes/pki/ca-signing.crt"

// NextCA is the new cluster CA, on the leader control plane. A rotation is not complete as
// long as this file exists.
const NextCA = "/etc/slipway/rotate/cluster-ca.crt"

// KeyKubeAfter is a client with administrator rights, with the credentials after the
// rotation of the cluster CA.
var KeyKubeAfter = engine.NewKey[*kube.Client]("kube-after", nil)

// SignsApart reports whether a control plane signs with SigningCert.
func SignsApart(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, SigningCert)
}
