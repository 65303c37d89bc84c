// Package plan represents what an operation will do: steps, their changes, and a digest. A
// plan holds no time, random value, secret or volatile fact, so the same spec, bundle and
// hosts give the same bytes.
package plan

import "slipway.dev/slipway/internal/node/op"

// A Plan represents what an operation will do. It can be read and compared.
type Plan struct {
	APIVersion string `json:"apiVersion"` // "slipway.dev/v1alpha1"
	KindName   string `json:"kind"`       // "Plan"
	Cluster    string `json:"cluster"`
	// Operation is the kind of the operation: create, apply, delete, init-os…
	Operation string `json:"operation"`
	// SpecDigest, BundleDigest and FactsDigest are the digests of the inputs of the plan.
	SpecDigest   string `json:"specDigest"`
	BundleDigest string `json:"bundleDigest,omitempty"`
	FactsDigest  string `json:"factsDigest"`
	// ClusterUID is the UID of the Cluster object, "" for a cluster file. A plan is not valid for a later
	// object with the same name.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Files maps the name of each file of the Cluster object to a keyed digest of its content.
	Files map[string]string `json:"files,omitempty"`
	// Bundle describes the bundle for the user: version, source, size, and whether it must
	// be compiled.
	Bundle *BundleNote `json:"bundle,omitempty"`
	// Steps lists the steps that would change something, or whose changes are not known
	// yet.
	Steps []Step `json:"steps"`
	// Removes lists hosts and data that would be lost. Applying such a plan needs the
	// consent of the user.
	Removes []string `json:"removes,omitempty"`
	// Digest covers all of the above.
	Digest string `json:"digest"`
	// Spec is the cluster that the plan was made for, so that a saved plan can be applied
	// without other files. It has no inline secrets.
	Spec []byte `json:"spec,omitempty"`
}

// BundleNote describes where the bundle comes from.
type BundleNote struct {
	Kubernetes string `json:"kubernetes"`
	Source     string `json:"source"` // cached, modules, upstream, or a path
	SizeBytes  int64  `json:"sizeBytes,omitempty"`
	Compile    bool   `json:"compile"`
}

// A State describes how much the plan knows about a step.
type State string

// The states. A plan has no unchanged steps.
const (
	Change      State = "change"
	Pending     State = "pending"     // known after another task
	Uncheckable State = "uncheckable" // a user's script: always runs
)

// A Step is one task on one host.
type Step struct {
	Module string `json:"module"`
	Task   string `json:"task"`
	Title  string `json:"title"`
	Host   string `json:"host,omitempty"` // "" is the manager
	State  State  `json:"state"`
	// After is the task whose value the step waits for, if State is Pending.
	After string `json:"after,omitempty"`
	// Changes lists the operations that would change something; for a pending step,
	// everything that it may do.
	Changes []OpChange `json:"changes,omitempty"`
}

// An OpChange describes the effect of one operation.
type OpChange struct {
	Kind    op.Kind `json:"kind"`
	Target  string  `json:"target"`
	Summary string  `json:"summary,omitempty"`
	Diff    string  `json:"diff,omitempty"`
}

// IsEmpty reports whether there is nothing to do and nothing to lose.
func (p *Plan) IsEmpty() bool { return len(p.Steps) == 0 && len(p.Removes) == 0 }
