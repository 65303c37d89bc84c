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

// restartedAt is where kubectl notes that a workload was restarted; another value
// makes other pods.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// A Workload is what pods belong to: a Deployment, StatefulSet or DaemonSet; of
// others, or of none, it is the pod itself or its controller.
type Workload struct {
	Kind, Namespace, Name string
}

// String is for people: "Deployment default/web".
func (w Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// Restarts says that it can be restarted, which makes other pods.
func (w Workload) Restarts() bool {
	return slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, w.Kind)
}

// A Holders finds the workloads with pods that run, hold something they were given when
// they were made, and were made before a moment, by the API's clock; each once, sorted.
type Holders func(ctx context.Context, before time.Time) ([]Workload, error)

// HoldTokens are the Holders of tokens of service accounts.
func (c *Client) HoldTokens(ctx context.Context, before time.Time) ([]Workload, error) {
	return c.older(ctx, before, holdsToken)
}

// HoldAuthorities are the Holders of what pods know the API servers by: it is beside
// each token, and some have it without one.
func (c *Client) HoldAuthorities(ctx context.Context, before time.Time) ([]Workload, error) {
	return c.older(ctx, before, func(p *corev1.Pod) bool { return holdsToken(p) || holdsRootCA(p) })
}

func (c *Client) older(ctx context.Context, before time.Time, holds func(*corev1.Pod) bool) ([]Workload, error) {
	list, err := c.dynamic.Resource(pods).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", c.words(err))
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
		w, err := c.workload(ctx, p)
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

// holdsToken says that a pod has a token of its service account's, or one of its
// own for somebody else.
func holdsToken(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
	})
}

// holdsRootCA says that a pod has what it knows the API servers by from the ConfigMap
// that every namespace has: as a file, or in its environment.
func holdsRootCA(p *corev1.Pod) bool {
	volumes := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == rootCA ||
			v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ConfigMap != nil && s.ConfigMap.Name == rootCA })
	})
	return volumes || slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.ConfigMapRef != nil && e.ConfigMapRef.Name == rootCA }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name == rootCA
			})
	})
}

// workload is what a pod belongs to.
func (c *Client) workload(ctx context.Context, p *corev1.Pod) (Workload, error) {
	of := metav1.GetControllerOf(p)
	if of == nil {
		return Workload{"Pod", p.Namespace, p.Name}, nil
	}
	if of.Kind == "ReplicaSet" {
		gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
		rs, err := c.dynamic.Resource(gvr).Namespace(p.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if hash := "-" + p.Labels["pod-template-hash"]; isNotFound(err) && strings.HasSuffix(of.Name, hash) {
			// Its Deployment keeps none that is of no use any more.
			return Workload{"Deployment", p.Namespace, strings.TrimSuffix(of.Name, hash)}, nil
		}
		if isNotFound(err) {
			return Workload{of.Kind, p.Namespace, of.Name}, nil
		}
		if err != nil {
			return Workload{}, fmt.Errorf("looking whose ReplicaSet %s/%s is: %w", p.Namespace, of.Name, c.words(err))
		}
		if up := metav1.GetControllerOf(rs); up != nil {
			of = up
		}
	}
	return Workload{of.Kind, p.Namespace, of.Name}, nil
}

// Rolls says that a workload makes other pods by itself when it is told to: a
// Deployment, StatefulSet or DaemonSet that is not paused, was not deleted, and does not
// wait for somebody to delete its pods.
func (c *Client) Rolls(ctx context.Context, w Workload) (bool, error) {
	if !w.Restarts() {
		return false, nil
	}
	u, err := c.dynamic.Resource(w.resource()).Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at %s: %w", w, c.words(err))
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

// Deleted says that a workload was deleted: it is gone, or goes when its pods have, which
// are ending or are about to. Of what others have made of their own it is not known.
func (c *Client) Deleted(ctx context.Context, w Workload) (bool, error) {
	if !w.Restarts() && !slices.Contains([]string{"ReplicaSet", "Job", "Pod"}, w.Kind) {
		return false, nil
	}
	u, err := c.dynamic.Resource(w.resource()).Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if isNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking whether %s was deleted: %w", w, c.words(err))
	}
	return u.GetDeletionTimestamp() != nil, nil
}

func (w Workload) resource() schema.GroupVersionResource {
	group := "apps"
	switch w.Kind {
	case "Job":
		group = "batch"
	case "Pod":
		group = ""
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(w.Kind) + "s"}
}

// Restart has a workload make other pods, in the way that it rolls out, unless it
// was told so for this moment before.
func (c *Client) Restart(ctx context.Context, w Workload, at time.Time) error {
	return c.annotate(ctx, w, restartedAt, at.UTC().Format(time.RFC3339))
}

// restartedFor is where it is noted for which settings a workload was restarted, which it
// reads when it starts.
const restartedFor = "slipway.dev/restarted-for"

// RestartFor has a workload make other pods, in the way that it rolls out, unless those
// that it has were made for these settings.
func (c *Client) RestartFor(ctx context.Context, w Workload, settings string) error {
	return c.annotate(ctx, w, restartedFor, settings)
}

// RestartedFor is for which settings it was told so last; "" is none.
func (c *Client) RestartedFor(ctx context.Context, w Workload) (string, error) {
	u, err := c.dynamic.Resource(w.resource()).Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if isNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking at %s: %w", w, c.words(err))
	}
	settings, _, err := unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", restartedFor)
	return settings, err
}

// annotate notes something at the pods that a workload makes, which are others then.
func (c *Client) annotate(ctx context.Context, w Workload, key, value string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{key: value},
	}}}})
	if err != nil {
		return err
	}
	if _, err := c.dynamic.Resource(w.resource()).Namespace(w.Namespace).Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager}); err != nil {
		return fmt.Errorf("restarting %s: %w", w, c.words(err))
	}
	return nil
}

// WaitOlderGone waits until a workload is none of the holders of before a moment: pods
// that are ending go on with what they have. Time is bounded by ctx alone.
func (c *Client) WaitOlderGone(ctx context.Context, w Workload, holders Holders, before time.Time, progress func(string)) error {
	err := c.Until(ctx, told(progress, func(ctx context.Context) (string, error) {
		older, err := holders(ctx, before)
		if err == nil && slices.Contains(older, w) {
			return "older pods have not ended", nil
		}
		return "", err
	}))
	if err != nil {
		return fmt.Errorf("waiting for the older pods of %s to end: %w", w, err)
	}
	return nil
}

// A TokenSecret is a token of a service account that does not end, as it is kept
// in a Secret.
type TokenSecret struct {
	Namespace, Name string
	Token           string
	CA              []byte // what it knows the API servers by
}

// TokenSecrets are all such, sorted.
func (c *Client) TokenSecrets(ctx context.Context) ([]TokenSecret, error) {
	list, err := c.dynamic.Resource(secrets).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil {
		return nil, fmt.Errorf("listing tokens of service accounts: %w", c.words(err))
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
