package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"slipway.dev/slipway/internal/diag"
)

var (
	configMaps = schema.GroupResource{Resource: "configmaps"}
	denied     = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 400, Message: `admission webhook "deny.example.com" denied the request: no`,
	}}
	invalid = apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "x", nil)
	silent  = apierrors.NewInternalError(errors.New(`failed calling webhook "deny.example.com": connection refused`))
)

// newConfigMap returns an object for tests.
func newConfigMap(value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x", "namespace": "y"},
		"data": map[string]any{"key": value},
	}}
}

func TestApplyObject_EndsWithoutEndlessRefusals(t *testing.T) {
	tests := []struct {
		name, reason string
		refusal      error
		lasts        time.Duration // of the refusal
		stored       string        // "" if the object does not exist
		id           string        // of the message, "other", or "" without an error
		takes        time.Duration
	}{
		{"accepted", "nothing refuses it", nil, 0, "", "", 0},
		{"start", "a role is not known yet", apierrors.NewForbidden(configMaps, "x", nil), 5 * time.Second, "", "", 5 * time.Second},
		{"not valid", "the program has a mistake", invalid, time.Hour, "v", "other", 0},
		{"bad request", "the program has a mistake", apierrors.NewBadRequest("no"), time.Hour, "v", "other", 0},
		{"denied, no change", "the stored object is as it should be", denied, time.Hour, "v", "", refusalTime},
		{"silent, no change", "the stored object is as it should be", silent, time.Hour, "v", "", refusalTime},
		{"denied, changed", "an old definition must not be used", denied, time.Hour, "old", idDefinitionRefused, applyTime},
		{"denied, missing", "the server needs the object", denied, time.Hour, "", idDefinitionRefused, applyTime},
		{"silent, missing", "the server needs the object", silent, time.Hour, "", idDefinitionRefused, applyTime},
		{"corrected", "the user deletes the webhook", denied, 30 * time.Second, "", "", 30 * time.Second},
		{"no server", "the message names no webhook", apierrors.NewInternalError(errors.New("etcd")), time.Hour, "", "other", applyTime},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
				client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					if time.Since(begun) < tc.lasts {
						return true, nil, tc.refusal
					}
					return true, newConfigMap("v"), nil
				})
				client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					if tc.stored == "" {
						return true, nil, apierrors.NewNotFound(configMaps, "x")
					}
					return true, newConfigMap(tc.stored), nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), applyTime)
				defer cancel()
				a := &applier{client: client, log: slog.New(slog.NewTextHandler(io.Discard, nil)), begun: begun}
				got, list := "", diag.List(nil)
				switch err := a.applyObject(ctx, newConfigMap("v")); {
				case errors.As(err, &list):
					got = list[0].ID
				case err != nil:
					got = "other"
				}
				if got != tc.id {
					t.Errorf("message %q instead of %q: %s", got, tc.id, tc.reason)
				}
				if took := time.Since(begun); took < tc.takes || took > tc.takes+time.Second {
					t.Errorf("it took %s instead of %s: %s", took, tc.takes, tc.reason)
				}
			})
		})
	}
}

func TestReadFirst_GivesEachServerItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := readFirst(t.Context(), []string{"silent", "silent", "working"},
			func(ctx context.Context, server string) (databaseUsage, error) {
				if server == "silent" {
					<-ctx.Done()
				}
				return databaseUsage{Bytes: 1}, ctx.Err()
			})
		if err != nil || got.Bytes != 1 {
			t.Errorf("got %v, %v, want the usage of the third server", got, err)
		}
	})
}

func TestStartEmbedded_ClosesLateDatabase(t *testing.T) {
	dir := t.TempDir()
	e := &etcd{dir: dir, quota: MinQuota, log: slog.New(slog.NewTextHandler(io.Discard, nil)), failed: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.startEmbedded(ctx, newEtcdLog(e.log, e.failed)); !errors.Is(err, context.Canceled) {
		t.Fatalf("a start without time: %v", err)
	}
	if err := e.closeWithin(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	// A running etcd would have a lock on its database.
	again := &etcd{dir: dir, quota: MinQuota, log: e.log, failed: make(chan error, 1)}
	if err := again.startEmbedded(t.Context(), newEtcdLog(e.log, again.failed)); err != nil {
		t.Error(fmt.Errorf("the first etcd is still running: %w", err))
	}
	if err := again.closeWithin(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}
