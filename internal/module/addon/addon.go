// Package addon installs add-ons into the cluster, keeps them as described, and removes
// them.
package addon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

// Kinds of changes in plans.
const (
	// KindAddon is a whole add-on.
	KindAddon op.Kind = "add-on"
	// KindHook is an object that a chart applies before or after other objects.
	KindHook op.Kind = "chart hook"
)

// Removed is the task that removes add-ons.
const Removed = "addon.removed"

// settle is the time for the work before and after a wait.
const settle = 3 * time.Minute

// InstallAddons is the module that installs and removes add-ons: after CoreDNS is
// ready, one task for each add-on, one after the other, and one task for add-ons that
// are no longer described.
func InstallAddons(list []addonsource.Addon) engine.Module {
	m := engine.Module{Name: "add-ons"}
	needs := []string{"nodes.dns"}
	for _, a := range list {
		t := engine.Task{
			ID: "addon." + a.Name, Title: "install add-on " + a.Name, Manager: true,
			Needs: needs, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			Timeout: a.Timeout + settle, Retry: engine.Retry{Attempts: a.Retries + 1, Delay: 10 * time.Second, Backoff: 1.5},
			Run: &engine.Action{
				Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) { return checkAddon(ctx, s, a) },
				Apply: func(ctx context.Context, s *engine.Scope) error { return applyAddon(ctx, s, a) },
			},
		}
		m.Tasks = append(m.Tasks, t)
		needs = []string{t.ID}
	}
	m.Tasks = append(m.Tasks, removalTask(list, needs))
	return m
}

// inventoryEntries returns the objects of an add-on for its inventory.
func inventoryEntries(ctx context.Context, c *kube.Client, a addonsource.Addon, have *inventory) ([]entry, error) {
	var out []entry
	add := func(o *unstructured.Unstructured) error {
		e := entry{Ref: addonsource.RefOf(o), Version: o.GroupVersionKind().Version}
		if known, ok := have.findEntry(e.Ref); ok {
			e.Found = known.Found
		} else if c != nil {
			live, err := c.Objects().Get(ctx, o)
			if err != nil {
				return err
			}
			if live != nil {
				// If another add-on has handed the object over, it is unknown whether the
				// object existed before that add-on.
				e.Found = live.GetLabels()[addonsource.Label] != a.Name
			}
		}
		out = append(out, e)
		return nil
	}
	for _, o := range a.Objects {
		if err := add(o); err != nil {
			return nil, err
		}
	}
	for _, h := range a.Hooks {
		if err := add(h.Object); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// wantedInventory returns the inventory of an add-on that is completely installed.
func wantedInventory(ctx context.Context, c *kube.Client, a addonsource.Addon, have *inventory) (*inventory, error) {
	objects, err := inventoryEntries(ctx, c, a, have)
	return &inventory{Name: a.Name, State: applied, Digest: a.Digest, Installed: true, Objects: objects, Sources: a.Sources}, err
}

func checkAddon(ctx context.Context, s *engine.Scope, a addonsource.Addon) ([]plan.OpChange, error) {
	c := engine.GetValue(s, module.KeyKube)
	if s.IsPending() {
		return fromNothing(a), nil
	}
	have, err := readInventory(ctx, c, a.Name)
	if err != nil {
		return nil, err
	}
	want, err := wantedInventory(ctx, c, a, have)
	if err != nil {
		return nil, err
	}
	var out []plan.OpChange
	if have == nil || !have.isSameAs(want) {
		out = append(out, plan.OpChange{Kind: KindAddon, Target: a.Name, Summary: summarizeChange(a, have), Diff: sourcesDiff(have, want)})
		for _, h := range hooksToRun(a, have) {
			out = append(out, plan.OpChange{Kind: KindHook, Target: addonsource.RefOf(h.Object).String(), Summary: fmt.Sprint(h.Phases)})
		}
	}
	if same, err := hasSavedDeleteHooks(ctx, c, a); err != nil {
		return nil, err
	} else if !same && len(out) == 0 {
		out = append(out, plan.OpChange{Kind: KindAddon, Target: a.Name, Summary: "save delete hooks"})
	}
	served, due, err := withCert(ctx, c, a)
	if err != nil {
		return nil, err
	}
	changes, err := c.Objects().Diff(ctx, objectsOf(served))
	if err != nil {
		return nil, err
	}
	out = append(out, due...)
	for _, ch := range changes {
		out = append(out, plan.OpChange{Kind: module.KindObject, Target: ch.ObjectName(), Summary: string(ch.Action), Diff: ch.Diff})
	}
	gone, err := planObjectRemoval(ctx, c, a.Name, have.entriesWithout(want.Objects))
	return append(out, gone...), err
}

// fromNothing returns the changes of an installation in a cluster that does not exist yet.
func fromNothing(a addonsource.Addon) []plan.OpChange {
	out := []plan.OpChange{{
		Kind: KindAddon, Target: a.Name, Summary: summarizeChange(a, nil),
		Diff: sourcesDiff(nil, &inventory{Sources: a.Sources}),
	}}
	for _, h := range hooksToRun(a, nil) {
		out = append(out, plan.OpChange{Kind: KindHook, Target: addonsource.RefOf(h.Object).String(), Summary: fmt.Sprint(h.Phases)})
	}
	for _, o := range objectsOf(a) {
		out = append(out, plan.OpChange{Kind: module.KindObject, Target: addonsource.RefOf(o).String(), Summary: string(kube.Create)})
	}
	return out
}

// objectsOf returns the objects of an add-on and its namespace.
func objectsOf(a addonsource.Addon) []*unstructured.Unstructured {
	if a.Namespace == nil {
		return a.Objects
	}
	return append([]*unstructured.Unstructured{a.Namespace}, a.Objects...)
}

func summarizeChange(a addonsource.Addon, have *inventory) string {
	switch {
	case have == nil || !have.Installed:
		return "install, " + a.Digest
	case have.Digest != a.Digest:
		return "change to " + a.Digest
	case have.State != applied:
		return "finish, " + a.Digest
	}
	return "update inventory"
}

func sourcesDiff(have, want *inventory) (text string) {
	if have != nil {
		for _, s := range have.Sources {
			if !slices.Contains(want.Sources, s) {
				text += "-" + s + "\n"
			}
		}
	}
	for _, s := range want.Sources {
		if have == nil || !slices.Contains(have.Sources, s) {
			text += "+" + s + "\n"
		}
	}
	return text
}

// applyAddon first saves in the inventory what it may put into the cluster. If it is
// interrupted, the inventory still has every object.
func applyAddon(ctx context.Context, s *engine.Scope, a addonsource.Addon) error {
	c := engine.GetValue(s, module.KeyKube)
	have, err := readInventory(ctx, c, a.Name)
	if err != nil {
		return err
	}
	want, err := wantedInventory(ctx, c, a, have)
	if err != nil {
		return err
	}
	began := *want
	began.State, began.Installed = applying, have != nil && have.Installed
	began.Objects = append(slices.Clone(want.Objects), have.entriesWithout(want.Objects)...)
	if a, err = withRenewedCert(ctx, c, a); err != nil {
		return err
	}
	run := hooksToRun(a, have)
	if have != nil && have.isSameAs(want) {
		run = nil // only manual changes are corrected
	} else if err := began.saveInventory(ctx, c); err != nil {
		return err
	}
	if err := saveDeleteHooks(ctx, c, a); err != nil {
		return err
	}
	if err := applyWithinTimeout(ctx, s, a, run, have, want); err != nil {
		return err
	}
	return want.saveInventory(ctx, c)
}

// applyWithinTimeout does everything that the timeout of the add-on covers: its
// objects, its hooks, and the wait for both.
func applyWithinTimeout(ctx context.Context, s *engine.Scope, a addonsource.Addon, run []addonsource.Hook, have, want *inventory) error {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	if err := applyObjects(ctx, s, a, run, have, want); err != nil {
		return err
	}
	if err := removeObjects(ctx, engine.GetValue(s, module.KeyKube), s, a.Name, have.entriesWithout(want.Objects)); err != nil {
		return err
	}
	if err := waitReady(ctx, s, a); err != nil {
		return err
	}
	return runHooks(ctx, s, run, postHookPhase(have), want)
}

// applyObjects applies the objects of an add-on: first the objects that others need,
// then the early hooks of the chart, then the rest.
func applyObjects(ctx context.Context, s *engine.Scope, a addonsource.Addon, run []addonsource.Hook, have, want *inventory) error {
	c := engine.GetValue(s, module.KeyKube)
	if len(run) > 0 {
		var first []*unstructured.Unstructured
		for _, o := range objectsOf(a) {
			if k := o.GetKind(); k == "Namespace" || k == "CustomResourceDefinition" {
				first = append(first, o)
			}
		}
		if err := c.Objects().Apply(ctx, first); err != nil {
			return err
		}
		if err := runHooks(ctx, s, run, preHookPhase(have), want); err != nil {
			return err
		}
	}
	return c.Objects().Apply(ctx, objectsOf(a))
}

func waitReady(ctx context.Context, s *engine.Scope, a addonsource.Addon) error {
	if !a.Wait {
		return nil
	}
	for _, o := range a.Objects {
		if err := engine.GetValue(s, module.KeyKube).Objects().WaitSettled(ctx, o,
			func(m string) { s.ShowProgress("%s: %s", addonsource.RefOf(o), m) }); err != nil {
			return err
		}
	}
	return nil
}

func preHookPhase(have *inventory) addonsource.HookPhase {
	if have == nil || !have.Installed {
		return addonsource.PreInstall
	}
	return addonsource.PreUpgrade
}

func postHookPhase(have *inventory) addonsource.HookPhase {
	if have == nil || !have.Installed {
		return addonsource.PostInstall
	}
	return addonsource.PostUpgrade
}

// hooksToRun returns the hooks that run when an add-on is installed or changed.
func hooksToRun(a addonsource.Addon, have *inventory) (out []addonsource.Hook) {
	for _, h := range a.Hooks {
		if h.RunsIn(preHookPhase(have)) || h.RunsIn(postHookPhase(have)) {
			out = append(out, h)
		}
	}
	return out
}

// runHooks recreates each hook of a phase, and waits for it. An object that existed before
// the add-on is not recreated and remains.
func runHooks(ctx context.Context, s *engine.Scope, run []addonsource.Hook, phase addonsource.HookPhase, want *inventory) error {
	c := engine.GetValue(s, module.KeyKube)
	var done []*unstructured.Unstructured
	for _, h := range run {
		if !h.RunsIn(phase) {
			continue
		}
		s.ShowProgress("%s: %s", phase, addonsource.RefOf(h.Object))
		if err := deleteOwnObject(ctx, c, want, h.Object); err != nil {
			return err
		}
		if err := c.Objects().Apply(ctx, []*unstructured.Unstructured{h.Object}); err != nil {
			return fmt.Errorf("running hook %s: %w", phase, err)
		}
		if err := c.Objects().WaitSettled(ctx, h.Object,
			func(m string) { s.ShowProgress("%s: %s", addonsource.RefOf(h.Object), m) }); err != nil {
			return fmt.Errorf("running hook %s: %w", phase, err)
		}
		if h.Goes {
			done = append(done, h.Object)
		}
	}
	for _, o := range done { // later hooks may have needed the earlier ones
		if err := deleteOwnObject(ctx, c, want, o); err != nil {
			return err
		}
	}
	return nil
}

// deleteOwnObject removes an object that the add-on has created, if it exists.
func deleteOwnObject(ctx context.Context, c *kube.Client, of *inventory, o *unstructured.Unstructured) error {
	if e, ok := of.findEntry(addonsource.RefOf(o)); ok && e.Found {
		return nil
	}
	live, err := c.Objects().Get(ctx, o)
	if err != nil || live == nil || live.GetLabels()[addonsource.Label] != of.Name {
		return err
	}
	return c.Objects().DeleteLive(ctx, live)
}
