package addon

import (
	"slices"
	"strings"

	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// ListDataLoss returns the data that is lost with the objects that a plan removes: the content
// of a namespace, the objects of a custom resource, the data of a volume. The user must
// consent to it. All other objects can be created again by the add-on.
func ListDataLoss(steps []plan.Step) (out []string) {
	for _, s := range steps {
		if !strings.HasPrefix(s.Task, "addon.") {
			continue
		}
		for _, c := range s.Changes {
			kind, _, _ := strings.Cut(c.Target, " ")
			if c.Kind != module.KindObject || c.Summary != Leaves || !slices.Contains(addonsource.CascadingKinds(), kind) {
				continue
			}
			what := "everything in it"
			switch kind {
			case "CustomResourceDefinition":
				what = "all objects of that kind"
			case "PersistentVolumeClaim", "PersistentVolume":
				what = "its data"
			}
			out = append(out, c.Target+" and "+what)
		}
	}
	return out
}
