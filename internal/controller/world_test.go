package controller

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube"
)

// A world is a simulated cluster, and controllers for the objects of one namespace.
type world struct {
	*lifecycletest.Cluster
	t         *testing.T
	api       client.Client // of a user
	namespace string
	// through is the client of the controllers.
	through *rest.Config
	// stop stops the controllers, as an orderly end of their process.
	stop func()
	// blocked cuts the way from the management plane to the API of the cluster.
	blocked atomic.Bool
	// driftInterval is the time between two checks for manual changes.
	driftInterval time.Duration
}

// keySecret is the Secret with the SSH key of the cluster.
const keySecret = "prod-ssh"

// newWorld returns a world with hosts of these names, and running controllers.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := prepareWorld(t, names...)
	w.start()
	return w
}

// prepareWorld returns a world whose controllers do not run yet.
func prepareWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{
		Cluster: lifecycletest.NewCluster(t, names...), t: t, namespace: server.NewNamespace(t), through: rest.CopyConfig(server.Admin),
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	if w.api, err = client.New(server.Admin, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	w.stop = func() {}
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts the controllers as a new process does.
func (w *world) start() {
	w.t.Helper()
	dir := w.t.TempDir()
	store, err := kube.New(kube.Config{
		Client: w.through, Namespace: w.namespace, BackupDir: dir, TempDir: dir, LeaseTime: 3 * time.Second, Patience: 10 * time.Second,
		WithoutArchive: true,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	config := Config{
		Client: w.through, Namespace: w.namespace, FilesBases: []string{dir},
		OpenRecords: func(string) (records.Backend, error) { return store, nil },
		Log:         slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Lifecycle: lifecycle.Config{
			Catalogue: bundletest.LoadCatalogue(w.t), Cache: bundleCache(w.t), Connect: w.Connect, Dial: w.dialAPI, Now: time.Now,
		},
		Health: soon, DriftInterval: w.driftInterval,
	}
	go func() { ended <- Run(ctx, config) }() // ends with ctx
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the controllers have ended: %v", err)
		}
	})
}

// dialAPI reaches the API of the cluster, unless it is blocked.
func (w *world) dialAPI(ctx context.Context, network, address string) (net.Conn, error) {
	if w.blocked.Load() {
		return nil, lifecycletest.ErrDown
	}
	return w.Dial(ctx, network, address)
}

// block cuts the direct way to the API of the cluster, or restores it.
func (w *world) block(blocked bool) { w.blocked.Store(blocked) }

// locked changes the simulated hosts.
func (w *world) locked(change func()) {
	unlock := w.LockHosts()
	defer unlock()
	change()
}

// newKey returns a private key for SSH.
func newKey(t *testing.T) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// createKey creates the Secret with the SSH key.
func (w *world) createKey() {
	w.t.Helper()
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: keySecret}, Data: map[string][]byte{"id_ed25519": newKey(w.t)},
	})
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.api.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// object returns the Cluster object with these hosts.
func (w *world) object(names ...string) *v1alpha1.Cluster {
	c := w.Manifest()
	c.Namespace = w.namespace
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return !slices.Contains(names, h.Name) })
	c.Spec.SSH.PrivateKeyFile = "id_ed25519"
	c.Spec.FilesFrom = []v1alpha1.FilesSource{{SecretRef: &v1alpha1.LocalReference{Name: keySecret}}}
	return c
}

// change changes the Cluster.
func (w *world) change(f func(*v1alpha1.Cluster)) {
	w.t.Helper()
	c := w.cluster()
	was := c.DeepCopy()
	f(c)
	if err := w.api.Patch(w.t.Context(), c, client.MergeFrom(was)); err != nil {
		w.t.Fatal(err)
	}
}

// cluster returns the Cluster as it is.
func (w *world) cluster() *v1alpha1.Cluster {
	w.t.Helper()
	c := new(v1alpha1.Cluster)
	if err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "prod"}, c); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// operations returns the operations, oldest first.
func (w *world) operations() []v1alpha1.Operation {
	w.t.Helper()
	var list v1alpha1.OperationList
	if err := w.api.List(w.t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Operation) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return list.Items
}

// latest returns the latest operation of a kind.
func (w *world) latest(kind operation.Kind) *v1alpha1.Operation {
	w.t.Helper()
	ops := w.operations()
	for i := range slices.Backward(ops) {
		if ops[i].Spec.Kind == string(kind) {
			return &ops[i]
		}
	}
	w.t.Fatalf("there is no operation of kind %s", kind)
	return nil
}

// waitTime limits the time for a change to be seen.
const waitTime = 2 * time.Minute

// eventually waits until look returns "". Otherwise it fails with the last text.
func (w *world) eventually(look func() string) {
	w.t.Helper()
	limit := time.After(waitTime)
	for {
		text := look()
		if text == "" {
			return
		}
		select {
		case <-limit:
			for _, o := range w.operations() {
				w.t.Logf("operation %s %s: %s %s: %s", o.Spec.Kind, o.Name, o.Status.State, o.Status.Reason, o.Status.Message)
			}
			w.t.Fatal(text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// waitForCondition waits until a condition of the current generation has a status, and a reason unless it is "".
func (w *world) waitForCondition(kind string, is metav1.ConditionStatus, reason string) {
	w.t.Helper()
	w.eventually(func() string {
		c := w.cluster()
		have := meta.FindStatusCondition(c.Status.Conditions, kind)
		if have == nil {
			return "the Cluster has no condition " + kind
		}
		if have.Status == is && (reason == "" || have.Reason == reason) && have.ObservedGeneration == c.Generation {
			return ""
		}
		return fmt.Sprintf("condition %s of generation %d is %s (%s, generation %d): %s",
			kind, c.Generation, have.Status, have.Reason, have.ObservedGeneration, have.Message)
	})
}

// waitForState waits until the latest operation of a kind has a state.
func (w *world) waitForState(kind operation.Kind, state v1alpha1.OperationState) *v1alpha1.Operation {
	w.t.Helper()
	var o *v1alpha1.Operation
	w.eventually(func() string {
		ops := w.operations()
		at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool { return o.Spec.Kind == string(kind) })
		if at < 0 {
			return "there is no operation of kind " + string(kind)
		}
		if o = w.latest(kind); o.Status.State == state {
			return ""
		}
		return fmt.Sprintf("operation %s is %s (%s): %s", o.Name, o.Status.State, o.Status.Reason, o.Status.Message)
	})
	return o
}

// waitUntilGone waits until the Cluster does not exist.
func (w *world) waitUntilGone() {
	w.t.Helper()
	w.eventually(func() string {
		c := new(v1alpha1.Cluster)
		err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "prod"}, c)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("the Cluster still exists: %v: %+v", err, c.Status.Conditions)
	})
}

// approve approves the plan of an operation.
func (w *world) approve(o *v1alpha1.Operation, digest string) error {
	was := o.DeepCopy()
	o.Spec.ApprovedPlan = digest
	return w.api.Patch(w.t.Context(), o, client.MergeFrom(was))
}
