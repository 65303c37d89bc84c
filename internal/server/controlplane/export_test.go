package controlplane

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HasFields is for tests with a server.
var HasFields = hasFields

// LoadConditions returns the conditions that the next start of a server takes over.
func LoadConditions(ctx context.Context, s *Server) ([]metav1.Condition, error) {
	next := &Server{loopback: s.loopback}
	err := next.loadConditions(ctx)
	return next.conditions.list, err
}
