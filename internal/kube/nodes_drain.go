package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// LeavingAnnotation marks a node that Slipway has cordoned, because it leaves or is out of
// service for a while. Slipway does not uncordon nodes that a user has cordoned.
const LeavingAnnotation = "slipway.dev/leaving"

// evictAgain is the pause before a refused eviction is repeated.
const evictAgain = 5 * time.Second

// PendingDrain holds the remaining steps of a drain. The zero value means that the node is
// drained.
type PendingDrain struct {
	// Cordon reports whether the node is not cordoned yet.
	Cordon bool
	// Pods are the pods to evict: all except pods of DaemonSets and mirror pods, which
	// belong to the node, and pods that have ended.
	Pods []corev1.Pod
	// Blocked lists, one line each, the pods that cannot be evicted however long a drain
	// waits: pods without a controller, and pods whose budget never allows it.
	Blocked []string
}

// PodsToDrain returns what a drain of a node has to do, the zero value if the node does not
// exist.
func (c Nodes) PodsToDrain(ctx context.Context, node string) (PendingDrain, error) {
	n, err := c.Get(ctx, node)
	if n == nil || err != nil {
		return PendingDrain{}, err
	}
	d := PendingDrain{Cordon: !n.Spec.Unschedulable}
	d.Pods, err = Pods(c).listToEvict(ctx, node)
	if err != nil || len(d.Pods) == 0 {
		return d, err
	}
	all, err := Budgets(c).list(ctx)
	if err != nil {
		return d, err
	}
	d.Blocked = blockedPods(d.Pods, all)
	return d, nil
}

// blockedPods returns the pods that can never be evicted, one line each.
func blockedPods(list []corev1.Pod, all []policyv1.PodDisruptionBudget) (out []string) {
	for i := range list {
		if why := blockReason(&list[i], all); why != "" {
			out = append(out, podName(&list[i])+" "+why)
		}
	}
	return out
}

// blockReason returns the reason why a pod can never be evicted, or "".
func blockReason(p *corev1.Pod, all []policyv1.PodDisruptionBudget) string {
	if p.DeletionTimestamp != nil {
		return "" // it is already being deleted
	}
	if metav1.GetControllerOf(p) == nil {
		return "has no controller that would recreate it on another node"
	}
	var over []string
	for i := range all {
		b := &all[i]
		if !coversPod(b, p) {
			continue
		}
		if allowsNoEviction(b) {
			return "cannot be evicted: PodDisruptionBudget " + b.Name + " never allows it: " + budgetText(b)
		}
		over = append(over, b.Name)
	}
	if len(over) > 1 { // the eviction API refuses it
		return "has several PodDisruptionBudgets (" + strings.Join(over, ", ") + "), so that it cannot be evicted"
	}
	return ""
}

// IsCordoned reports whether Slipway has cordoned a node.
func IsCordoned(n *corev1.Node) bool {
	_, ours := n.Annotations[LeavingAnnotation]
	return ours
}

// Uncordon uncordons a node that Slipway has cordoned.
func (c Nodes) Uncordon(ctx context.Context, node string) error {
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: null}}, "spec": {"unschedulable": null}}`, LeavingAnnotation)
	_, err := c.dynamic.Resource(nodes).Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("uncordoning node %s: %w", node, c.describeError(err))
	}
	return nil
}

// Cordon cordons a node that leaves or is out of service for a while.
func (c Nodes) Cordon(ctx context.Context, node string) error {
	n, err := c.Get(ctx, node)
	if n == nil || err != nil || n.Spec.Unschedulable {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{LeavingAnnotation: ""}},
		"spec":     map[string]any{"unschedulable": true},
	})
	if err == nil {
		_, err = c.dynamic.Resource(nodes).Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return fmt.Errorf("cordoning node %s: %w", node, c.describeError(err))
	}
	return nil
}

// A BlockedError is returned by a drain that stops at pods without a controller: they were
// created, or lost their controller, after the check of the node.
type BlockedError struct {
	Node string
	Pods []string // one line each
}

func (e *BlockedError) Error() string {
	return "node " + e.Node + " cannot be drained: pod " + strings.Join(e.Pods, "; pod ")
}

// Drain evicts the pods of a node and waits until they are gone. It respects disruption
// budgets. If there is a pod without a controller, it returns a BlockedError and evicts
// nothing more. It waits for pods that a budget protects, because a budget can change: for
// example, a pod that is recreated under its name is missing for a moment. With force, it
// deletes Blocked pods. progress, which may be nil, is called with the pods that it waits
// for. Only ctx limits the time; the error then has the remaining pods and the reasons.
func (c Nodes) Drain(ctx context.Context, node string, force bool, progress func(string)) error {
	d := &drain{connection: c.connection, node: node, force: force, tried: map[types.UID]time.Time{}, held: map[types.UID]string{}}
	if err := c.waitUntil(ctx, withProgress(progress, d.evictRemaining)); err != nil {
		return fmt.Errorf("draining node %s: %w", node, err)
	}
	return nil
}

type drain struct {
	*connection
	node  string
	force bool
	tried map[types.UID]time.Time // time of the last eviction request for a pod
	held  map[types.UID]string    // the reason why it was refused
}

// evictRemaining evicts every pod for which there was no recent request, and returns the remaining
// pods.
func (d *drain) evictRemaining(ctx context.Context) (string, error) {
	list, err := Pods{d.connection}.listToEvict(ctx, d.node)
	if err != nil || len(list) == 0 {
		return "", err
	}
	all, err := Budgets{d.connection}.list(ctx)
	if err != nil {
		return "", err
	}
	if alone := blockedPods(list, nil); len(alone) > 0 && !d.force { // the server would evict them
		return "", &BlockedError{d.node, alone}
	}
	var left []string
	for i := range list {
		p := &list[i]
		if p.DeletionTimestamp == nil && time.Since(d.tried[p.UID]) >= evictAgain {
			d.tried[p.UID] = time.Now()
			if d.held[p.UID], err = d.evictPod(ctx, p, blockReason(p, all)); err != nil {
				return "", err
			}
		}
		why := "is terminating"
		if held := d.held[p.UID]; p.DeletionTimestamp == nil && held != "" {
			why = held
		}
		left = append(left, podName(p)+" "+why)
	}
	return strings.Join(left, "; "), nil
}

// evictPod evicts a pod, or with force deletes a blocked one, and returns the reason if it is
// refused. A new pod with the same name is not affected.
func (d *drain) evictPod(ctx context.Context, p *corev1.Pod, blocked string) (held string, err error) {
	r := d.dynamic.Resource(pods).Namespace(p.Namespace)
	uid := p.UID
	if blocked != "" && d.force {
		err = r.Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	} else {
		_, err = r.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "policy/v1", "kind": "Eviction",
			"metadata":      map[string]any{"name": p.Name, "namespace": p.Namespace},
			"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": string(uid)}},
		}}, metav1.CreateOptions{}, "eviction")
	}
	switch {
	case err == nil, isNotFound(err), apierrors.IsConflict(err):
		return "", nil
	case apierrors.IsTooManyRequests(err):
		return "cannot be evicted now: " + refusalReason(err), nil
	case blocked != "":
		return blocked, nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "is terminating with its namespace", nil
	}
	return "", fmt.Errorf("evicting pod %s: %w", podName(p), d.describeError(err))
}

// refusalReason returns the server's reason for a refused eviction: the budget.
func refusalReason(err error) string {
	if s, ok := err.(apierrors.APIStatus); ok && s.Status().Details != nil {
		for _, cause := range s.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				return cause.Message
			}
		}
	}
	return err.Error()
}
