// Package hostguard decides which of two Clusters with the same host may use it. Admission refuses the second one
// already, except if both are stored at the same time. The lock on the hosts remains the last protection.
package hostguard

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// A Guard compares the hosts of Clusters. All fields are required.
type Guard struct {
	// Claims has the hosts of all Clusters.
	Claims *hostclaims.Index
	// OpenRecords returns the records of a namespace.
	OpenRecords func(namespace string) (records.Backend, error)
	// Lifecycle has the configuration for reading the records.
	Lifecycle lifecycle.Config
}

// Check returns the hosts of a Cluster that it must not use, because they belong to other Clusters. A host belongs to
// the Cluster whose records have it. If both or none have it, it belongs to the older Cluster, and for the same age
// to the one with the lower UID. wait is the time until this is known, 0 if it is known.
func (g *Guard) Check(ctx context.Context, c *v1alpha1.Cluster) (found diag.List, wait time.Duration, err error) {
	claim := hostclaims.New(c)
	if wait := g.Claims.Settling(claim); wait > 0 {
		return nil, wait, nil
	}
	recorded, known := map[types.NamespacedName]map[string]bool{}, map[string]bool{}
	for _, s := range g.Claims.FindShared(claim) {
		if known[s.Key] {
			continue
		}
		isOurs, err := g.isFirst(ctx, claim, s, recorded)
		if err != nil {
			return nil, 0, err
		}
		if !isOurs {
			found, known[s.Key] = append(found, s.Describe(c)), true
		}
	}
	return found, 0, nil
}

// isFirst reports whether a host belongs to a Cluster, and not to the other one that claims it. recorded has what was
// read already.
func (g *Guard) isFirst(
	ctx context.Context, claim hostclaims.Claim, s hostclaims.Shared, recorded map[types.NamespacedName]map[string]bool,
) (bool, error) {
	for _, name := range []types.NamespacedName{claim.NamespacedName, s.Other.NamespacedName} {
		if recorded[name] != nil {
			continue
		}
		var err error
		if recorded[name], err = g.readHosts(ctx, name); err != nil {
			return false, fmt.Errorf("reading the hosts of cluster %s: %w", name, err)
		}
	}
	ours, theirs := recorded[claim.NamespacedName][s.Key], recorded[s.Other.NamespacedName][s.Key]
	if ours != theirs {
		return ours, nil
	}
	return hostclaims.Compare(claim, s.Other) < 0, nil
}

// readHosts returns the hosts that the records of a cluster have.
func (g *Guard) readHosts(ctx context.Context, name types.NamespacedName) (map[string]bool, error) {
	backend, err := g.OpenRecords(name.Namespace)
	if err != nil {
		return nil, err
	}
	object := new(v1alpha1.Cluster)
	object.Namespace, object.Name = name.Namespace, name.Name
	recorded, err := service.WithoutFiles(g.Lifecycle, backend, object).Saved(ctx, name.Name)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	if recorded != nil {
		for _, h := range recorded.Spec.Hosts {
			out[spec.LoginKey(recorded, h)] = true
		}
	}
	return out, nil
}
