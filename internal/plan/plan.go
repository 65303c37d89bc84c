// Package plan is what an operation will do: steps, their changes, a digest.
// A plan holds no time, random value, secret or volatile fact, so that the
// same spec, bundle and hosts give the same bytes.
package plan

import "slipway.dev/slipway/internal/node/op"

// A Plan is what an operation will do, readable and comparable.
type Plan struct {
	APIVersion string `json:"apiVersion"` // "slipway.dev/v1alpha1"
	KindName   string `json:"kind"`       // "Plan"
	Cluster    string `json:"cluster"`
	// Operation is create, apply, delete, init-os…
	Operation string `json:"operation"`
	// SpecDigest, BundleDigest and FactsDigest are what it was made from.
	SpecDigest   string `json:"specDigest"`
	BundleDigest string `json:"bundleDigest,omitempty"`
	FactsDigest  string `json:"factsDigest"`
	// Bundle is for people: version, source, size, whether to compile.
	Bundle *BundleNote `json:"bundle,omitempty"`
	// Steps are those that would change something or cannot know yet.
	Steps []Step `json:"steps"`
	// Removes lists hosts and data that would be lost; applying such a plan
	// needs leave.
	Removes []string `json:"removes,omitempty"`
	// Digest is over all of the above.
	Digest string `json:"digest"`
	// Spec is the cluster the plan was made for, so that a saved plan can
	// be applied alone. Inline secrets are not in it.
	Spec []byte `json:"spec,omitempty"`
}

// BundleNote says where the bundle comes from.
type BundleNote struct {
	Kubernetes string `json:"kubernetes"`
	Source     string `json:"source"` // cached, modules, upstream, or a path
	SizeBytes  int64  `json:"sizeBytes,omitempty"`
	Compile    bool   `json:"compile"`
}

// A State is what is known of a step.
type State string

// The states. Unchanged steps are not in a plan.
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
	// After is the task whose value is awaited, if State is Pending.
	After string `json:"after,omitempty"`
	// Changes are the operations that would change something; for a
	// pending step, all that it may do.
	Changes []OpChange `json:"changes,omitempty"`
}

// An OpChange is what one operation would do.
type OpChange struct {
	Kind    op.Kind `json:"kind"`
	Target  string  `json:"target"`
	Summary string  `json:"summary,omitempty"`
	Diff    string  `json:"diff,omitempty"`
}

// Empty says that there is nothing to do and nothing to lose.
func (p *Plan) Empty() bool { return len(p.Steps) == 0 && len(p.Removes) == 0 }
