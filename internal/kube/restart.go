package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// restartedAt is the annotation with which kubectl restarts a workload: a new value creates
// new pods.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// A Workload is the owner of pods: a Deployment, StatefulSet or DaemonSet, another
// controller, or the pod itself if it has no controller.
type Workload struct {
	Kind, Namespace, Name string
}

// String returns the workload for users: "Deployment default/web".
func (w Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// CanRestart reports whether it can be restarted, which creates new pods.
func (w Workload) CanRestart() bool {
	return slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, w.Kind)
}

// A HoldersFunc function finds the workloads with running pods that were created before a time,
// by the API's clock, and hold data from their creation; each once, sorted.
type HoldersFunc func(ctx context.Context, before time.Time) ([]Workload, error)

// FindTokenHolders finds workloads that hold service account tokens.
func (c *Client) FindTokenHolders(ctx context.Context, before time.Time) ([]Workload, error) {
	return c.workloadsBefore(ctx, before, holdsToken)
}

// FindCAHolders finds workloads that hold the CA of the API servers: it comes with each
// token, and some pods have it without a token.
func (c *Client) FindCAHolders(ctx context.Context, before time.Time) ([]Workload, error) {
	return c.workloadsBefore(ctx, before, func(p *corev1.Pod) bool { return holdsToken(p) || holdsRootCA(p) })
}

func (c *Client) workloadsBefore(ctx context.Context, before time.Time, holds func(*corev1.Pod) bool) ([]Workload, error) {
	list, err := c.dynamic.Resource(pods).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", c.describeError(err))
	}
	var out []Workload
	for i := range list.Items {
		p := &corev1.Pod{}
		if err := fromUnstructured(&list.Items[i], p); err != nil {
			return nil, err
		}
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if ended || !p.CreationTimestamp.Time.Before(before) || !holds(p) {
			continue
		}
		w, err := c.workloadOf(ctx, p)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b Workload) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// holdsToken reports whether a pod has a projected service account token.
func holdsToken(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
	})
}

// holdsRootCA reports whether a pod uses the root CA ConfigMap of its namespace, as a file
// or in its environment.
func holdsRootCA(p *corev1.Pod) bool {
	volumes := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == rootCA ||
			v.Projected != nil &&
				slices.ContainsFunc(v.Projected.Sources,
					func(s corev1.VolumeProjection) bool { return s.ConfigMap != nil && s.ConfigMap.Name == rootCA })
	})
	return volumes || slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.EnvFrom,
			func(e corev1.EnvFromSource) bool { return e.ConfigMapRef != nil && e.ConfigMapRef.Name == rootCA }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name == rootCA
			})
	})
}

// workloadOf returns the workload of a pod.
func (c *Client) workloadOf(ctx context.Context, p *corev1.Pod) (Workload, error) {
	of := metav1.GetControllerOf(p)
	if of == nil {
		return Workload{"Pod", p.Namespace, p.Name}, nil
	}
	if of.Kind == "ReplicaSet" {
		gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
		rs, err := c.dynamic.Resource(gvr).Namespace(p.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if hash := "-" + p.Labels["pod-template-hash"]; isNotFound(err) && strings.HasSuffix(of.Name, hash) {
			// Its Deployment has deleted the old ReplicaSet.
			return Workload{"Deployment", p.Namespace, strings.TrimSuffix(of.Name, hash)}, nil
		}
		if isNotFound(err) {
			return Workload{of.Kind, p.Namespace, of.Name}, nil
		}
		if err != nil {
			return Workload{}, fmt.Errorf("reading ReplicaSet %s/%s: %w", p.Namespace, of.Name, c.describeError(err))
		}
		if up := metav1.GetControllerOf(rs); up != nil {
			of = up
		}
	}
	return Workload{of.Kind, p.Namespace, of.Name}, nil
}

// RollsOnRestart reports whether a restart of a workload replaces its pods automatically: it is a
// Deployment, StatefulSet or DaemonSet that is not paused, not deleted, and does not have
// the update strategy OnDelete.
func (c *Client) RollsOnRestart(ctx context.Context, w Workload) (bool, error) {
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

// IsDeleted reports whether a workload was deleted: it does not exist, or is being deleted.
// For unknown kinds it returns false.
func (c *Client) IsDeleted(ctx context.Context, w Workload) (bool, error) {
	if !w.CanRestart() && !slices.Contains([]string{"ReplicaSet", "Job", "Pod"}, w.Kind) {
		return false, nil
	}
	u, err := c.dynamic.Resource(w.resourceOf()).Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if isNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("checking whether %s was deleted: %w", w, c.describeError(err))
	}
	return u.GetDeletionTimestamp() != nil, nil
}

func (w Workload) resourceOf() schema.GroupVersionResource {
	group := "apps"
	switch w.Kind {
	case "Job":
		group = "batch"
	case "Pod":
		group = ""
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(w.Kind) + "s"}
}

// RestartWorkload restarts a workload with its rollout strategy, unless it was already restarted
// for this time.
func (c *Client) RestartWorkload(ctx context.Context, w Workload, at time.Time) error {
	return c.annotateTemplate(ctx, w, restartedAt, at.UTC().Format(time.RFC3339))
}

// restartedFor is the annotation with the settings for which a workload was restarted; it
// reads them only when it starts.
const restartedFor = "slipway.dev/restarted-for"

// RestartFor restarts a workload with its rollout strategy, unless it was already restarted
// for these settings.
func (c *Client) RestartFor(ctx context.Context, w Workload, settings string) error {
	return c.annotateTemplate(ctx, w, restartedFor, settings)
}

// RestartedFor returns the settings of the latest RestartFor, "" if there was none.
func (c *Client) RestartedFor(ctx context.Context, w Workload) (string, error) {
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
func (c *Client) annotateTemplate(ctx context.Context, w Workload, key, value string) error {
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
func (c *Client) WaitOldPodsGone(ctx context.Context, w Workload, holders HoldersFunc, before time.Time, progress func(string)) error {
	err := c.WaitUntil(ctx, withProgress(progress, func(ctx context.Context) (string, error) {
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

// A TokenSecret is a service account token without expiry, from a Secret.
type TokenSecret struct {
	Namespace, Name string
	Token           string
	CA              []byte // the CA for the API servers
}

// TokenSecrets returns all of them, sorted.
func (c *Client) TokenSecrets(ctx context.Context) ([]TokenSecret, error) {
	list, err := c.dynamic.Resource(secrets).List(ctx,
		metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil {
		return nil, fmt.Errorf("listing service account tokens: %w", c.describeError(err))
	}
	var out []TokenSecret
	for i := range list.Items {
		s := &corev1.Secret{}
		if err := fromUnstructured(&list.Items[i], s); err != nil {
			return nil, err
		}
		out = append(out, TokenSecret{s.Namespace, s.Name, string(s.Data[corev1.ServiceAccountTokenKey]), s.Data[corev1.ServiceAccountRootCAKey]})
	}
	slices.SortFunc(out, func(a, b TokenSecret) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}
