package useraccess

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/diag"
)

// TestIssue_RefusesReservedNamesAndLongLifetimes sends no request: there is no server.
func TestIssue_RefusesReservedNamesAndLongLifetimes(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		request      Request
	}{
		{"no user", "the name is the identity", Request{TTL: time.Hour}},
		{"long name", "a common name has at most 64 bytes", Request{User: strings.Repeat("a", 65), TTL: time.Hour}},
		{"control character", "it could steer a terminal", Request{User: "a\x1b[2J", TTL: time.Hour}},
		{"reserved user", "it is an account of the server", Request{User: "system:kube-scheduler", TTL: time.Hour}},
		{"reserved group", "the group has all rights", Request{User: "jane", Groups: []string{"web", "system:masters"}, TTL: time.Hour}},
		{"empty group", "the group has no name", Request{User: "jane", Groups: []string{""}, TTL: time.Hour}},
		{"no lifetime", "the certificate would have expired", Request{User: "jane"}},
		{"short lifetime", "the server signs for at least 10 minutes", Request{User: "jane", TTL: time.Minute}},
		{"long lifetime", "a certificate cannot be revoked", Request{User: "jane", TTL: 366 * 24 * time.Hour}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Issue(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, tc.request)
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != idInvalidUser {
				t.Errorf("%s: got %v, want the id %s", tc.reason, err, idInvalidUser)
			}
		})
	}
}
