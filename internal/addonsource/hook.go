package addonsource

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A HookPhase is when a chart hook runs: around an installation, around each later
// change, or around the deletion of its objects.
type HookPhase string

// The supported phases.
const (
	PreInstall  HookPhase = "pre-install"
	PostInstall HookPhase = "post-install"
	PreUpgrade  HookPhase = "pre-upgrade"
	PostUpgrade HookPhase = "post-upgrade"
	PreDelete   HookPhase = "pre-delete"
	PostDelete  HookPhase = "post-delete"
)

// A Hook is an object of a chart that is created again each time. Slipway waits for it if
// it is a Job or a Pod.
type Hook struct {
	Object *unstructured.Unstructured `json:"object"`
	Phases []HookPhase                `json:"phases"`
	Weight int                        `json:"weight,omitempty"`
	// Goes reports whether it is deleted after it has succeeded.
	Goes bool `json:"goes,omitempty"`
}

// RunsIn reports whether it belongs to a phase.
func (h Hook) RunsIn(p HookPhase) bool { return slices.Contains(h.Phases, p) }

// runsOnChange reports whether it runs when the add-on is installed or changed, leaving
// whether it runs when the add-on is removed; it can be both.
func (h Hook) runsOnChange() bool {
	return h.RunsIn(PreInstall) || h.RunsIn(PostInstall) || h.RunsIn(PreUpgrade) || h.RunsIn(PostUpgrade)
}

func (h Hook) runsOnDelete() bool { return h.RunsIn(PreDelete) || h.RunsIn(PostDelete) }

// sortHooks sorts hooks in the order in which they run.
func sortHooks(hooks []Hook) {
	slices.SortStableFunc(hooks, func(a, b Hook) int {
		if a.Weight != b.Weight {
			return a.Weight - b.Weight
		}
		return installOrder(a.Object) - installOrder(b.Object)
	})
}

const (
	hookAnnotation   = "helm.sh/hook"
	weightAnnotation = "helm.sh/hook-weight"
	deleteAnnotation = "helm.sh/hook-delete-policy"
)

// parseHook reads the annotations of an object. Unsupported phases are returned separately;
// tests are skipped.
func parseHook(o *unstructured.Unstructured) (h Hook, isHook bool, not []string) {
	text, isHook := o.GetAnnotations()[hookAnnotation]
	if !isHook {
		return h, false, nil
	}
	h.Object = o
	for name := range strings.SplitSeq(text, ",") {
		switch p := HookPhase(strings.TrimSpace(name)); p {
		case PreInstall, PostInstall, PreUpgrade, PostUpgrade, PreDelete, PostDelete:
			h.Phases = append(h.Phases, p)
		case "test", "test-success", "test-failure", "":
		default:
			not = append(not, string(p))
		}
	}
	h.Weight, _ = strconv.Atoi(o.GetAnnotations()[weightAnnotation]) // as in Helm: an invalid number is 0
	h.Goes = strings.Contains(o.GetAnnotations()[deleteAnnotation], "hook-succeeded")
	return h, true, not
}
