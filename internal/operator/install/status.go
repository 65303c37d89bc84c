package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/operator/manifests"
)

// A Status is the state of the operator in a cluster.
type Status struct {
	Version string `json:"version"`
	Image   string `json:"image"`
	// Replicas is the wanted number of Pods, Updated the number with the current version, Ready how many of all are ready.
	Replicas int32 `json:"replicas"`
	All      int32 `json:"all"` // Pods, also of an earlier version
	Updated  int32 `json:"updated"`
	Ready    int32 `json:"ready"`
	// Processes are the Pods that share the clusters, sorted.
	Processes []string `json:"processes,omitempty"`
	// Definitions maps the names of the definitions to their versions.
	Definitions map[string]string `json:"definitions"`
	// HasWebhook reports whether the API server can verify the webhook.
	HasWebhook bool `json:"hasWebhook"`
	// Clusters is the number of Cluster objects.
	Clusters int `json:"clusters"`
	// Problems are the reasons of Pods that do not run.
	Problems []string `json:"problems,omitempty"`
}

// IsReady reports whether all Pods run the current version, and they share the clusters.
func (s *Status) IsReady() bool {
	return s.Replicas == s.Ready && s.Replicas == s.Updated && s.Replicas == s.All && len(s.Processes) > 0 && s.HasWebhook
}

// describeWait describes the parts that are not ready.
func (s *Status) describeWait() string {
	parts := []string{fmt.Sprintf("%d of %d Pods are ready", s.Ready, s.Replicas)}
	if len(s.Processes) == 0 {
		parts = append(parts, "no process runs the controllers")
	}
	if !s.HasWebhook {
		parts = append(parts, "the webhook has no certificate")
	}
	return strings.Join(append(parts, s.Problems...), "; ")
}

// Status returns the state of the operator. It is refused if there is none.
func (i *Installer) Status(ctx context.Context) (*Status, error) {
	d, err := i.loadDeployment(ctx)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, notInstalled()
	}
	s := &Status{
		Version: manifests.VersionOf(d), Image: manifests.ImageOf(d),
		All: d.Status.Replicas, Updated: d.Status.UpdatedReplicas, Ready: d.Status.ReadyReplicas,
		Definitions: map[string]string{},
	}
	if d.Spec.Replicas != nil {
		s.Replicas = *d.Spec.Replicas
	}
	if d.Status.ObservedGeneration < d.Generation {
		s.Updated = 0 // the status is of an earlier Deployment
	}
	for _, read := range []func(context.Context, *Status) error{
		i.readProcesses, i.readDefinitions, i.readWebhook, i.countClusters, i.readPods,
	} {
		if err := read(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// readProcesses reads the Leases of the processes.
func (i *Installer) readProcesses(ctx context.Context, s *Status) error {
	list, err := i.client.Resource(manifests.LeaseResource).Namespace(manifests.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.LabelMembers + "=" + manifests.MembersGroup,
	})
	if err != nil {
		return fmt.Errorf("reading the Leases of the operator: %w", err)
	}
	for _, lease := range list.Items {
		var is coordinationv1.Lease
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(lease.Object, &is); err != nil {
			return err
		}
		length := time.Duration(ptr.Deref(is.Spec.LeaseDurationSeconds, 0)) * time.Second
		if renewed := is.Spec.RenewTime; renewed == nil || time.Since(renewed.Time) > length+clockReserve {
			continue // its process was killed
		}
		s.Processes = append(s.Processes, manifests.PodOf(ptr.Deref(is.Spec.HolderIdentity, "")))
	}
	slices.Sort(s.Processes)
	s.Processes = slices.Compact(s.Processes)
	return nil
}

// clockReserve is how much the clocks of this machine and of the nodes can differ.
const clockReserve = 10 * time.Second

func (i *Installer) readDefinitions(ctx context.Context, s *Status) error {
	list, err := i.client.Resource(manifests.DefinitionResource).List(ctx, metav1.ListOptions{LabelSelector: manifests.OursSelector})
	if err != nil {
		return fmt.Errorf("reading the definitions: %w", err)
	}
	for _, d := range list.Items {
		s.Definitions[d.GetName()] = d.GetLabels()[manifests.LabelVersion]
	}
	return nil
}

func (i *Installer) readWebhook(ctx context.Context, s *Status) error {
	is, err := i.client.Resource(manifests.WebhookResource).Get(ctx, manifests.WebhookName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the configuration of the webhook: %w", err)
	}
	hooks, _, err := unstructured.NestedSlice(is.Object, "webhooks")
	s.HasWebhook = len(hooks) > 0
	for _, hook := range hooks {
		fields, _ := hook.(map[string]any)
		if ca, _, _ := unstructured.NestedString(fields, "clientConfig", "caBundle"); ca == "" {
			s.HasWebhook = false
		}
	}
	return err
}

func (i *Installer) countClusters(ctx context.Context, s *Status) error {
	list, err := i.client.Resource(manifests.GroupVersion.WithResource("clusters")).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Clusters: %w", err)
	}
	s.Clusters = len(list.Items)
	return nil
}

// readPods finds why Pods do not run.
func (i *Installer) readPods(ctx context.Context, s *Status) error {
	list, err := i.client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(manifests.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: manifests.PodSelector})
	if err != nil {
		return fmt.Errorf("reading the Pods of the operator: %w", err)
	}
	for _, item := range list.Items {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pod); err != nil {
			return err
		}
		if text := podProblem(&pod); text != "" && !slices.Contains(s.Problems, text) {
			s.Problems = append(s.Problems, text)
		}
	}
	return nil
}

// podProblem returns why a Pod does not run, "" if it runs.
func podProblem(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
			return strings.TrimSuffix("Pod "+p.Name+": "+w.Reason+": "+w.Message, ": ")
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "Pod " + p.Name + ": " + c.Reason + ": " + c.Message
		}
	}
	return ""
}
