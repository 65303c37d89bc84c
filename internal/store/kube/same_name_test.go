package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube/archive"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// requestOperation creates an Operation as a user does, with a chosen name.
func requestOperation(t *testing.T, namespace, name string) *v1alpha1.Operation {
	t.Helper()
	c := rest.CopyConfig(server.Admin)
	c.GroupVersion, c.APIPath = &schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	requireNoError(t, err)
	text, err := json.Marshal(v1alpha1.Operation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Operation"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "apply"},
	})
	requireNoError(t, err)
	text, err = client.Post().Namespace(namespace).Resource("operations").Body(text).Do(t.Context()).Raw()
	requireNoError(t, err)
	o := new(v1alpha1.Operation)
	requireNoError(t, json.Unmarshal(text, o))
	return o
}

// TestStore_DistinguishesOperationsOfSameName requests an operation under the name of an archived one.
func TestStore_DistinguishesOperationsOfSameName(t *testing.T) {
	c, _, _ := newArchived(t)
	h := newHistory(t, c, manyOperations)
	requireNoError(t, h.store.Retain(t.Context(), "prod"))
	id := h.ids[1] // is in the archive only
	older, err := h.store.Operations().Load(t.Context(), id)
	requireNoError(t, err)
	plan, err := h.store.Operations().LoadPlan(t.Context(), id)
	requireNoError(t, err)

	newer := requestOperation(t, h.Namespace, id)
	if p, err := h.store.Operations().LoadPlan(t.Context(), id); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("the newer operation has no plan, but %v, %v were read", p, err)
	}
	if got := eventsOf(t, h.store, id); len(got) > 0 {
		t.Errorf("the newer operation has no events, but %d were read", len(got))
	}
	// A process can still run the older one.
	if err := h.store.Operations().Save(t.Context(), older); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("saving the older operation: %v, want ErrNotFound", err)
	}
	newer.Status.State = v1alpha1.OperationPending
	requireNoError(t, h.store.Operations().Save(t.Context(), newer))
	if o, err := h.store.Operations().Load(t.Context(), id); err != nil || o.UID != newer.UID {
		t.Errorf("loaded %v, %v, want the newer operation", o, err)
	}
	ops, err := h.store.Operations().List(t.Context(), "prod")
	uids := map[any]bool{}
	for _, o := range ops {
		uids[o.UID] = true
	}
	if err != nil || len(ops) != len(h.ids)+1 || !uids[older.UID] || !uids[newer.UID] {
		t.Errorf("%d operations, %v, want both of this name", len(ops), err)
	}
	uid := string(older.UID)
	o, err := h.store.Operations().Find(t.Context(), uid)
	if d := cmp.Diff(older, o); d != "" || err != nil {
		t.Errorf("the older operation by its UID (-want +got):\n%s%v", d, err)
	}
	p, err := h.store.Operations().LoadPlan(t.Context(), uid)
	if d := cmp.Diff(plan, p); d != "" || err != nil {
		t.Errorf("its plan (-want +got):\n%s%v", d, err)
	}
	if d := cmp.Diff(h.events[id], eventsOf(t, h.store, uid)); d != "" {
		t.Errorf("its events (-want +got):\n%s", d)
	}
}

// unreliable is a storage that loses the last byte of some uploads, and fails some reads.
type unreliable struct {
	archive.Files
	storage *copiestest.Storage

	mu     sync.Mutex
	random *rand.Rand // nil for no faults
}

// chance reports whether one of n calls fails.
func (u *unreliable) chance(n int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.random != nil && u.random.IntN(n) == 0
}

func (u *unreliable) Fetch(ctx context.Context, name string, to io.Writer) error {
	if u.chance(4) {
		return errors.Join(u.Files.Fetch(ctx, name, io.Discard), syscall.ECONNRESET)
	}
	return u.Files.Fetch(ctx, name, to)
}

func (u *unreliable) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	u.storage.Truncates.Store(u.chance(4))
	return u.Files.Put(ctx, name, write)
}

// TestRetain_LosesNothingWithTwoWriters runs two calls at the same time on an S3 storage with faults.
func TestRetain_LosesNothingWithTwoWriters(t *testing.T) {
	const seed, rounds = 20261129, 40
	storage := copiestest.ListenS3(t)
	objects, err := copies.OpenObjects(storage.To, copies.S3Login{
		AccessKey: storage.AccessKey, SecretKey: storage.SecretKey, Authorities: storage.Authority,
	})
	requireNoError(t, err)
	t.Cleanup(func() { requireNoError(t, objects.Close()) })
	c := newConfig(t, faultproxy.New(t, server.Admin))
	files := &unreliable{Files: objects, storage: storage, random: rand.New(rand.NewPCG(seed, 2))}
	c.Archive = files
	h := newHistory(t, c, manyOperations)
	failed := 0
	for range rounds {
		var errs [2]error
		var both sync.WaitGroup
		for i := range errs {
			both.Go(func() { errs[i] = openStore(t, h.Config).Retain(t.Context(), "prod") })
		}
		both.Wait()
		if errs == [2]error{} {
			break
		}
		failed++
	}
	if failed == 0 {
		t.Error("there were no faults")
	}
	files.mu.Lock()
	files.random = nil
	files.mu.Unlock()
	requireNoError(t, openStore(t, h.Config).Retain(t.Context(), "prod"))
	h.requireComplete(t)
}
