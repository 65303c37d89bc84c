package kube_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records/conformance"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/store/kube/archive"
)

func TestStore_Conforms(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		dir := t.TempDir()
		return newSubject(t, kube.Config{
			Client: server.Admin, Namespace: server.NewNamespace(t), BackupDir: filepath.Join(dir, "backups"), TempDir: dir,
			LeaseTime: 2 * time.Second, Patience: 10 * time.Second,
		})
	})
}

func TestStore_ConformsWithArchive(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		dir := t.TempDir()
		return newSubject(t, kube.Config{
			Client: server.Admin, Namespace: server.NewNamespace(t), BackupDir: filepath.Join(dir, "backups"), TempDir: dir,
			LeaseTime: 2 * time.Second, Patience: 10 * time.Second, Archive: openDirectory(t, filepath.Join(dir, "archive")),
		})
	})
}

func newSubject(t *testing.T, c kube.Config) conformance.Subject {
	t.Helper()
	return conformance.Subject{
		Backend: openStore(t, c),
		Again:   func() conformance.Subject { return newSubject(t, c) },
	}
}

func openStore(t *testing.T, c kube.Config) *kube.Store {
	t.Helper()
	s, err := kube.New(c)
	requireNoError(t, err)
	return s
}

func openDirectory(t *testing.T, path string) *archive.Directory {
	t.Helper()
	d, err := archive.OpenDirectory(t.Context(), path)
	requireNoError(t, err)
	t.Cleanup(func() { requireNoError(t, d.Close()) })
	return d
}

// beginOperation saves an operation that creates cluster prod.
func beginOperation(t *testing.T, s *kube.Store) *v1alpha1.Operation {
	t.Helper()
	spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "create"}
	o, err := s.Operations().Create(t.Context(), time.Now(), spec, new(plan.Plan))
	requireNoError(t, err)
	return o
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listParts returns the selected parts of journals.
func listParts(t *testing.T, namespace, selector string) []v1alpha1.OperationLog {
	t.Helper()
	c := rest.CopyConfig(server.Admin)
	c.GroupVersion, c.APIPath = &schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	requireNoError(t, err)
	text, err := client.Get().Namespace(namespace).Resource("operationlogs").Param("labelSelector", selector).Do(t.Context()).Raw()
	requireNoError(t, err)
	var list v1alpha1.OperationLogList
	requireNoError(t, json.Unmarshal(text, &list))
	return list.Items
}
