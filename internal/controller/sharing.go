package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/sharding"
)

// Sharing makes several processes share the clusters. All fields are required.
type Sharing struct {
	// Namespace has a Lease of each process, and Group is the start of their names.
	Namespace, Group string
	// Identity is the name of this process.
	Identity string
	// Release is the version of this process.
	Release string
}

// newMembers returns the processes that share clusters, nil if this one does not share.
func (c *Config) newMembers(api *rest.Config) (*sharding.Members, error) {
	if c.Sharing == nil {
		return nil, nil
	}
	leases, err := coordination.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("starting the controllers: %w", err)
	}
	return sharding.New(sharding.Config{
		Leases: leases.Leases(c.Sharing.Namespace), Group: c.Sharing.Group, Identity: c.Sharing.Identity,
		Release: c.Sharing.Release, Log: c.Log,
	}), nil
}

// owns reports whether a cluster belongs to this process.
func (c *Config) owns(cluster types.NamespacedName) bool {
	return c.members == nil || c.members.Owns(cluster)
}

// A forgetter has state of clusters outside of their objects.
type forgetter interface {
	Forget(cluster types.NamespacedName)
}

// ownClusters limits a controller of Clusters to the Clusters of this process.
func (c *Config) ownClusters(all reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
		if c.owns(key.NamespacedName) {
			return all.Reconcile(ctx, key)
		}
		if f, ok := all.(forgetter); ok {
			f.Forget(key.NamespacedName)
		}
		return reconcile.Result{}, nil
	})
}

// completeForClusters adds a controller of Clusters to a manager.
func (c *Config) completeForClusters(b *builder.Builder, m manager.Manager, all reconcile.Reconciler) error {
	return c.watchMembers(b, m.GetClient(), func() client.ObjectList { return new(v1alpha1.ClusterList) }).Complete(c.ownClusters(all))
}

// joinMembers returns the part of a manager that joins the processes that share clusters, when the objects are in its
// cache.
func (c *Config) joinMembers(m manager.Manager) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		if !m.GetCache().WaitForCacheSync(ctx) {
			return nil // ctx has ended
		}
		return c.members.Start(ctx)
	})
}

// watchMembers makes a controller look at all objects of its kind after a change of the processes that share clusters.
func (c *Config) watchMembers(b *builder.Builder, from client.Reader, newList func() client.ObjectList) *builder.Builder {
	if c.members == nil {
		return b
	}
	return b.WatchesRawSource(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		c.members.OnChange(func() {
			for _, name := range listNames(ctx, from, newList()) {
				q.Add(reconcile.Request{NamespacedName: name})
			}
		})
		return nil
	}))
}

// listNames returns the names of all objects of a kind.
func listNames(ctx context.Context, from client.Reader, list client.ObjectList) (out []types.NamespacedName) {
	if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache has stopped
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error { // it fails only for another type than a list
		object, err := meta.Accessor(o)
		if err == nil {
			out = append(out, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
		}
		return err
	})
	return out
}
