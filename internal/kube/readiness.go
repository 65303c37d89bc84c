package kube

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A DeprecatedAPI is an API that a client has requested since the API server started, and
// that will be removed.
type DeprecatedAPI struct {
	Resource, Group, Version string
	// Removed is the first minor without it: "1.38".
	Removed string
}

// FullName returns the name for users: "resourceclaims.v1beta1.resource.k8s.io".
func (d DeprecatedAPI) FullName() string {
	name := d.Resource + "." + d.Version
	if d.Group != "" {
		name += "." + d.Group
	}
	return name
}

// A FailedCall is a failed call of an admission webhook since the API server started.
type FailedCall struct {
	// Webhook is the name of the webhook. Mutates reports whether it is a mutating one.
	Webhook string
	Mutates bool
	// Refused reports whether the request was refused because of it, instead of
	// continuing without the webhook.
	Refused bool
}

// APIMetrics has the metrics of an API server, since it started, that matter for an upgrade.
type APIMetrics struct {
	Deprecated []DeprecatedAPI
	Failed     []FailedCall
}

// The metrics: requested deprecated APIs, failed webhook calls after which the request
// continued, and failed calls after which it was refused.
const (
	deprecatedMetric = "apiserver_requested_deprecated_apis"
	passedOverMetric = "apiserver_admission_webhook_fail_open_count"
	refusedMetric    = "apiserver_admission_webhook_rejection_count"
)

// ReadAPIMetrics returns the metrics of this API server: the requested APIs with a known removal,
// and the failed webhook calls.
func (c *Client) ReadAPIMetrics(ctx context.Context) (APIMetrics, error) {
	text, err := c.rest.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return APIMetrics{}, fmt.Errorf("reading the API server's metrics: %w", c.describeError(err))
	}
	return parseAPIMetrics(text), nil
}

// parseAPIMetrics parses the metrics. A subresource is reported as its resource.
func parseAPIMetrics(metrics []byte) (out APIMetrics) {
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		labels, value, ok := strings.Cut(rest, "} ")
		if !ok || value == "0" {
			continue
		}
		switch name {
		case deprecatedMetric:
			of := parseLabels(labels)
			d := DeprecatedAPI{Resource: of["resource"], Group: of["group"], Version: of["version"], Removed: of["removed_release"]}
			if d.Removed != "" && !slices.Contains(out.Deprecated, d) {
				out.Deprecated = append(out.Deprecated, d)
			}
		case passedOverMetric, refusedMetric:
			of := parseLabels(labels)
			f := FailedCall{Webhook: of["name"], Mutates: of["type"] == "admit", Refused: name == refusedMetric}
			if f.Refused && of["error_type"] != "calling_webhook_error" { // the webhook was called and refused the request
				continue
			}
			if !slices.Contains(out.Failed, f) {
				out.Failed = append(out.Failed, f)
			}
		}
	}
	slices.SortFunc(out.Deprecated, func(a, b DeprecatedAPI) int { return cmp.Compare(a.FullName(), b.FullName()) })
	return out
}

// parseLabels returns the labels of a metric by name.
func parseLabels(labels string) map[string]string {
	of := map[string]string{}
	for pair := range strings.SplitSeq(labels, ",") {
		name, text, _ := strings.Cut(pair, "=")
		of[name] = strings.Trim(text, `"`)
	}
	return of
}

// ListBlockingBudgets returns the disruption budgets that currently allow no eviction and cover
// pods on one of the nodes, as "namespace/name: reason".
func (c *Client) ListBlockingBudgets(ctx context.Context, nodes []string) ([]string, error) {
	now, ever, err := c.budgetsWithoutEvictions(ctx, nodes)
	out := slices.Concat(now, ever)
	slices.Sort(out)
	return out, err
}

// WaitBudgets waits until these budgets allow evictions, except for budgets that never do.
// progress, which may be nil, is called with what is still missing, once for each change.
// Only ctx limits the time.
func (c *Client) WaitBudgets(ctx context.Context, nodes []string, progress func(string)) error {
	err := c.WaitUntil(ctx, withProgress(progress, func(ctx context.Context) (string, error) {
		now, _, err := c.budgetsWithoutEvictions(ctx, nodes)
		return strings.Join(now, "; "), err
	}))
	if err != nil {
		return fmt.Errorf("waiting for PodDisruptionBudgets: %w", err)
	}
	return nil
}

// budgetsWithoutEvictions returns these budgets in two lists: now has budgets that allow
// no eviction in the current state of their pods, and ever has budgets that never allow
// one.
func (c *Client) budgetsWithoutEvictions(ctx context.Context, nodes []string) (now, ever []string, err error) {
	all, err := c.listBudgets(ctx)
	if err != nil {
		return nil, nil, err
	}
	var leave []corev1.Pod
	for _, n := range nodes {
		some, err := c.podsToEvict(ctx, n)
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

// ToleratesNodeOf reports whether a node can take the pods of another node: it is ready, it is not
// cordoned (or only by Slipway), and it has no taint that the other node lacks and its pods
// may not tolerate.
func ToleratesNodeOf(n, from *corev1.Node) bool {
	return n.Name != from.Name && NodeStateOf(n).Ready && (!n.Spec.Unschedulable || IsCordoned(n)) &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key != corev1.TaintNodeUnschedulable && t.Effect != corev1.TaintEffectPreferNoSchedule &&
				!slices.ContainsFunc(from.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&t) })
		})
}

// InsufficientCapacity returns the nodes whose pods request more resources than are free on all nodes
// that could take them, as "node: details". It does not check whether each pod fits on one
// node.
func (c *Client) InsufficientCapacity(ctx context.Context, all []corev1.Node, leave []string) (out []string, err error) {
	list, err := c.dynamic.Resource(pods).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", c.describeError(err))
	}
	used, goes := map[string]corev1.ResourceList{}, map[string]corev1.ResourceList{}
	for i := range list.Items {
		p := &corev1.Pod{}
		if err := fromUnstructured(&list.Items[i], p); err != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
		}
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		used[p.Spec.NodeName] = addResources(used[p.Spec.NodeName], podRequests(p))
		if isEvicted(p) {
			goes[p.Spec.NodeName] = addResources(goes[p.Spec.NodeName], podRequests(p))
		}
	}
	for i := range all {
		if !slices.Contains(leave, all[i].Name) {
			continue
		}
		free := corev1.ResourceList{}
		for j := range all {
			if ToleratesNodeOf(&all[j], &all[i]) {
				free = addResources(free, subtractResources(all[j].Status.Allocatable, used[all[j].Name]))
			}
		}
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			want, have := goes[all[i].Name][r], free[r]
			if want.Cmp(have) > 0 {
				out = append(out, fmt.Sprintf("%s: its pods request %s of %s, but only %s is free", all[i].Name, want.String(), r, have.String()))
			}
		}
	}
	return out, nil
}

// podRequests returns the resource requests of a pod: the maximum of the requests while it
// runs and while it starts.
func podRequests(p *corev1.Pod) corev1.ResourceList {
	runs, starts := addResources(nil, p.Spec.Overhead), []corev1.ResourceList(nil)
	for _, c := range p.Spec.Containers {
		runs = addResources(runs, c.Resources.Requests)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			runs = addResources(runs, c.Resources.Requests)
			continue
		}
		starts = append(starts, addResources(p.Spec.Overhead, c.Resources.Requests))
	}
	for _, s := range starts {
		for r, q := range s {
			if is := runs[r]; q.Cmp(is) > 0 {
				runs[r] = q
			}
		}
	}
	return runs
}

// addResources returns the sum of two resource lists; minus the difference, without negative
// values.
func addResources(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{a, b} {
		for r, q := range list {
			sum := out[r]
			sum.Add(q)
			out[r] = sum
		}
	}
	return out
}

func subtractResources(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for r, q := range a {
		left := q.DeepCopy()
		if left.Sub(b[r]); left.Sign() > 0 {
			out[r] = left
		}
	}
	return out
}

var (
	validating = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	mutating   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	slicesOf   = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// A Webhook is an admission webhook of the cluster.
type Webhook struct {
	// Config is the name of its configuration.
	Config, Name string
	// Mutates reports whether it is a mutating webhook.
	Mutates bool
	// Dead is the reason why requests fail because of it: its Service has no ready
	// endpoint. For a webhook with a URL this is unknown.
	Dead string
}

// String returns "configuration/webhook".
func (w Webhook) String() string { return w.Config + "/" + w.Name }

// IsOf reports whether it is a call of this webhook.
func (f FailedCall) IsOf(w Webhook) bool { return f.Webhook == w.Name && f.Mutates == w.Mutates }

// ListWebhooks returns the admission webhooks of the cluster.
func (c *Client) ListWebhooks(ctx context.Context) (out []Webhook, err error) {
	for _, kind := range []schema.GroupVersionResource{validating, mutating} {
		list, err := c.dynamic.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.Resource, c.describeError(err))
		}
		for i := range list.Items {
			some, err := c.webhooksOfConfig(ctx, &list.Items[i])
			if err != nil {
				return nil, err
			}
			for _, w := range some {
				w.Mutates = kind == mutating
				out = append(out, w)
			}
		}
	}
	slices.SortFunc(out, func(a, b Webhook) int { return cmp.Compare(a.String(), b.String()) })
	return out, nil
}

func (c *Client) webhooksOfConfig(ctx context.Context, config *unstructured.Unstructured) (out []Webhook, err error) {
	// Only the failure policy and the target matter here.
	var has struct {
		Webhooks []struct {
			Name          string                          `json:"name"`
			FailurePolicy *admissionv1.FailurePolicyType  `json:"failurePolicy"`
			ClientConfig  admissionv1.WebhookClientConfig `json:"clientConfig"`
		} `json:"webhooks"`
	}
	if err := fromUnstructured(config, &has); err != nil {
		return nil, fmt.Errorf("reading webhooks %s: %w", config.GetName(), err)
	}
	for _, h := range has.Webhooks {
		w := Webhook{Config: config.GetName(), Name: h.Name}
		if service := h.ClientConfig.Service; service != nil && (h.FailurePolicy == nil || *h.FailurePolicy != admissionv1.Ignore) {
			ready, err := c.hasReadyEndpoint(ctx, service.Namespace, service.Name)
			if err != nil {
				return nil, err
			}
			if !ready {
				w.Dead = "Service " + service.Namespace + "/" + service.Name + " has no ready endpoint"
			}
		}
		out = append(out, w)
	}
	return out, nil
}

// hasReadyEndpoint reports whether a Service has a ready endpoint.
func (c *Client) hasReadyEndpoint(ctx context.Context, namespace, service string) (bool, error) {
	list, err := c.dynamic.Resource(slicesOf).Namespace(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return false, fmt.Errorf("listing the endpoints of Service %s/%s: %w", namespace, service, c.describeError(err))
	}
	for i := range list.Items {
		s := &discoveryv1.EndpointSlice{}
		if err := fromUnstructured(&list.Items[i], s); err != nil {
			return false, fmt.Errorf("reading endpoints %s/%s: %w", namespace, list.Items[i].GetName(), err)
		}
		if slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }) {
			return true, nil
		}
	}
	return false, nil
}

// ListNames returns the names of the objects of a resource, given as "group/version/resource",
// as "namespace/name"; none if the API server does not serve it.
func (c *Client) ListNames(ctx context.Context, resource string) (out []string, err error) {
	parts := strings.Split(resource, "/")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%q is not of the form group/version/resource", resource)
	}
	list, err := c.dynamic.Resource(schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}).List(ctx,
		metav1.ListOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource, c.describeError(err))
	}
	for _, item := range list.Items {
		name := item.GetName()
		if item.GetNamespace() != "" {
			name = item.GetNamespace() + "/" + name
		}
		out = append(out, name)
	}
	return out, nil
}
