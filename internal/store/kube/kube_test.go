package kube_test

import (
	"path/filepath"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records/conformance"
	"slipway.dev/slipway/internal/store/kube"
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
