// Package hostclaims knows which Cluster objects name which hosts, so that no host is in two clusters. It does not
// read the objects itself: a watch of Clusters passes them on.
package hostclaims

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// A Claim is a Cluster object with its hosts.
type Claim struct {
	types.NamespacedName
	UID     types.UID
	Created time.Time
	// IsDeleted reports whether the object is being deleted.
	IsDeleted bool
	// Hosts maps spec.LoginKey of each host to its index in spec.hosts.
	Hosts map[string]int
}

// New returns the claim of a Cluster.
func New(c *v1alpha1.Cluster) Claim {
	out := Claim{
		NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, UID: c.UID, Created: c.CreationTimestamp.Time,
		IsDeleted: c.DeletionTimestamp != nil, Hosts: map[string]int{},
	}
	for i, h := range c.Spec.Hosts {
		if key := spec.LoginKey(c, h); key != "" {
			out.Hosts[key] = i
		}
	}
	return out
}

// Compare compares claims by age, then by UID. The first one of two claims on a host is the valid one, unless its
// cluster does not have the host yet and the other one does.
func Compare(a, b Claim) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) }

// A Shared host is claimed by another Cluster too.
type Shared struct {
	Key   string
	Index int // in spec.hosts
	Other Claim
}

// idInUse reports a host of another Cluster.
const idInUse = "host-in-other-cluster"

// Describe returns the problem of a shared host for the user of a Cluster.
func (s Shared) Describe(c *v1alpha1.Cluster) diag.Diagnostic {
	h := c.Spec.Hosts[s.Index]
	out := diag.Diagnostic{
		ID: idInUse, Severity: diag.Error, Path: yamlfile.IndexPath("spec.hosts", s.Index) + ".address",
		Message: "host " + h.Name + " (" + spec.LoginText(c, h) + ") is in Cluster " + s.Other.String() + " already",
		Hint:    "remove the host from one of the two Clusters",
	}
	if s.Other.IsDeleted {
		out.Message, out.Hint = out.Message+", which is being deleted", "wait until that Cluster is deleted"
	}
	return out
}

// An Index has the claims of all Clusters. It can be used by several goroutines. Make it with NewIndex.
type Index struct {
	now      func() time.Time
	complete atomic.Bool

	mu     sync.Mutex
	claims map[types.UID]*indexed
	byKey  map[string]map[types.UID]bool
}

// An indexed claim also has the time at which each host was seen first.
type indexed struct {
	Claim
	seen map[string]time.Time
}

// NewIndex returns an empty index. now has a monotonic clock, as time.Now.
func NewIndex(now func() time.Time) *Index {
	return &Index{now: now, claims: map[types.UID]*indexed{}, byKey: map[string]map[types.UID]bool{}}
}

// SetComplete marks an index that has the claims of all Clusters.
func (x *Index) SetComplete() { x.complete.Store(true) }

// IsComplete reports whether the index has the claims of all Clusters.
func (x *Index) IsComplete() bool { return x.complete.Load() }

// Set saves a claim. It returns the other Clusters that share a host with it, or did before.
func (x *Index) Set(c Claim) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	affected := map[types.NamespacedName]bool{}
	was := x.claims[c.UID]
	x.drop(was, affected)
	is := &indexed{Claim: c, seen: map[string]time.Time{}}
	for key := range c.Hosts {
		is.seen[key] = x.now()
		if was != nil && !was.seen[key].IsZero() {
			is.seen[key] = was.seen[key]
		}
		x.noteOthers(key, c.UID, affected)
		if x.byKey[key] == nil {
			x.byKey[key] = map[types.UID]bool{}
		}
		x.byKey[key][c.UID] = true
	}
	x.claims[c.UID] = is
	return slices.Collect(maps.Keys(affected))
}

// Remove removes the claim of a Cluster that was deleted. It returns the other Clusters that shared a host with it.
func (x *Index) Remove(uid types.UID) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	affected := map[types.NamespacedName]bool{}
	x.drop(x.claims[uid], affected)
	delete(x.claims, uid)
	return slices.Collect(maps.Keys(affected))
}

// drop removes a claim, which can be nil, from the keys. The caller holds mu.
func (x *Index) drop(was *indexed, affected map[types.NamespacedName]bool) {
	if was == nil {
		return
	}
	for key := range was.Hosts {
		x.noteOthers(key, was.UID, affected)
		if delete(x.byKey[key], was.UID); len(x.byKey[key]) == 0 {
			delete(x.byKey, key)
		}
	}
}

// noteOthers adds the other Clusters with a host. The caller holds mu.
func (x *Index) noteOthers(key string, uid types.UID, to map[types.NamespacedName]bool) {
	for other := range x.byKey[key] {
		if other != uid {
			to[x.claims[other].NamespacedName] = true
		}
	}
}

// FindShared returns the hosts of a claim that other Clusters claim too, in the order of spec.hosts; for each host
// the valid claim first.
func (x *Index) FindShared(c Claim) (out []Shared) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, i := range c.Hosts {
		for other := range x.byKey[key] {
			if other != c.UID {
				out = append(out, Shared{Key: key, Index: i, Other: x.claims[other].Claim})
			}
		}
	}
	slices.SortFunc(out, func(a, b Shared) int { return cmp.Or(cmp.Compare(a.Index, b.Index), Compare(a.Other, b.Other)) })
	return out
}

// SettleTime is the time that a host must have been in the index before its cluster uses it. Claims that were stored
// at the same time are in the index by then.
const SettleTime = time.Second

// Settling returns the time until all hosts of a claim have been in the index for SettleTime, 0 if they have.
func (x *Index) Settling(c Claim) (left time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	is := x.claims[c.UID]
	if is == nil {
		return SettleTime
	}
	for key := range c.Hosts {
		seen, ok := is.seen[key]
		if !ok {
			return SettleTime
		}
		left = max(left, SettleTime-x.now().Sub(seen))
	}
	return left
}
