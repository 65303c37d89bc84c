package controlplane

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/hostclaims"
)

var clusterResource = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "clusters"}

// claimsTime limits the wait for the hosts of all Clusters at a start.
const claimsTime = 30 * time.Second

// watchClaims keeps the hosts of all Clusters for the admission of others, until ctx ends. It returns when it has all
// Clusters, or after a limited time: until then, only the controllers compare the hosts of new Clusters.
func (s *Server) watchClaims(ctx context.Context) error {
	checker := s.config.Admission
	if checker == nil || checker.Claims == nil {
		return nil
	}
	client, err := dynamic.NewForConfig(rest.AddUserAgent(rest.CopyConfig(s.loopback), "slipwayd-admission"))
	if err != nil {
		return err
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, clusterResource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(keepClaim); err != nil {
		return fmt.Errorf("watching Clusters: %w", err)
	}
	handler, err := informer.AddEventHandler(claimHandler(checker.Claims))
	if err != nil {
		return fmt.Errorf("watching Clusters: %w", err)
	}
	s.background.Go(func() { informer.RunWithContext(ctx) })
	complete := make(chan struct{})
	s.background.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			checker.Claims.SetComplete()
			close(complete)
		}
	})
	select {
	case <-complete:
	case <-ctx.Done():
	case <-time.After(claimsTime):
		s.config.Log.Warn("the hosts of all Clusters are not known yet; the controllers compare them")
	}
	return nil
}

// ListClusters returns the Clusters of a namespace as they are stored.
func (s *Server) ListClusters(ctx context.Context, namespace string) ([]v1alpha1.Cluster, error) {
	client, err := dynamic.NewForConfig(rest.AddUserAgent(rest.CopyConfig(s.loopback), "slipwayd-admission"))
	if err != nil {
		return nil, err
	}
	found, err := client.Resource(clusterResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out v1alpha1.ClusterList
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), &out)
	return out.Items, err
}

// A claimedCluster is the part of a Cluster that stays in memory.
type claimedCluster struct {
	metav1.PartialObjectMetadata
	claim hostclaims.Claim
}

// keepClaim keeps only the hosts of a Cluster, because a Cluster can be large.
func keepClaim(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	c := new(v1alpha1.Cluster)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		return nil, fmt.Errorf("reading Cluster %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	out := &claimedCluster{claim: hostclaims.New(c)}
	out.Name, out.Namespace, out.UID, out.ResourceVersion = c.Name, c.Namespace, c.UID, c.ResourceVersion
	return out, nil
}

// claimHandler passes the changes of Clusters on.
func claimHandler(to *hostclaims.Index) cache.ResourceEventHandlerFuncs {
	set := func(object any) {
		if c, ok := object.(*claimedCluster); ok {
			to.Set(c.claim)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if c, err := meta.Accessor(object); err == nil {
				to.Remove(c.GetUID())
			}
		},
	}
}
