package main

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// leaseHolder returns the identity of the instance that holds the lease.
func leaseHolder(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	l, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *l.Spec.HolderIdentity
}

// TestRun_LetsOnlyOneInstanceLead: one of two instances works. When it ends, it releases
// the lease, and the other instance takes over.
func TestRun_LetsOnlyOneInstanceLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1"))
		stopA := startInstance(t, client, "a")
		time.Sleep(5 * time.Second)
		stopB := startInstance(t, client, "b")
		time.Sleep(2 * leaseDuration)
		if got := leaseHolder(t, client); got != "a" {
			t.Errorf("%q leads, want the first", got)
		}
		if err := stopA(); err != nil {
			t.Errorf("stopping a: %v", err)
		}
		if _, err := slicesOf(client, "default").Update(t.Context(), sourceSlice("kubernetes", ipv4, 6443, "10.0.0.2"),
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * retryPeriod) // with its jitter; a released lease needs no waiting for its end
		if got := targetContents(t, client)["api-ipv4"]; leaseHolder(t, client) != "b" || got[0] != "10.0.0.2" {
			t.Errorf("after the first instance ended, %q leads and the endpoints are %v", leaseHolder(t, client), got)
		}
		if err := stopB(); err != nil {
			t.Errorf("stopping b: %v", err)
		}
	})
}

// TestRun_ReplacesDeadLeaderAfterLeaseExpires: an instance waits until a leader that
// vanished can no longer write, and not longer.
func TestRun_ReplacesDeadLeaderAfterLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, seconds, now := "dead", int32(leaseDuration/time.Second), metav1.NowMicro()
		client := fake.NewClientset(sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1"), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: leaseName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &dead, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
		})
		stop := startInstance(t, client, "b")
		time.Sleep(leaseDuration - time.Second)
		if got := targetContents(t, client); len(got) > 0 || leaseHolder(t, client) != dead {
			t.Errorf("before the lease expired, %q leads and wrote %v", leaseHolder(t, client), got)
		}
		time.Sleep(1*time.Second + 3*retryPeriod)
		if got := targetContents(t, client); len(got) != 1 || leaseHolder(t, client) != "b" {
			t.Errorf("after the lease expired, %q leads and wrote %v", leaseHolder(t, client), got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestRun_StopsBeforeLostLeaseExpires: a leader that cannot renew its lease stops before
// another instance can lead.
func TestRun_StopsBeforeLostLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(sourceSlice("kubernetes", ipv4, 6443, "10.0.0.1"))
		var cut atomic.Bool
		for _, verb := range []string{"get", "update"} {
			client.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return cut.Load(), nil, errors.New("no route to host")
			})
		}
		done := make(chan error, 1)
		go func() {
			done <- run(t.Context(), client,
				settings{namespace: "kube-system", service: "api", identity: "a", ask: alwaysAnswers}, slog.New(slog.DiscardHandler))
		}()
		time.Sleep(2 * leaseDuration)
		cut.Store(true)
		began := time.Now()
		err := <-done
		if took := time.Since(began); err == nil || took >= leaseDuration {
			t.Errorf("it ended after %s with %v, want an error within %s", took, err, leaseDuration)
		}
	})
}

func TestRunInCluster_RequiresSettings(t *testing.T) {
	full := map[string]string{"NAMESPACE": "kube-system", "SERVICE": "api", "POD_NAME": "a"}
	for missing := range full {
		getenv := func(name string) string {
			if name == missing {
				return ""
			}
			return full[name]
		}
		if err := runInCluster(t.Context(), getenv, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}
