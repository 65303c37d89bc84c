//go:build long

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/server/controlplane/etcdtest"
	"slipway.dev/slipway/internal/store/kube"
)

const (
	replicaCount    = 3
	replicaClusters = 300
	// replicaTime is how long servers are killed, one each killInterval. A killed server starts again after restartTime.
	replicaTime, killInterval, restartTime = 10 * time.Minute, time.Minute, 15 * time.Second
	// changeInterval is the time between two changes of clusters.
	changeInterval = 500 * time.Millisecond
	// replicasNamespace has all clusters.
	replicasNamespace = "replicas"
)

// Replicas are management servers on one etcd, with simulated clusters.
type replicas struct {
	t        *testing.T
	clusters []*lifecycletest.Cluster

	mu      sync.Mutex
	servers []*replica
	// wanted is the setting that each cluster shall have.
	wanted []int64
	// ends has the end of each operation that was seen, by its UID, and wrong the changes after an end.
	ends  map[types.UID]metav1.Time
	wrong []string
}

// TestLongReplicas runs three management servers on an etcd of three members, with 300 simulated clusters. For ten minutes,
// one server is killed each minute, while clusters are created and changed. Each operation ends exactly once.
func TestLongReplicas(t *testing.T) {
	r := &replicas{t: t, wanted: make([]int64, replicaClusters), ends: map[types.UID]metav1.Time{}}
	for i := range replicaClusters {
		c := lifecycletest.NewClusterIn(t, subnetOf(i), "cp1")
		c.APIAddresses = []string{c.Hosts["cp1"].Address}
		r.clusters = append(r.clusters, c)
	}
	o := replicaOptions{
		Cache: bundleCache(t), Hosts: serveHosts(t, r.clusters), Namespace: replicasNamespace, Etcd: etcdtest.StartMembers(t, 3),
	}
	first := filepath.Join(t.TempDir(), "server")
	for i := range replicaCount {
		o.Data = first
		if i > 0 {
			o.Data = filepath.Join(t.TempDir(), "server")
			copyServer(t, first, o.Data)
		}
		r.servers = append(r.servers, startReplica(t, o))
	}
	r.createAll()

	ctx, cancel := context.WithTimeout(t.Context(), replicaTime)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { r.changeClusters(ctx) })
	watching, stopWatch := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { r.watchEnds(watching) })
	kills := r.killServers(ctx)
	work.Wait()
	start := time.Now()
	r.waitForAll(15 * time.Minute)
	t.Logf("figure: %d servers killed, all clusters as wanted %.0f s after the last change", kills, time.Since(start).Seconds())
	stopWatch()
	watch.Wait()
	r.requireSettings()
	r.requireOneEnd()
}

// copyServer copies what the servers of one etcd share. The directory of an own etcd is empty.
func copyServer(t *testing.T, from, to string) {
	t.Helper()
	err := os.MkdirAll(filepath.Join(to, "etcd"), 0o700)
	for _, dir := range []string{"pki", "keys"} {
		err = errors.Join(err, os.CopyFS(filepath.Join(to, dir), os.DirFS(filepath.Join(from, dir))))
	}
	text, wrong := os.ReadFile(filepath.Join(from, "server.json"))
	if err = errors.Join(err, wrong, os.WriteFile(filepath.Join(to, "server.json"), text, 0o600)); err == nil {
		err = filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir():
				return os.Chmod(path, 0o700)
			}
			return os.Chmod(path, 0o600)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// do calls f with a client of any server that runs, until it succeeds.
func (r *replicas) do(f func(context.Context, client.Client) error) {
	r.t.Helper()
	limit := time.Now().Add(5 * time.Minute)
	for {
		r.mu.Lock()
		server := r.servers[rand.IntN(len(r.servers))]
		r.mu.Unlock()
		err := errors.New("the server is down")
		if server != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), time.Minute)
			err = f(ctx, r.newClient(server))
			cancel()
		}
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			r.t.Errorf("no server responds: %v", err)
			return
		}
		<-time.After(time.Second)
	}
}

func (r *replicas) newClient(s *replica) client.WithWatch {
	r.t.Helper()
	scheme, err := newScheme()
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := client.NewWithWatch(s.admin(r.t), client.Options{Scheme: scheme})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func nameOf(i int) string { return fmt.Sprintf("cluster-%03d", i) }

// createAll creates the clusters, and does not wait for them.
func (r *replicas) createAll() {
	r.t.Helper()
	r.do(func(ctx context.Context, c client.Client) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: replicasNamespace}}
		return client.IgnoreAlreadyExists(c.Create(ctx, namespace))
	})
	r.do(func(ctx context.Context, c client.Client) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: replicasNamespace, Name: keySecret}, Data: map[string][]byte{"id_ed25519": newKey(r.t)},
		}))
	})
	for i, simulated := range r.clusters {
		object := simulated.Manifest()
		object.Namespace, object.Name = replicasNamespace, nameOf(i)
		object.Spec.SSH.PrivateKeyFile = "id_ed25519"
		object.Spec.FilesFrom = []v1alpha1.FilesSource{{SecretRef: &v1alpha1.LocalReference{Name: keySecret}}}
		r.wanted[i] = 50
		object.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": r.wanted[i]}
		r.do(func(ctx context.Context, c client.Client) error {
			object.ResourceVersion = ""
			return client.IgnoreAlreadyExists(c.Create(ctx, object))
		})
	}
}

// changeClusters changes settings of random clusters until ctx ends.
func (r *replicas) changeClusters(ctx context.Context) {
	random := rand.New(rand.NewPCG(7, 11))
	changed := 0
	for ; ctx.Err() == nil; changed++ {
		i := random.IntN(len(r.clusters))
		r.wanted[i]++
		patch := fmt.Sprintf(`{"spec":{"kubernetes":{"kubelet":{"config":{"maxPods":%d}}}}}`, r.wanted[i])
		r.do(func(ctx context.Context, c client.Client) error {
			object := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: replicasNamespace, Name: nameOf(i)}}
			return c.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch)))
		})
		select {
		case <-ctx.Done():
		case <-time.After(changeInterval):
		}
	}
	r.t.Logf("figure: %d changes of %d clusters", changed, len(r.clusters))
}

// killServers kills one server after the other until ctx ends, and starts each again. It returns the number of kills.
func (r *replicas) killServers(ctx context.Context) (kills int) {
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(killInterval - restartTime):
		}
		at := kills % len(r.servers)
		r.mu.Lock()
		victim := r.servers[at]
		r.servers[at] = nil
		r.mu.Unlock()
		victim.kill()
		kills++
		<-time.After(restartTime)
		again := startReplica(r.t, victim.options)
		r.mu.Lock()
		r.servers[at] = again
		r.mu.Unlock()
	}
}

// waitForAll waits until all clusters match their objects.
func (r *replicas) waitForAll(within time.Duration) {
	r.t.Helper()
	limit := time.Now().Add(within)
	for {
		var list v1alpha1.ClusterList
		r.do(func(ctx context.Context, c client.Client) error {
			return c.List(ctx, &list, client.InNamespace(replicasNamespace))
		})
		missing := ""
		n := 0
		for _, c := range list.Items {
			have := meta.FindStatusCondition(c.Status.Conditions, "Reconciled")
			if have == nil || have.Status != metav1.ConditionTrue || have.ObservedGeneration != c.Generation {
				missing = fmt.Sprintf("%s: %+v", c.Name, have)
				n++
			}
		}
		if n == 0 && len(list.Items) == len(r.clusters) {
			return
		}
		if time.Now().After(limit) {
			r.t.Fatalf("%d of %d clusters do not match their objects, for example %s", n, len(list.Items), missing)
		}
		<-time.After(2 * time.Second)
	}
}

// requireSettings checks that each cluster has the last setting.
func (r *replicas) requireSettings() {
	r.t.Helper()
	for i, c := range r.clusters {
		unlock := c.LockHosts()
		text := c.Hosts["cp1"].Files[kubeletSettings]
		unlock()
		if want := fmt.Sprintf("maxPods: %d\n", r.wanted[i]); !strings.Contains(text, want) {
			r.t.Errorf("cluster %s does not have %s", nameOf(i), want)
		}
	}
}

// watchEnds notes the ends of operations until ctx ends. Each killed server cuts a watch, and the next one begins with a list.
func (r *replicas) watchEnds(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		r.mu.Lock()
		server := r.servers[i%len(r.servers)]
		r.mu.Unlock()
		if server != nil {
			r.watchServer(ctx, r.newClient(server))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// watchServer notes the ends of operations until a server ends.
func (r *replicas) watchServer(ctx context.Context, c client.WithWatch) {
	var list v1alpha1.OperationList
	if err := c.List(ctx, &list, client.InNamespace(replicasNamespace)); err != nil {
		return // the server was killed
	}
	for i := range list.Items {
		r.noteEnd(&list.Items[i])
	}
	w, err := c.Watch(ctx, &list, client.InNamespace(replicasNamespace), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion},
	})
	if err != nil {
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if o, ok := e.Object.(*v1alpha1.Operation); ok {
			r.noteEnd(o)
		}
	}
}

// noteEnd notes the end of an operation, and what is wrong after it.
func (r *replicas) noteEnd(o *v1alpha1.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, seen := r.ends[o.UID]
	switch ended := operation.HasEnded(o) && o.Status.EndTime != nil; {
	case seen && !ended:
		r.wrong = append(r.wrong, fmt.Sprintf("operation %s is %s after its end", o.Name, o.Status.State))
	case seen && !was.Equal(o.Status.EndTime):
		r.wrong = append(r.wrong, fmt.Sprintf("operation %s has ended at %s and at %s", o.Name, was, o.Status.EndTime))
	case ended:
		r.ends[o.UID] = *o.Status.EndTime
	}
}

// requireOneEnd checks that each operation has ended exactly once, and that no two processes ran it at the same time. A
// process can be killed between its last event and the end in the status: then the next one runs the operation again.
func (r *replicas) requireOneEnd() {
	r.t.Helper()
	var list v1alpha1.OperationList
	r.do(func(ctx context.Context, c client.Client) error {
		return c.List(ctx, &list, client.InNamespace(replicasNamespace))
	})
	r.mu.Lock()
	server := r.servers[0]
	r.mu.Unlock()
	dir := r.t.TempDir()
	store, err := kube.New(kube.Config{Client: server.admin(r.t), Namespace: replicasNamespace, BackupDir: dir, TempDir: dir})
	if err != nil {
		r.t.Fatal(err)
	}
	attempts, operations, again := 0, 0, 0
	for i := range list.Items {
		o := &list.Items[i]
		r.noteEnd(o)
		if o.Status.State == v1alpha1.OperationSuperseded {
			continue
		}
		operations++
		begun, ended, err := countAttempts(r.t.Context(), store, o.Name)
		attempts += begun
		again += max(0, ended-1)
		if err != nil || o.Status.State != v1alpha1.OperationSucceeded || begun > 0 && ended == 0 || begun > int(o.Status.Attempt) {
			r.t.Errorf("operation %s is %s (%s), was begun %d times and ended %d times: %v",
				o.Name, o.Status.State, o.Status.Message, begun, ended, err)
		}
	}
	for _, text := range r.wrong {
		r.t.Error(text)
	}
	if operations < len(r.clusters) || len(r.ends) < operations {
		r.t.Errorf("there are %d operations of %d clusters, and %d ends were seen", operations, len(r.clusters), len(r.ends))
	}
	r.t.Logf("figure: %d operations ended once each, in %d attempts, %d of them after the last event of another", operations, attempts, again)
}

// countAttempts returns how often an operation was begun, and how often its last event was written. Between the last event
// of an attempt and the first one of the next, there is no other.
func countAttempts(ctx context.Context, store *kube.Store, name string) (begun, ended int, err error) {
	idle := true
	err = store.Journals().ReadEvents(ctx, name, func(e event.Event) error {
		switch {
		case e.Type == event.OperationStarted:
			begun++
			idle = false
		case idle:
			return fmt.Errorf("event %d (%s) is of an attempt that has ended", e.Seq, e.Type)
		case e.Type == event.OperationFinished:
			ended++
			idle = true
		}
		return nil
	})
	return begun, ended, err
}
