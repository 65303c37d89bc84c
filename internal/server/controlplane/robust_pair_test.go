//go:build long

package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/internal/server/controlplane"
)

// TestRobustPair_OneServerIsKilled runs two servers on one external etcd and kills the one with
// the controllers. Requests and a watch at the other server continue, and it gets the controllers.
func TestRobustPair_OneServerIsKilled(t *testing.T) {
	at, _ := externalEtcd(t, transport.TLSInfo{})
	options := serverOptions{Etcd: controlplane.ExternalEtcd{Servers: []string{at}, Prefix: "/slipway"}}
	first := startChild(t, filepath.Join(t.TempDir(), "data"), "", options)
	copied := filepath.Join(t.TempDir(), "data")
	copyServer(t, first.data, copied)
	if err := os.Mkdir(filepath.Join(copied, "etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	second := startChild(t, copied, "", options)
	client := second.client(t)
	leases := client.CoordinationV1().Leases(controlplane.SystemNamespace)
	var leader string
	eventually(t, "the Lease of the controllers", func() error {
		lease, err := leases.Get(t.Context(), "slipway-controllers", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return fmt.Errorf("it has no holder")
		}
		leader = *lease.Spec.HolderIdentity
		return nil
	})
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "test=space"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	var written, seen atomic.Int64
	running.Go(func() {
		for range w.ResultChan() {
			seen.Add(1)
		}
	})
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			object := newValue(fmt.Sprintf("pair-%d", i))
			object.Data = nil
			if _, err := client.CoreV1().ConfigMaps("default").Create(context.WithoutCancel(ctx), object, metav1.CreateOptions{}); err != nil {
				t.Errorf("write %d: %v", i, err)
			}
			written.Add(1)
			pause(ctx, 50*time.Millisecond)
		}
	})
	pause(ctx, 2*time.Second)
	begun := time.Now()
	first.kill()
	eventually(t, "the controllers at the other server", func() error {
		lease, err := leases.Get(t.Context(), "slipway-controllers", metav1.GetOptions{})
		if err != nil {
			t.Errorf("reading the Lease: %v", err)
			return nil
		}
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder == "" || *holder == leader {
			return fmt.Errorf("the first server still holds the Lease")
		}
		return nil
	})
	t.Logf("the controllers were at the other server after %s", time.Since(begun))
	namespace, err := client.CoreV1().Namespaces().Create(ctx, namespaceOf("pair"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is deleted", func() error {
		if _, err := client.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("it still exists")
		}
		return nil
	})
	cancel()
	pause(t.Context(), time.Second)
	eventually(t, "the watch", func() error {
		if seen.Load() < written.Load() {
			return fmt.Errorf("it has seen %d of %d objects", seen.Load(), written.Load())
		}
		return nil
	})
	t.Logf("%d writes, none failed; the watch has seen %d", written.Load(), seen.Load())
	w.Stop()
	running.Wait()
	second.stop(t)
}
