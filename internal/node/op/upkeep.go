package op

import "time"

// Self is the node helper's own program at Path, for units that run it when no
// manager is there. Another version of it is another program.
type Self struct {
	Path string `json:"path"`
}

// KindSelf is the helper's program.
const KindSelf Kind = "helper"

// Kind is KindSelf.
func (Self) Kind() Kind { return KindSelf }

// Target is where the program is.
func (o Self) Target() string { return o.Path }

// An AutoRenewal is what a host renews by itself, when it is due.
type AutoRenewal struct {
	Cluster string `json:"cluster"`
	// Ops are renewals, in this order, and restarts of what reads them when it
	// starts.
	Ops List `json:"ops"`
	// Serves is what the host itself serves when all is well with it: waited for
	// after something was renewed, if it answered before.
	Serves List `json:"serves,omitempty"`
	// Peers are URLs of the API servers of other hosts, and Own that of this
	// one. When one of them does not answer and another does, only what has no
	// time left to wait is renewed.
	Own   string   `json:"own,omitempty"`
	Peers []string `json:"peers,omitempty"`
}

// An AutoOutcome is what came of the latest look that a host took at its own
// certificates.
type AutoOutcome struct {
	At     time.Time  `json:"at"`
	Result AutoResult `json:"result"`
	// Message is why, if it is not AutoNothing or AutoRenewed.
	Message string `json:"message,omitempty"`
	// Renewed are the files that were renewed when that was last so, and
	// RenewedAt is when.
	Renewed   []string  `json:"renewed,omitempty"`
	RenewedAt time.Time `json:"renewedAt,omitzero"`
}

// AutoResult is such an outcome in one word.
type AutoResult string

// The results.
const (
	// AutoBegun is found when it was cut off, and is gone on with.
	AutoBegun     AutoResult = "begun"
	AutoNothing   AutoResult = "nothing-due"
	AutoRenewed   AutoResult = "renewed"
	AutoPostponed AutoResult = "postponed"
	AutoFailed    AutoResult = "failed"
)

// AutoOutcomeFile is where a host keeps it.
const AutoOutcomeFile = "/var/lib/slipway/renewal.json"

// An AutoApproval is how a control plane approves, with no manager there, what
// kubelets of the cluster ask for when they renew their serving certificates.
type AutoApproval struct {
	// Get is the command that prints something of the API, and Put the one that
	// replaces it. The last argument of both ends with the path of all requests: a
	// query, or the path of one request, is added to it.
	Get []string `json:"get"`
	Put []string `json:"put"`
	// Kubelets are all kubelets of the cluster.
	Kubelets []KubeletIdentity `json:"kubelets"`
}

// A KubeletIdentity is what a kubelet may have certified: the name of its node,
// which is also the host's name, and IP addresses.
type KubeletIdentity struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}
