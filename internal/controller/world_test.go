package controller

import (
	"context"
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/controller/health"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// A world is a simulated cluster, and controllers for the objects of one namespace.
type world struct {
	*lifecycletest.Cluster
	t         *testing.T
	api       client.Client // of a user
	namespace string
	// through is the client of the controllers.
	through *rest.Config
	// proxy is between the controllers and the API, nil for none.
	proxy *faultproxy.Proxy
	// traffic has the requests of the latest controllers.
	traffic *traffic
	gate    *gate
	// stop stops the controllers, as an orderly end of their process.
	stop func()
	// blocked cuts the way from the management plane to the API of the cluster.
	blocked atomic.Bool
	// dials is the number of direct connections to the API of the cluster.
	dials atomic.Int32
	// driftInterval is the time between two checks for manual changes.
	driftInterval time.Duration
	// process makes the controllers a process of an operator, and sharing one of several that share clusters.
	process *Process
	sharing *Sharing
	// health has the times of health probes.
	health health.Times
	// scheduleJitter spreads scheduled operations.
	scheduleJitter time.Duration
	// port is the port of SSH. All worlds have the same addresses, and each has its own hosts.
	port int
	// connect and dial reach the hosts and APIs of other clusters too; nil for none.
	connect func(context.Context, v1alpha1.Host, remote.Options) (remote.Host, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// ahead is how far the clock of the controllers is ahead, in nanoseconds.
	ahead atomic.Int64
}

// worlds is the number of worlds.
var worlds atomic.Int32

// now returns the time of the controllers.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

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
	grantRights(t)
	w := &world{
		health: health.Times{Period: time.Hour, HostsPeriod: time.Hour}, // other tests count requests
		// Other tests count operations.
		scheduleJitter: time.Hour,
		Cluster:        lifecycletest.NewCluster(t, names...), t: t, namespace: server.NewNamespace(t), through: rest.CopyConfig(server.Admin),
		gate: &gate{calls: map[string]int{}}, port: 2000 + int(worlds.Add(1)),
	}
	for name, h := range w.Hosts {
		h.OnChange = func(what string) { w.gate.pass(name + " " + what) }
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	if w.api, err = client.New(server.Admin, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return w
}

// runInWorlds runs a test with a usual API, and with one that refuses, loses and delays requests.
func runInWorlds(t *testing.T, test func(*world), names ...string) {
	t.Helper()
	t.Parallel()
	t.Run("usual", func(t *testing.T) {
		t.Parallel()
		test(newWorld(t, names...))
	})
	t.Run("faults", func(t *testing.T) {
		t.Parallel()
		w := prepareFaultyWorld(t, names...)
		w.start()
		test(w)
	})
}

// prepareFaultyWorld returns a world whose API refuses, loses and delays requests. Its controllers do not run yet.
func prepareFaultyWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := prepareWorld(t, names...)
	w.proxy = faultproxy.New(t, server.Admin)
	w.through = w.proxy.Config()
	faults := []faultproxy.Fault{
		faultproxy.Conflict, faultproxy.Conflict, faultproxy.Busy, faultproxy.Broken, faultproxy.Executed, faultproxy.Torn, faultproxy.Cut,
		faultproxy.Lost,
	}
	random := rand.New(rand.NewPCG(1, 2))
	w.proxy.Inject(func(*http.Request) faultproxy.Fault {
		if random.IntN(12) != 0 {
			return faultproxy.Pass
		}
		return faults[random.IntN(len(faults))]
	})
	return w
}

// A traffic counts the requests of controllers, without watches and Leases.
type traffic struct {
	next http.RoundTripper
	cut  atomic.Bool // all requests fail

	mu   sync.Mutex
	list []string
}

// RoundTrip implements http.RoundTripper.
func (c *traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errors.New("the process was killed")
	}
	noteRight(r)
	if r.URL.Query().Get("watch") == "" && !strings.Contains(r.URL.Path, "/leases") {
		c.mu.Lock()
		c.list = append(c.list, r.Method+" "+r.URL.Path)
		c.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

func (c *traffic) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// settle waits for the end of what was begun, at most for a limited time, and returns the number of requests.
func (c *traffic) settle() int {
	limit := time.After(time.Minute)
	for before := len(c.requests()); ; {
		select {
		case <-limit:
			return before
		case <-time.After(quietTime + 2*time.Second): // the hosts are probed after an operation, and then the status changes
		}
		now := len(c.requests())
		if now == before {
			return now
		}
		before = now
	}
}

// quietTime is the time in which a controller with nothing to do makes no requests.
const quietTime = 6 * time.Second

// maxRequests is the number of requests in a minute that the controllers may make without a change.
const maxRequests = 30

// requireQuiet checks that the controllers have nothing to do: no new operation, and not more than one request in two
// seconds. If there are more, such as for one late probe, the number in a minute counts.
func (w *world) requireQuiet(d time.Duration) {
	w.t.Helper()
	if w.proxy != nil {
		w.proxy.Inject(nil)
	}
	before := w.traffic.settle()
	was := len(w.operations())
	<-time.After(d)
	if now := w.traffic.requests()[before:]; len(now) > int(d/(2*time.Second)) {
		<-time.After(time.Minute - d)
		if now = w.traffic.requests()[before:]; len(now) > maxRequests {
			w.t.Errorf("%d requests in a minute without a change:\n%s", len(now), strings.Join(now, "\n"))
		}
	}
	if is := len(w.operations()); is != was {
		w.t.Errorf("%d operations, then %d", was, is)
	}
}

// A gate sees the changes of hosts, and can hold one.
type gate struct {
	mu            sync.Mutex
	calls         map[string]int
	at            string
	reached, open chan struct{}
}

func (g *gate) pass(what string) {
	g.mu.Lock()
	g.calls[what]++
	if g.at == "" || !strings.HasPrefix(what, g.at) {
		g.mu.Unlock()
		return
	}
	g.at = ""
	open := g.open
	close(g.reached)
	g.mu.Unlock()
	<-open
}

// count returns the number of changes with a prefix.
func (g *gate) count(prefix string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for what, calls := range g.calls {
		if strings.HasPrefix(what, prefix) {
			n += calls
		}
	}
	return n
}

// hold holds the next change of a host that begins with a text: "w1 join.". wait waits until it is held, and release
// lets it continue.
func (w *world) hold(at string) (wait, release func()) {
	g := w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	reached, open := make(chan struct{}), make(chan struct{})
	g.at, g.reached, g.open = at, reached, open
	release = sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.open == open {
			g.at = ""
		}
		close(open)
	})
	w.t.Cleanup(release)
	wait = func() {
		w.t.Helper()
		w.eventually(func() string {
			select {
			case <-reached:
				return ""
			default:
				return "no host has reached " + at
			}
		})
	}
	return wait, release
}

// leaseTime is the time after which another process takes the lock of a killed one. A busy machine must not lose it.
const leaseTime = 9 * time.Second

// start starts the controllers as a new process does.
func (w *world) start() {
	w.t.Helper()
	dir := w.t.TempDir()
	through, counted := asOperator(w.through), new(traffic)
	through.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counted.mu.Lock()
		defer counted.mu.Unlock()
		if counted.next != nil {
			return counted // a further client of the same controllers has the same transport
		}
		counted.next = next
		return counted
	})
	w.traffic = counted
	settings := kube.Config{
		Client: through, Namespace: w.namespace, BackupDir: dir, TempDir: dir, LeaseTime: leaseTime, Patience: 10 * time.Second,
		WithoutArchive: true, PartsPerSecond: 1000, // fake hosts have many steps a second
	}
	store, err := kube.New(settings)
	if err != nil {
		w.t.Fatal(err)
	}
	connect, dial := w.Connect, w.dialAPI
	if w.connect != nil {
		connect, dial = w.connect, w.dial
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	config := Config{
		Client: through, Namespace: w.namespace, FilesBases: []string{dir}, StopTime: 20 * time.Second,
		OpenRecords: func(string) (records.Backend, error) { return store, nil },
		OpenCached: func(read ReadSecret) func(string) (records.Backend, error) {
			cached := settings
			cached.ReadSecret = read
			store, err := kube.New(cached)
			return func(string) (records.Backend, error) { return store, err }
		},
		Log: slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Lifecycle: lifecycle.Config{
			Catalogue: bundletest.LoadCatalogue(w.t), Cache: bundleCache(w.t), Connect: connect, Dial: dial, Now: w.now,
		},
		Process: w.process, Sharing: w.sharing, Health: w.health, DriftInterval: w.driftInterval, ScheduleJitter: w.scheduleJitter,
	}
	go func() { ended <- Run(ctx, config) }() // ends with ctx
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !counted.cut.Load() {
			w.t.Errorf("the controllers have ended: %v", err)
		}
	})
	w.t.Cleanup(w.stop)
}

// dialAPI reaches the API of the cluster, unless it is blocked.
func (w *world) dialAPI(ctx context.Context, network, address string) (net.Conn, error) {
	w.dials.Add(1)
	if w.blocked.Load() {
		return nil, lifecycletest.ErrDown
	}
	return w.Dial(ctx, network, address)
}

// block cuts the direct connection to the API of the cluster, or restores it.
func (w *world) block(blocked bool) { w.blocked.Store(blocked) }

// locked changes the simulated hosts.
func (w *world) locked(change func()) {
	unlock := w.LockHosts()
	defer unlock()
	change()
}

// kill cuts the controllers off, as the end of their process does. Their Leases expire.
func (w *world) kill() { w.traffic.cut.Store(true) }

// openSaved returns the records of the world, as an administrator reads and writes them.
func (w *world) openSaved() *kube.Store {
	w.t.Helper()
	dir := w.t.TempDir()
	store, err := kube.New(kube.Config{Client: server.Admin, Namespace: w.namespace, BackupDir: dir, TempDir: dir})
	if err != nil {
		w.t.Fatal(err)
	}
	return store
}

// newKey returns a private key for SSH.
func newKey(t *testing.T) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(cryptorand.Reader)
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
	c.Spec.SSH.PrivateKeyFile, c.Spec.SSH.Port = "id_ed25519", w.port
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
	slices.SortFunc(list.Items, func(a, b v1alpha1.Operation) int { return operations.Compare(&a, &b) })
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
	w.t.Fatalf("the cluster has no operation of kind %s", kind)
	return nil
}

// waitTime limits the time for a change to be seen.
const waitTime = 4 * time.Minute

// eventually waits until look returns "". Otherwise it fails with the last text.
func (w *world) eventually(look func() string) {
	w.t.Helper()
	w.eventuallyIn(waitTime, look)
}

func (w *world) eventuallyIn(limitTime time.Duration, look func() string) {
	w.t.Helper()
	limit := time.After(limitTime)
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
			return "the cluster has no operation of kind " + string(kind)
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

// update changes the spec of an operation as a user does.
func (w *world) update(o *v1alpha1.Operation, change func(*v1alpha1.OperationSpec)) {
	w.t.Helper()
	was := o.DeepCopy()
	change(&o.Spec)
	if err := w.api.Patch(w.t.Context(), o, client.MergeFrom(was)); err != nil {
		w.t.Fatal(err)
	}
}

// request creates an operation as a user does.
func (w *world) request(name string, kind operation.Kind, change func(*v1alpha1.OperationSpec)) {
	w.t.Helper()
	o := &v1alpha1.Operation{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: string(kind)},
	}
	if change != nil {
		change(&o.Spec)
	}
	w.create(o)
}

// operation returns an operation.
func (w *world) operation(name string) *v1alpha1.Operation {
	w.t.Helper()
	o := new(v1alpha1.Operation)
	if err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// waitForOperation waits until an operation has a state, and a reason unless it is "".
func (w *world) waitForOperation(name string, state v1alpha1.OperationState, reason string) *v1alpha1.Operation {
	w.t.Helper()
	var o *v1alpha1.Operation
	w.eventually(func() string {
		if o = w.operation(name); o.Status.State == state && (reason == "" || o.Status.Reason == reason) {
			return ""
		}
		return fmt.Sprintf("operation %s is %s (%s): %s, want %s", name, o.Status.State, o.Status.Reason, o.Status.Message, state)
	})
	return o
}

// waitForOperations waits until the number of operations is n, and returns them.
func (w *world) waitForOperations(n int) (ops []v1alpha1.Operation) {
	w.t.Helper()
	w.eventually(func() string {
		if ops = w.operations(); len(ops) >= n {
			return ""
		}
		return fmt.Sprintf("%d operations, want %d", len(ops), n)
	})
	return ops
}

// createReady creates the Cluster with these hosts, and waits until it is applied.
func (w *world) createReady(names ...string) {
	w.t.Helper()
	w.createKey()
	w.create(w.object(names...))
	w.waitForApplied()
}

func (w *world) waitForApplied() {
	w.t.Helper()
	w.waitForCondition("Reconciled", metav1.ConditionTrue, "IntentApplied")
}

// setHosts changes the hosts of the Cluster.
func (w *world) setHosts(names ...string) {
	w.t.Helper()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Hosts = w.object(names...).Spec.Hosts })
}

// requireStates checks the states of operations, oldest first: "create Succeeded".
func (w *world) requireStates(want ...string) {
	w.t.Helper()
	var got []string
	for _, o := range w.operations() {
		got = append(got, o.Spec.Kind+" "+string(o.Status.State))
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("operations (-want +got):\n%s", d)
	}
}

// waitForMessage waits until the message of a condition of the Cluster contains a part. Another pass can change the
// condition at any time.
func (w *world) waitForMessage(kind, part string) {
	w.t.Helper()
	w.eventually(func() string {
		is := meta.FindStatusCondition(w.cluster().Status.Conditions, kind)
		if is != nil && strings.Contains(is.Message, part) {
			return ""
		}
		return fmt.Sprintf("the condition %s is %+v, want a message with %q", kind, is, part)
	})
}
