package addon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// Leaves is the change summary of an object that is deleted.
const Leaves = "delete"

// keepAnnotation is the annotation with which charts keep an object.
const keepAnnotation = "helm.sh/resource-policy"

// longest is the timeout for the removal of all add-ons. Hooks and the deletion of objects
// have their own timeouts for each add-on.
const longest = 24 * time.Hour

// removalTask is the task that removes add-ons which are no longer described, the newest
// first. It runs after the installations, because an object that moves from one add-on to
// another remains.
func removalTask(list []addonsource.Addon, needs []string) engine.Task {
	return engine.Task{
		ID: Removed, Title: "remove add-ons", Manager: true, Needs: needs, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Timeout: longest,
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) (out []plan.OpChange, err error) {
				c := engine.GetValue(s, module.KeyKube)
				if s.IsPending() {
					return nil, nil // the cluster does not exist yet
				}
				gone, err := listDropped(ctx, c, list)
				for _, r := range gone {
					changes, err := r.planRemoval(ctx, c)
					if err != nil {
						return nil, err
					}
					out = append(out, changes...)
				}
				return out, err
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				gone, err := listDropped(ctx, engine.GetValue(s, module.KeyKube), list)
				for _, r := range gone {
					if err := r.removeAddon(ctx, s); err != nil {
						return err
					}
				}
				return err
			},
		},
	}
}

// A removal is the removal of an add-on that is no longer described.
type removal struct {
	*inventory
	farewell addonsource.DeleteHooks
	// objects lists the objects that no other add-on has now, without hook objects.
	objects []entry
}

// listDropped returns the removals of add-ons that are not in the list.
func listDropped(ctx context.Context, c *kube.Client, list []addonsource.Addon) (out []removal, err error) {
	all, err := listInventories(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, inv := range all {
		if slices.ContainsFunc(list, func(a addonsource.Addon) bool { return a.Name == inv.Name }) {
			continue
		}
		r := removal{inventory: inv}
		if r.farewell, err = savedDeleteHooks(ctx, c, inv.Name); err != nil {
			return nil, err
		}
		own := slices.DeleteFunc(slices.Clone(inv.Objects), r.belongsToHook)
		r.objects = movedOut(own, list)
		if len(own) > 0 && len(r.objects) == 0 {
			// The add-on only has another name now. Its hooks would delete objects that
			// are in use.
			r.farewell = addonsource.DeleteHooks{}
			r.objects = movedOut(inv.Objects, list)
		}
		out = append(out, r)
	}
	return out, nil
}

// movedOut returns the objects of a dropped add-on that no other add-on has now.
func movedOut(own []entry, list []addonsource.Addon) []entry {
	var kept []entry
	for _, a := range list {
		for _, o := range a.Objects {
			kept = append(kept, entry{Ref: addonsource.RefOf(o)})
		}
	}
	return (&inventory{Objects: own}).entriesWithout(kept)
}

// belongsToHook reports whether an object belongs to a delete hook.
func (r removal) belongsToHook(e entry) bool {
	return slices.ContainsFunc(r.farewell.Hooks, func(h addonsource.Hook) bool { return addonsource.RefOf(h.Object) == e.Ref })
}

// hookEntries returns the objects of delete hooks in the inventory. They are deleted
// after all hooks have run, because a later hook may need them.
func (r removal) hookEntries() []entry {
	return slices.DeleteFunc(slices.Clone(r.Objects), func(e entry) bool { return !r.belongsToHook(e) })
}

// planRemoval returns the changes of the removal.
func (r removal) planRemoval(ctx context.Context, c *kube.Client) ([]plan.OpChange, error) {
	out := []plan.OpChange{{Kind: KindAddon, Target: r.Name, Summary: "remove"}}
	hooks := func(phase addonsource.HookPhase) {
		for _, h := range r.farewell.Hooks {
			if h.RunsIn(phase) {
				out = append(out,
					plan.OpChange{Kind: KindHook, Target: addonsource.RefOf(h.Object).String(), Summary: fmt.Sprint([]addonsource.HookPhase{phase})})
			}
		}
	}
	if r.State != deleting {
		hooks(addonsource.PreDelete)
	}
	changes, err := planObjectRemoval(ctx, c, r.Name, r.objects)
	if err != nil {
		return nil, err
	}
	out = append(out, changes...)
	hooks(addonsource.PostDelete)
	changes, err = planObjectRemoval(ctx, c, r.Name, r.hookEntries())
	return append(out, changes...), err
}

// removeAddon removes the add-on. Its progress is saved, because after the deletion has
// begun, a pre-delete hook may no longer work.
func (r removal) removeAddon(ctx context.Context, s *engine.Scope) error {
	c := engine.GetValue(s, module.KeyKube)
	if len(r.farewell.Hooks) > 0 && r.State != deleting {
		if err := r.runPreDeleteHooks(ctx, s); err != nil {
			return err
		}
	}
	if err := r.deleteEntries(ctx, s, r.objects); err != nil {
		return err
	}
	if err := r.runHookPhase(ctx, s, addonsource.PostDelete); err != nil {
		return err
	}
	if err := r.deleteEntries(ctx, s, r.hookEntries()); err != nil {
		return err
	}
	if err := deleteObject(ctx, c, deleteHooksSecret(r.Name)); err != nil {
		return err
	}
	record, err := r.asConfigMap()
	if err != nil {
		return err
	}
	return deleteObject(ctx, c, record)
}

// runPreDeleteHooks runs the pre-delete hooks. It first saves which of their objects
// existed before.
func (r removal) runPreDeleteHooks(ctx context.Context, s *engine.Scope) error {
	c := engine.GetValue(s, module.KeyKube)
	for _, h := range r.farewell.Hooks {
		e := entry{Ref: addonsource.RefOf(h.Object), Version: h.Object.GroupVersionKind().Version}
		if _, ok := r.findEntry(e.Ref); ok {
			continue
		}
		live, err := c.Objects().Get(ctx, h.Object)
		if err != nil {
			return err
		}
		e.Found = live != nil && live.GetLabels()[addonsource.Label] != r.Name
		r.Objects = append(r.Objects, e)
	}
	r.State = removing
	if err := r.saveInventory(ctx, c); err != nil {
		return err
	}
	if err := r.runHookPhase(ctx, s, addonsource.PreDelete); err != nil {
		return err
	}
	r.State, r.Installed = deleting, false
	return r.saveInventory(ctx, c)
}

// runHookPhase runs the hooks of a phase.
func (r removal) runHookPhase(parent context.Context, s *engine.Scope, phase addonsource.HookPhase) error {
	ctx, cancel := context.WithTimeout(parent, r.farewell.Timeout)
	defer cancel()
	err := runHooks(ctx, s, r.farewell.Hooks, phase, r.inventory)
	if err == nil || parent.Err() != nil {
		return err
	}
	left := "its objects still exist"
	if phase == addonsource.PostDelete {
		left = "its objects are deleted"
	}
	return hookFailed(r.Name, fmt.Sprintf("removing add-on %s: %v; %s", r.Name, err, left), "fix the cause")
}

// deleteEntries removes objects of the add-on, within the timeout of a task.
func (r removal) deleteEntries(ctx context.Context, s *engine.Scope, list []entry) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DefaultTimeout)
	defer cancel()
	return removeObjects(ctx, engine.GetValue(s, module.KeyKube), s, r.Name, list)
}

// A fate holds the change of an object that an add-on no longer has.
type fate struct {
	entry
	summary string // "" if the object no longer belongs to the add-on
}

// fateOf decides by the live object: it is removed if the add-on created it, and no other
// owner has it.
func fateOf(ctx context.Context, c *kube.Client, name string, e entry) (fate, error) {
	live, err := c.Objects().Get(ctx, e.asObject())
	switch {
	case err != nil:
		return fate{}, err
	case live == nil || live.GetLabels()[addonsource.Label] != name:
		return fate{entry: e}, nil
	case e.Found:
		return fate{e, "keep: it existed before the add-on"}, nil
	case live.GetAnnotations()[keepAnnotation] == "keep":
		return fate{e, "keep: its chart requests it (" + keepAnnotation + ")"}, nil
	}
	return fate{e, Leaves}, nil
}

// planObjectRemoval returns the changes for objects that an add-on no longer has.
func planObjectRemoval(ctx context.Context, c *kube.Client, name string, list []entry) ([]plan.OpChange, error) {
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

// removeObjects removes objects that an add-on no longer has, the last one first.
// Namespaces and custom resource definitions come last.
func removeObjects(ctx context.Context, c *kube.Client, s *engine.Scope, name string, list []entry) error {
	ordered := slices.Clone(list)
	slices.Reverse(ordered)
	slices.SortStableFunc(ordered, func(a, b entry) int { return deletionRank(a) - deletionRank(b) })
	for _, e := range ordered {
		f, err := fateOf(ctx, c, name, e)
		if err != nil {
			return err
		}
		switch f.summary {
		case "":
			continue
		case Leaves:
			s.ShowProgress("deleting %s", e.Ref)
			live, err := c.Objects().Get(ctx, e.asObject())
			if err == nil && live != nil {
				err = c.Objects().DeleteLive(ctx, live)
			}
			if err != nil {
				return err
			}
		default:
			if err := c.Objects().RemoveLabel(ctx, e.asObject(), addonsource.Label); err != nil {
				return err
			}
		}
	}
	return nil
}

func deletionRank(e entry) int {
	switch e.Kind {
	case "CustomResourceDefinition":
		return 1
	case "Namespace":
		return 2
	}
	return 0
}
