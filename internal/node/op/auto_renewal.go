package op

import "time"

// An AutoRenewal lists what a host renews automatically when it is due.
type AutoRenewal struct {
	Cluster string `json:"cluster"`
	// Ops lists renewals, in this order, and restarts of programs that read the
	// certificates at their start.
	Ops List `json:"ops"`
	// Serves lists what the host serves when it is healthy. After a renewal, Slipway
	// waits for it if it responded before.
	Serves List `json:"serves,omitempty"`
	// Peers are URLs of the API servers on other hosts, and Own the URL of the one on
	// this host. If one of them does not respond and another does, only certificates that
	// cannot wait are renewed.
	Own   string   `json:"own,omitempty"`
	Peers []string `json:"peers,omitempty"`
}

// An AutoOutcome is the result of the latest certificate check on the host.
type AutoOutcome struct {
	At     time.Time  `json:"at"`
	Result AutoResult `json:"result"`
	// Message is the reason for a result other than AutoNothing or AutoRenewed.
	Message string `json:"message,omitempty"`
	// Renewed lists the files of the last renewal, and RenewedAt is its time.
	Renewed   []string  `json:"renewed,omitempty"`
	RenewedAt time.Time `json:"renewedAt,omitzero"`
}

// AutoResult is the result in one word.
type AutoResult string

// The results.
const (
	// AutoBegun means that a renewal was interrupted; the next run continues it.
	AutoBegun     AutoResult = "begun"
	AutoNothing   AutoResult = "nothing-due"
	AutoRenewed   AutoResult = "renewed"
	AutoPostponed AutoResult = "postponed"
	AutoFailed    AutoResult = "failed"
)

// AutoOutcomeFile is the file in which a host stores the result.
const AutoOutcomeFile = "/var/lib/slipway/renewal.json"

// An AutoApproval configures how a control plane approves, without a manager, the
// requests of the cluster's kubelets for new serving certificates.
type AutoApproval struct {
	// Get is the command that reads from the API, and Put the command that replaces an
	// object. The last argument of both is the start of the path of all requests; a
	// query, or the rest of the path of one request, is appended.
	Get []string `json:"get"`
	Put []string `json:"put"`
	// Kubelets lists all kubelets of the cluster.
	Kubelets []KubeletIdentity `json:"kubelets"`
}

// A KubeletIdentity has the names that a kubelet can have certified: the name of its
// node, which is also the host name, and IP addresses.
type KubeletIdentity struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}
