package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Budgets is a client for PodDisruptionBudgets.
type Budgets struct{ *connection }

var budgets = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}

// ListBlocking returns the disruption budgets that currently allow no eviction and cover
// pods on one of the nodes, as "namespace/name: reason".
func (c Budgets) ListBlocking(ctx context.Context, nodes []string) ([]string, error) {
	now, ever, err := c.listWithoutEvictions(ctx, nodes)
	out := slices.Concat(now, ever)
	slices.Sort(out)
	return out, err
}

// Wait waits until these budgets allow evictions, except for budgets that never do.
// progress, which may be nil, is called with what is still missing, once for each change.
// Only ctx limits the time.
func (c Budgets) Wait(ctx context.Context, nodes []string, progress func(string)) error {
	err := c.waitUntil(ctx, withProgress(progress, func(ctx context.Context) (string, error) {
		now, _, err := c.listWithoutEvictions(ctx, nodes)
		return strings.Join(now, "; "), err
	}))
	if err != nil {
		return fmt.Errorf("waiting for PodDisruptionBudgets: %w", err)
	}
	return nil
}

func (c Budgets) list(ctx context.Context) ([]policyv1.PodDisruptionBudget, error) {
	list, err := c.dynamic.Resource(budgets).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", c.describeError(err))
	}
	out := make([]policyv1.PodDisruptionBudget, len(list.Items))
	for i := range list.Items {
		if err := fromUnstructured(&list.Items[i], &out[i]); err != nil {
			return nil, fmt.Errorf("reading PodDisruptionBudget %s: %w", list.Items[i].GetName(), err)
		}
	}
	return out, nil
}

// listWithoutEvictions returns these budgets in two lists: now has budgets that allow
// no eviction in the current state of their pods, and ever has budgets that never allow
// one.
func (c Budgets) listWithoutEvictions(ctx context.Context, nodes []string) (now, ever []string, err error) {
	all, err := c.list(ctx)
	if err != nil {
		return nil, nil, err
	}
	var leave []corev1.Pod
	for _, n := range nodes {
		some, err := Pods(c).listToEvict(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		leave = append(leave, some...)
	}
	for i := range all {
		b := &all[i]
		if b.Status.DisruptionsAllowed > 0 || b.Status.ExpectedPods == 0 ||
			!slices.ContainsFunc(leave, func(p corev1.Pod) bool { return coversPod(b, &p) }) {
			continue
		}
		name := b.Namespace + "/" + b.Name + ": "
		if allowsNoEviction(b) {
			ever = append(ever, name+budgetText(b))
			continue
		}
		now = append(now,
			fmt.Sprintf("%s%d of its %d pods are healthy, but %d must be", name, b.Status.CurrentHealthy,
				b.Status.ExpectedPods, b.Status.DesiredHealthy))
	}
	slices.Sort(now)
	return now, ever, nil
}

// coversPod reports whether a budget covers a pod.
func coversPod(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return b.Namespace == p.Namespace && err == nil && sel.Matches(labels.Set(p.Labels))
}

// allowsNoEviction reports whether a budget allows no eviction even if all its pods are healthy.
func allowsNoEviction(b *policyv1.PodDisruptionBudget) bool {
	if m := b.Spec.MaxUnavailable; m != nil && (m.String() == "0" || m.String() == "0%") {
		return true
	}
	s := b.Status
	return s.ObservedGeneration >= b.Generation && s.ExpectedPods > 0 && s.DesiredHealthy >= s.ExpectedPods
}

func budgetText(b *policyv1.PodDisruptionBudget) string {
	if m := b.Spec.MaxUnavailable; m != nil {
		return "maxUnavailable is " + m.String()
	}
	return fmt.Sprintf("%d of %d pods must be healthy", b.Status.DesiredHealthy, b.Status.ExpectedPods)
}
