package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const (
	// waitTime is the time after which a state that has not come is a failure.
	waitTime = 3 * time.Minute
	// waitPeriod is the time between two looks.
	waitPeriod = 50 * time.Millisecond
	// attempts limits the requests that are repeated for a busy server, attemptPause apart.
	attempts     = 30
	attemptPause = time.Second
)

var (
	clusterResource      = schema.GroupVersionResource{Group: "slipway.dev", Version: "v1alpha1", Resource: "clusters"}
	operationResource    = schema.GroupVersionResource{Group: "slipway.dev", Version: "v1alpha1", Resource: "operations"}
	operationLogResource = schema.GroupVersionResource{Group: "slipway.dev", Version: "v1alpha1", Resource: "operationlogs"}
)

// newDynamic returns a client for objects of any kind.
func newDynamic(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// decodeObject returns the object of a YAML text.
func decodeObject(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	object := map[string]any{}
	if err == nil {
		err = json.Unmarshal(raw, &object)
	}
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return &unstructured.Unstructured{Object: object}
}

// newCluster returns a Cluster with hosts, "{…}, {…}".
func newCluster(t testing.TB, name, hosts string) *unstructured.Unstructured {
	t.Helper()
	return decodeObject(t, fmt.Sprintf(
		"apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec: {hosts: [%s]}\n", name, hosts))
}

// waitUntil waits until a condition holds. what describes the condition. The wait continues if the
// server is busy.
func waitUntil(t testing.TB, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	var busy error
	err := wait.PollUntilContextTimeout(t.Context(), waitPeriod, waitTime, true, func(ctx context.Context) (bool, error) {
		done, err := condition(ctx)
		if busy = nil; isBusy(err) {
			busy, err = err, nil
		}
		return done, err
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, errors.Join(err, busy))
	}
}

// isBusy reports whether a request had no response, or one that says nothing about the request
// itself: the server is busy. The refusal of a write without room is another case.
func isBusy(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return isBusyStatus(int(status.Status().Code))
	}
	var network net.Error
	return errors.As(err, &network)
}

// isBusyStatus reports whether a server with this status is busy.
func isBusyStatus(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError && status != http.StatusInsufficientStorage
}

// repeatIfBusy sends a request until the server is not busy, and returns its error.
func repeatIfBusy(ctx context.Context, send func() error) error {
	for range attempts - 1 {
		if err := send(); !isBusy(err) || !pause(ctx, attemptPause) {
			return err
		}
	}
	return send()
}

// fieldsOf returns the fields of an invalid or conflicting object, with the messages.
func fieldsOf(err error) (out []string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, c := range status.Status().Details.Causes {
		out = append(out, c.Field+": "+c.Message)
	}
	return out
}

// hasField reports whether one of the fields of an error is field, or is below it.
func hasField(err error, field string) bool {
	for _, f := range fieldsOf(err) {
		name, _, _ := strings.Cut(f, ": ")
		name = strings.TrimPrefix(name, ".")
		if rest, ok := strings.CutPrefix(name, field); ok && (rest == "" || strings.ContainsAny(rest[:1], ".[")) {
			return true
		}
	}
	return false
}

// deleteNow deletes an object without finalizers.
func deleteNow(t testing.TB, at dynamic.ResourceInterface, name string) {
	t.Helper()
	if err := at.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// isGone returns a condition: an object does not exist.
func isGone(at dynamic.ResourceInterface, name string) func(ctx context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_, err := at.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	}
}

// setCreated marks a Cluster object as one whose cluster exists.
func setCreated(t testing.TB, at dynamic.ResourceInterface, name string) {
	t.Helper()
	patch := []byte(`{"status": {"conditions": [{"type": "Created", "status": "True", "reason": "Done", "message": "",
		"lastTransitionTime": "2026-11-27T00:00:00Z"}]}}`)
	if _, err := at.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}
