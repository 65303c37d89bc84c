package addon

import (
	"slices"
	"strings"

	"slipway.dev/slipway/internal/addon"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// Losses are what goes with the objects that the steps of a plan remove: what is
// in a namespace, the objects of a kind, the data of a volume. People must give
// leave for that; of all else, the same add-on makes another.
func Losses(steps []plan.Step) (out []string) {
	for _, s := range steps {
		if !strings.HasPrefix(s.Task, "addon.") {
			continue
		}
		for _, c := range s.Changes {
			kind, _, _ := strings.Cut(c.Target, " ")
			if c.Kind != module.KindObject || c.Summary != Leaves || !slices.Contains(addon.Holders(), kind) {
				continue
			}
			what := "all that is in it"
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
