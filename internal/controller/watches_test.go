package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestByUser_ComesFirst has clusters with progress in the queue, and then a change of a user. A read at the start of a
// process does not count as a change.
func TestByUser_ComesFirst(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	newCluster := func(name string) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"}}
	}
	read, changed := newCluster("read"), newCluster("changed")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, reconcile.Request{NamespacedName: keyOf("read")})
	q.Add(reconcile.Request{NamespacedName: keyOf("progress")})
	q.Add(reconcile.Request{NamespacedName: keyOf("changed")})
	byUser().Create(t.Context(), event.CreateEvent{Object: read, IsInInitialList: true}, q)
	byUser().Update(t.Context(), event.UpdateEvent{ObjectOld: changed, ObjectNew: changed}, q)
	for _, want := range []string{"changed", "progress", "read"} {
		got, _ := q.Get()
		if got.Name != want {
			t.Errorf("the queue has %s first, want %s", got.Name, want)
		}
		q.Done(got)
	}
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}
