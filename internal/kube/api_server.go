package kube

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// APIServer is a client for the API server itself: what it serves, and how it has served it
// since it started.
type APIServer struct{ *connection }

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

// ReadMetrics returns the metrics of this API server: the requested APIs with a known removal,
// and the failed webhook calls.
func (c APIServer) ReadMetrics(ctx context.Context) (APIMetrics, error) {
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

// GetEtcdRevision returns the current revision of etcd from the API, because lists are always
// read at the latest revision.
func (c APIServer) GetEtcdRevision(ctx context.Context) (int64, error) {
	list, err := c.dynamic.Resource(nodes).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("reading the revision: %w", c.describeError(err))
	}
	revision, err := strconv.ParseInt(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the revision: %w", err)
	}
	return revision, nil
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// ListSilentAPIs returns the aggregated APIs that do not respond to the API server:
// "v1beta1.metrics.k8s.io (reason)".
func (c APIServer) ListSilentAPIs(ctx context.Context) (out []string, err error) {
	list, err := c.dynamic.Resource(apiServices).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing API services: %w", c.describeError(err))
	}
	for _, item := range list.Items {
		if _, handed, _ := unstructured.NestedMap(item.Object, "spec", "service"); !handed {
			continue // served by the API server itself
		}
		group, _, _ := unstructured.NestedString(item.Object, "spec", "group")
		version, _, _ := unstructured.NestedString(item.Object, "spec", "version")
		if err := c.rest.Get().AbsPath("/apis/" + group + "/" + version).Do(ctx).Error(); err != nil {
			out = append(out, item.GetName()+" ("+c.describeError(err).Error()+")")
		}
	}
	slices.Sort(out)
	return out, nil
}
