package addon

import (
	"context"
	"slices"

	"slipway.dev/slipway/internal/addon"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// Leaves is the summary of an object that is deleted.
const Leaves = "delete"

// keepAnnotation is by which charts have an object stay.
const keepAnnotation = "helm.sh/resource-policy"

// removed is the task that takes out add-ons which are not described any more, the
// latest first: after the others, for what moves from one to another stays.
func removed(list []addon.Addon, needs []string) engine.Task {
	dropped := func(ctx context.Context, c *kube.Client) ([]*inventory, error) {
		all, err := inventories(ctx, c)
		return slices.DeleteFunc(all, func(inv *inventory) bool {
			return slices.ContainsFunc(list, func(a addon.Addon) bool { return a.Name == inv.Name })
		}), err
	}
	return engine.Task{
		ID: Removed, Title: "remove add-ons", Manager: true, Needs: needs, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				c := engine.Get(s, module.KeyKube)
				if s.Pending() {
					return nil, nil // nothing is in a cluster that is yet to be made
				}
				gone, err := dropped(ctx, c)
				if err != nil {
					return nil, err
				}
				var out []plan.OpChange
				for _, inv := range gone {
					out = append(out, plan.OpChange{Kind: KindAddon, Target: inv.Name, Summary: "remove"})
					changes, err := leaving(ctx, c, inv.Name, movedOut(inv, list))
					if err != nil {
						return nil, err
					}
					out = append(out, changes...)
				}
				return out, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				c := engine.Get(s, module.KeyKube)
				gone, err := dropped(ctx, c)
				if err != nil {
					return err
				}
				for _, inv := range gone {
					if err := remove(ctx, c, s, inv.Name, movedOut(inv, list)); err != nil {
						return err
					}
					record, err := inv.object()
					if err != nil {
						return err
					}
					live, err := c.Live(ctx, record)
					if err != nil {
						return err
					}
					if live == nil {
						continue
					}
					if err := c.DeleteLive(ctx, live); err != nil {
						return err
					}
				}
				return nil
			},
		},
	}
}

// movedOut are the objects of a dropped add-on that no other has now.
func movedOut(inv *inventory, list []addon.Addon) []entry {
	var kept []entry
	for _, a := range list {
		for _, o := range a.Objects {
			kept = append(kept, entry{Ref: addon.RefOf(o)})
		}
	}
	return inv.without(kept)
}

// A fate is what becomes of an object that an add-on has not any more.
type fate struct {
	entry
	summary string // "" is none: it is not the add-on's any more
}

// fateOf judges an object by what it is now: it is removed if the add-on made it,
// and nobody else has it.
func fateOf(ctx context.Context, c *kube.Client, name string, e entry) (fate, error) {
	live, err := c.Live(ctx, e.object())
	switch {
	case err != nil:
		return fate{}, err
	case live == nil || live.GetLabels()[addon.Label] != name:
		return fate{entry: e}, nil
	case e.Found:
		return fate{e, "leave: it was there before the add-on"}, nil
	case live.GetAnnotations()[keepAnnotation] == "keep":
		return fate{e, "leave: its chart says so (" + keepAnnotation + ")"}, nil
	}
	return fate{e, Leaves}, nil
}

// leaving says what becomes of objects that an add-on has not any more.
func leaving(ctx context.Context, c *kube.Client, name string, list []entry) ([]plan.OpChange, error) {
	var out []plan.OpChange
	for _, e := range slices.Backward(list) {
		f, err := fateOf(ctx, c, name, e)
		if err != nil {
			return nil, err
		}
		if f.summary != "" {
			out = append(out, plan.OpChange{Kind: module.KindObject, Target: e.Ref.String(), Summary: f.summary})
		}
	}
	return out, nil
}

// remove takes objects out that an add-on has not any more, the last first; what
// holds others, namespaces and kinds, at the end.
func remove(ctx context.Context, c *kube.Client, s *engine.Scope, name string, list []entry) error {
	ordered := slices.Clone(list)
	slices.Reverse(ordered)
	slices.SortStableFunc(ordered, func(a, b entry) int { return rank(a) - rank(b) })
	for _, e := range ordered {
		f, err := fateOf(ctx, c, name, e)
		if err != nil {
			return err
		}
		switch f.summary {
		case "":
			continue
		case Leaves:
			s.Tell("deleting %s", e.Ref)
			live, err := c.Live(ctx, e.object())
			if err == nil && live != nil {
				err = c.DeleteLive(ctx, live)
			}
			if err != nil {
				return err
			}
		default:
			if err := c.Unlabel(ctx, e.object(), addon.Label); err != nil {
				return err
			}
		}
	}
	return nil
}

func rank(e entry) int {
	switch e.Kind {
	case "CustomResourceDefinition":
		return 1
	case "Namespace":
		return 2
	}
	return 0
}
