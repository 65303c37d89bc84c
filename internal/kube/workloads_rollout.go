package kube

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// WaitRollout waits until all pods of a Deployment, DaemonSet or StatefulSet have its
// current template and are available. progress, which may be nil, is called with what is
// still missing, once for each change. Only ctx limits the time: a Deployment can become
// ready even after its progress deadline, when the cause is fixed.
func (c Workloads) WaitRollout(ctx context.Context, kind, namespace, name string, progress func(string)) error {
	look, err := c.rolloutCheck(kind, namespace, name)
	if err != nil {
		return err
	}
	if err := c.waitUntil(ctx, withProgress(progress, look)); err != nil {
		return fmt.Errorf("waiting for %s %s/%s: %w", kind, namespace, name, err)
	}
	return nil
}

// RolloutPending returns what the rollout of a Deployment, DaemonSet or StatefulSet still
// lacks, "" if it is complete.
func (c Workloads) RolloutPending(ctx context.Context, kind, namespace, name string) (string, error) {
	look, err := c.rolloutCheck(kind, namespace, name)
	if err != nil {
		return "", err
	}
	missing, err := look(ctx)
	if err != nil {
		return "", fmt.Errorf("reading %s %s/%s: %w", kind, namespace, name, c.describeError(err))
	}
	return missing, nil
}

func (c Workloads) rolloutCheck(kind, namespace, name string) (func(context.Context) (string, error), error) {
	switch kind {
	case "Deployment":
		return func(ctx context.Context) (string, error) { return c.deploymentPending(ctx, namespace, name) }, nil
	case "DaemonSet":
		return func(ctx context.Context) (string, error) { return c.daemonSetPending(ctx, namespace, name) }, nil
	case "StatefulSet":
		return func(ctx context.Context) (string, error) { return c.statefulSetPending(ctx, namespace, name) }, nil
	}
	return nil, fmt.Errorf("%s %s/%s: only a Deployment, a DaemonSet or a StatefulSet has a rollout", kind, namespace, name)
}

func (c Workloads) deploymentPending(ctx context.Context, namespace, name string) (string, error) {
	d := &appsv1.Deployment{}
	if err := c.get(ctx, "deployments", namespace, name, d); err != nil {
		return "", err
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return "its controller has not processed it yet", nil
	case s.UpdatedReplicas < want || s.AvailableReplicas < want:
		return fmt.Sprintf("%d of %d pods are available%s", min(s.UpdatedReplicas, s.AvailableReplicas), want,
			c.podTrouble(ctx, namespace, d.Spec.Selector)), nil
	case s.Replicas > want:
		return "old pods still exist", nil
	}
	return c.podsNotCounted(ctx, namespace, d.Spec.Selector, want)
}

func (c Workloads) daemonSetPending(ctx context.Context, namespace, name string) (string, error) {
	d := &appsv1.DaemonSet{}
	if err := c.get(ctx, "daemonsets", namespace, name, d); err != nil {
		return "", err
	}
	s, want := d.Status, d.Status.DesiredNumberScheduled
	switch {
	case s.ObservedGeneration < d.Generation:
		return "its controller has not processed it yet", nil
	case s.UpdatedNumberScheduled < want || s.NumberAvailable < want:
		return fmt.Sprintf("%d of %d pods are available%s", min(s.UpdatedNumberScheduled, s.NumberAvailable), want,
			c.podTrouble(ctx, namespace, d.Spec.Selector)), nil
	}
	return c.podsNotCounted(ctx, namespace, d.Spec.Selector, want)
}

func (c Workloads) statefulSetPending(ctx context.Context, namespace, name string) (string, error) {
	d := &appsv1.StatefulSet{}
	if err := c.get(ctx, "statefulsets", namespace, name, d); err != nil {
		return "", err
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	updated := d.Status.UpdatedReplicas
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		updated = want // a pod is replaced only when it is deleted
	}
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return "its controller has not processed it yet", nil
	case updated < want || s.AvailableReplicas < want:
		return fmt.Sprintf("%d of %d pods are available%s", min(updated, s.AvailableReplicas), want,
			c.podTrouble(ctx, namespace, d.Spec.Selector)), nil
	}
	return c.podsNotCounted(ctx, namespace, d.Spec.Selector, want)
}

// podsNotCounted returns which pods are missing although a controller has counted them: it may
// have been down, or have just started, while pods were lost with their node.
func (c Workloads) podsNotCounted(ctx context.Context, namespace string, selector *metav1.LabelSelector, counted int32) (string, error) {
	if counted == 0 {
		return "", nil
	}
	list, err := c.selectedPods(ctx, namespace, selector)
	if err != nil {
		return "", err
	}
	ready := int32(0)
	for i := range list {
		if p := &list[i]; p.GetDeletionTimestamp() == nil && conditionStatus(p, string(corev1.PodReady)) == "True" {
			ready++
		}
	}
	if ready < counted {
		return fmt.Sprintf("%d of %d pods are ready", ready, counted), nil
	}
	return "", nil
}

// selectedPods returns the pods of a namespace that belong to a workload.
func (c Workloads) selectedPods(ctx context.Context, namespace string,
	selector *metav1.LabelSelector,
) ([]unstructured.Unstructured, error) {
	sel, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	list, err := c.dynamic.Resource(pods).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: sel.String()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// podTrouble returns the first problem of a pod, as "; pod x: …", or "".
func (c Workloads) podTrouble(ctx context.Context, namespace string, selector *metav1.LabelSelector) string {
	list, err := c.selectedPods(ctx, namespace, selector)
	if err != nil {
		return ""
	}
	for i := range list {
		p := &corev1.Pod{}
		if err := fromUnstructured(&list[i], p); err != nil {
			continue
		}
		if why := waitingReason(p); why != "" {
			return "; pod " + p.Name + ": " + why
		}
	}
	return ""
}

// waitingReason returns the reason why a pod does not run, "" if it is just starting.
func waitingReason(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	for _, s := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
		if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			if w.Message == "" {
				return w.Reason
			}
			return w.Reason + ": " + w.Message
		}
		if t := s.LastTerminationState.Terminated; t != nil && !s.Ready {
			return fmt.Sprintf("container %s exited with code %d (%s)", s.Name, t.ExitCode, t.Reason)
		}
	}
	return ""
}
