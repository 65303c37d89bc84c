package controller

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// named returns the Cluster object with another name.
func (w *world) named(name string, hosts ...string) *v1alpha1.Cluster {
	c := w.object(hosts...)
	c.Name = name
	return c
}

// createSecond creates a Cluster that admission would refuse, as if the other one had been stored at the same time.
func (w *world) createSecond(c, first *v1alpha1.Cluster) {
	w.t.Helper()
	w.eventually(func() string {
		claims.Remove(first.UID) // each change of the first one adds it again
		if err := w.api.Create(w.t.Context(), c); err != nil {
			return err.Error()
		}
		return ""
	})
	claims.Set(hostclaims.New(first))
}

// waitForStalledCluster waits until a Cluster is stalled for a reason, "" for not stalled, and returns the message.
func (w *world) waitForStalledCluster(name, reason string) (message string) {
	w.t.Helper()
	w.eventually(func() string {
		c := new(v1alpha1.Cluster)
		if err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, c); err != nil {
			return err.Error()
		}
		is := meta.FindStatusCondition(c.Status.Conditions, "Stalled")
		if is == nil || is.Status == metav1.ConditionTrue != (reason != "") || reason != "" && is.Reason != reason {
			return fmt.Sprintf("condition Stalled of Cluster %s is %+v, want %q", name, is, reason)
		}
		message = is.Message
		return ""
	})
	return message
}

// requestedFor returns the kinds of the operations of a Cluster.
func (w *world) requestedFor(name string) (out []string) {
	for _, o := range w.operations() {
		if o.Spec.ClusterRef.Name == name {
			out = append(out, o.Spec.Kind)
		}
	}
	return out
}

// TestHost_IsInOneCluster has a second Cluster with a host of the first one.
func TestHost_IsInOneCluster(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createReady("cp1", "w1")
		before := w.Hosts["w1"].AllState()
		err := w.api.Create(t.Context(), w.named("other", "cp1", "w1"))
		if text := "is in Cluster " + w.namespace + "/prod already"; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text) {
			w.t.Errorf("the second Cluster: got %v, want %q", err, text)
		}
		w.createSecond(w.named("other", "cp1", "w1"), w.cluster())
		if text := w.waitForStalledCluster("other", "HostInUse"); !strings.Contains(text, w.namespace+"/prod") {
			w.t.Errorf("message %q, want the name of the other Cluster", text)
		}
		w.request("renew", operation.RenewCerts, func(s *v1alpha1.OperationSpec) { s.ClusterRef.Name = "other" })
		w.waitForOperation("renew", v1alpha1.OperationFailed, "host-in-other-cluster")
		if got := w.requestedFor("other"); len(got) != 1 {
			w.t.Errorf("operations of the second Cluster: %v, want only the one of the user", got)
		}
		if after := w.Hosts["w1"].AllState(); len(after) != len(before) {
			w.t.Errorf("the host had %d items, now %d", len(before), len(after))
		}
		w.requireQuiet(quietTime)
		// The first Cluster can change, and the second one gets the host when the first one is gone.
		w.change(func(c *v1alpha1.Cluster) { c.Spec.Paused = true })
		second := w.named("other")
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(second), second); err != nil {
			w.t.Fatal(err)
		}
		was := second.DeepCopy()
		second.Spec.Paused = true
		if err := w.api.Patch(t.Context(), second, client.MergeFrom(was)); err != nil {
			w.t.Fatal(err)
		}
		w.delete()
		w.waitUntilGone()
		w.waitForStalledCluster("other", "")
		w.requireQuiet(quietTime)
	}, "cp1", "w1")
}

// TestHost_OfTwoClustersAtOnce creates two Clusters with one host at the same time. One is refused, or exactly one of
// them has operations.
func TestHost_OfTwoClustersAtOnce(t *testing.T) {
	runInWorlds(t, func(w *world) {
		w.createKey()
		_, release := w.hold("cp1 ")
		defer release()
		var errs [2]error
		var tasks sync.WaitGroup
		start := make(chan struct{})
		clusters := [2]*v1alpha1.Cluster{w.named("prod", "cp1"), w.named("other", "cp1")}
		for i, c := range clusters {
			tasks.Go(func() {
				<-start
				errs[i] = w.api.Create(t.Context(), c)
			})
		}
		close(start)
		tasks.Wait()
		first, second := clusters[0], clusters[1]
		switch {
		case errs[0] != nil && errs[1] != nil:
			w.t.Fatalf("both were refused: %v, %v", errs[0], errs[1])
		case apierrors.IsInvalid(errs[0]):
			first = second
			fallthrough
		case apierrors.IsInvalid(errs[1]):
			w.eventually(func() string {
				if len(w.requestedFor(first.Name)) == 0 {
					return "the Cluster that was accepted has no operation"
				}
				return ""
			})
			return
		case errs[0] != nil || errs[1] != nil:
			w.t.Fatal(errs)
		}
		if hostclaims.Compare(hostclaims.New(second), hostclaims.New(first)) < 0 {
			first, second = second, first
		}
		text := w.waitForStalledCluster(second.Name, "HostInUse")
		if !strings.Contains(text, first.Namespace+"/"+first.Name) || len(w.requestedFor(second.Name)) > 0 {
			w.t.Errorf("operations %v of the second Cluster, whose message is %q", w.requestedFor(second.Name), text)
		}
		w.waitForStalledCluster(first.Name, "")
	}, "cp1")
}

// TestHost_StoredTwiceAtOnce has two new Clusters that both were accepted. The older one gets the host; if both have
// the same age, the one with the lower UID.
func TestHost_StoredTwiceAtOnce(t *testing.T) {
	runInWorlds(t, func(w *world) {
		a, b := w.named("prod", "cp1"), w.named("other", "cp1")
		w.create(a)
		w.createSecond(b, a)
		first, second := a, b
		if hostclaims.Compare(hostclaims.New(b), hostclaims.New(a)) < 0 {
			first, second = b, a
		}
		if text := w.waitForStalledCluster(second.Name, "InvalidCluster"); !strings.Contains(text, keySecret) {
			w.t.Errorf("message %q, want the name of the Secret", text)
		}
		w.createKey()
		if text := w.waitForStalledCluster(second.Name, "HostInUse"); !strings.Contains(text, first.Name) {
			w.t.Errorf("message %q, want the name of the other Cluster", text)
		}
		w.waitForStalledCluster(first.Name, "")
		w.eventually(func() string {
			if len(w.requestedFor(first.Name)) == 0 {
				return "the first Cluster has no operation"
			}
			return ""
		})
		if got := w.requestedFor(second.Name); len(got) > 0 {
			w.t.Errorf("operations %v of the second Cluster", got)
		}
	}, "cp1")
}
