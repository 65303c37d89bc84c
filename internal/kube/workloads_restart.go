package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// restartedAt is the annotation with which kubectl restarts a workload: a new value creates
// new pods.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// RollsOnRestart reports whether a restart of a workload replaces its pods automatically: it is a
// Deployment, StatefulSet or DaemonSet that is not paused, not deleted, and does not have
// the update strategy OnDelete.
func (c Workloads) RollsOnRestart(ctx context.Context, w Workload) (bool, error) {
	if !w.CanRestart() {
		return false, nil
	}
	u, err := c.dynamic.Resource(w.resourceOf()).Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", w, c.describeError(err))
	}
	if u.GetDeletionTimestamp() != nil {
		return false, nil
	}
	paused, _, err := unstructured.NestedBool(u.Object, "spec", "paused")
	if err != nil {
		return false, err
	}
	strategy, _, err := unstructured.NestedString(u.Object, "spec", "updateStrategy", "type")
	return !paused && strategy != "OnDelete", err
}

// Restart restarts a workload with its rollout strategy, unless it was already restarted
// for this time.
func (c Workloads) Restart(ctx context.Context, w Workload, at time.Time) error {
	return c.annotateTemplate(ctx, w, restartedAt, at.UTC().Format(time.RFC3339))
}

// restartedFor is the annotation with the settings for which a workload was restarted; it
// reads them only when it starts.
const restartedFor = "slipway.dev/restarted-for"

// RestartFor restarts a workload with its rollout strategy, unless it was already restarted
// for these settings.
func (c Workloads) RestartFor(ctx context.Context, w Workload, settings string) error {
	return c.annotateTemplate(ctx, w, restartedFor, settings)
}

// RestartedFor returns the settings of the latest RestartFor, "" if there was none.
func (c Workloads) RestartedFor(ctx context.Context, w Workload) (string, error) {
	u, err := c.dynamic.Resource(w.resourceOf()).Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if isNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", w, c.describeError(err))
	}
	settings, _, err := unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", restartedFor)
	return settings, err
}

// annotateTemplate sets an annotation of the pod template of a workload, which creates new pods.
func (c Workloads) annotateTemplate(ctx context.Context, w Workload, key, value string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{key: value},
	}}}})
	if err != nil {
		return err
	}
	if _, err := c.dynamic.Resource(w.resourceOf()).Namespace(w.Namespace).Patch(ctx, w.Name, types.MergePatchType,
		patch, metav1.PatchOptions{FieldManager: FieldManager}); err != nil {
		return fmt.Errorf("restarting %s: %w", w, c.describeError(err))
	}
	return nil
}

// WaitOldPodsGone waits until a workload has no more holders from before a time: terminating
// pods still use their old data. Only ctx limits the time.
func (c Workloads) WaitOldPodsGone(ctx context.Context, w Workload, holders HoldersFunc, before time.Time, progress func(string)) error {
	err := c.waitUntil(ctx, withProgress(progress, func(ctx context.Context) (string, error) {
		older, err := holders(ctx, before)
		if err == nil && slices.Contains(older, w) {
			return "older pods have not terminated", nil
		}
		return "", err
	}))
	if err != nil {
		return fmt.Errorf("waiting for the older pods of %s to terminate: %w", w, err)
	}
	return nil
}
