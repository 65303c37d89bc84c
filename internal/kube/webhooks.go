package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
func (c APIServer) ListWebhooks(ctx context.Context) (out []Webhook, err error) {
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

func (c APIServer) webhooksOfConfig(ctx context.Context, config *unstructured.Unstructured) (out []Webhook, err error) {
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
func (c APIServer) hasReadyEndpoint(ctx context.Context, namespace, service string) (bool, error) {
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
