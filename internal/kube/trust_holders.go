package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A HoldersFunc function finds the workloads with running pods that were created before a time,
// by the API's clock, and hold data from their creation; each once, sorted.
type HoldersFunc func(ctx context.Context, before time.Time) ([]Workload, error)

// FindTokenHolders finds workloads that hold service account tokens.
func (c Trust) FindTokenHolders(ctx context.Context, before time.Time) ([]Workload, error) {
	return c.workloadsBefore(ctx, before, holdsToken)
}

// FindCAHolders finds workloads that hold the CA of the API servers: it comes with each
// token, and some pods have it without a token.
func (c Trust) FindCAHolders(ctx context.Context, before time.Time) ([]Workload, error) {
	return c.workloadsBefore(ctx, before, func(p *corev1.Pod) bool { return holdsToken(p) || holdsRootCA(p) })
}

func (c Trust) workloadsBefore(ctx context.Context, before time.Time, holds func(*corev1.Pod) bool) ([]Workload, error) {
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
		w, err := Workloads(c).ownerOf(ctx, p)
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
