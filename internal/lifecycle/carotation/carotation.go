// Package carotation determines the progress of a rotation of CAs and keys from the files on
// hosts. It changes nothing.
package carotation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	// IDUnknown is the id for a CA or key that cannot be rotated.
	IDUnknown            = "unknown-authority"
	idAuthorityNoKey     = op.IDAuthorityNoKey
	idRotationKey        = "account-key-missing"
	idRotationCert       = "authority-missing"
	idKeyElsewhere       = "account-key-elsewhere"
	idAuthorityElsewhere = "authority-elsewhere"
)

// A Query reads the CAs and keys of a cluster's hosts.
type Query struct {
	Env   module.Env
	Hosts []*engine.Host
	Now   func() time.Time
}

// FindProgress determines the progress of the rotation of a CA or key and sets it in out.
// from is the id of the old CA or key, "" if it is not known yet. It returns that id.
func (q Query) FindProgress(ctx context.Context, name, from string, out *certs.Rotations) (string, error) {
	return lookers()[name](q, ctx, from, out)
}

// lookers returns, by name, for each CA or key that can be rotated, the function
// that determines the progress of the rotation. from is the id of the old CA or key,
// "" if it is not known yet; the function returns that id.
func lookers() map[string]func(q Query, ctx context.Context, from string, out *certs.Rotations) (string, error) {
	return map[string]func(q Query, ctx context.Context, from string, out *certs.Rotations) (string, error){
		certs.Cluster:        Query.lookAtCluster,
		certs.ServiceAccount: Query.lookAtAccounts,
		certs.FrontProxy:     Query.lookAtFrontProxy,
		certs.Etcd:           Query.lookAtEtcd,
	}
}

// Names returns the names of the CAs and keys that can be rotated.
func Names() []string { return slices.Sorted(maps.Keys(lookers())) }

// CheckNames refuses unknown names of CAs and keys.
func CheckNames(names []string) error {
	var list diag.List
	for _, name := range names {
		if slices.Contains(Names(), name) {
			continue
		}
		hint := diag.DidYouMean(name, Names())
		if hint == "" {
			hint = "use one of: " + strings.Join(Names(), ", ")
		}
		list = append(list,
			diag.Diagnostic{
				ID: IDUnknown, Severity: diag.Error,
				Message: fmt.Sprintf("there is no CA or key %q to rotate", name), Hint: hint,
			})
	}
	return list.Err()
}
