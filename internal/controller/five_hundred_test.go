//go:build long

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/controller/health"
	"slipway.dev/slipway/internal/controller/intent"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/remote"
)

const (
	liveClusters = 20
	deadClusters = 500
	// deadSubnet has the hosts of the dead clusters, which differ in the port of SSH.
	deadSubnet         = "198.51.100"
	livePort, deadPort = 3000, 10000
	// fleetTime limits the time until all clusters have a condition.
	fleetTime = 12 * time.Minute
)

// A fleet has clusters on simulated hosts, and clusters whose hosts and APIs never answer.
type fleet struct {
	*world
	live []*lifecycletest.Cluster
}

// TestLongFiveHundred changes 20 clusters, alone and in addition to 500 clusters whose hosts and APIs never answer.
func TestLongFiveHundred(t *testing.T) {
	f := &fleet{world: prepareWorld(t)}
	f.health = health.Times{} // as in a program
	for i := range liveClusters {
		c := lifecycletest.NewClusterIn(t, fmt.Sprintf("10.%d.0", i), "cp1", "w1")
		c.APIAddresses = []string{c.Hosts["cp1"].Address}
		f.live = append(f.live, c)
	}
	f.connect, f.dial = f.connectHost, f.dialAny
	f.start()
	f.createKey()
	start := time.Now()
	for i := range f.live {
		f.create(f.liveObject(i))
	}
	f.waitForLive()
	t.Logf("figure: %d clusters created in %.0f s", liveClusters, time.Since(start).Seconds())

	alone := min(f.changeLive(60), f.changeLive(61))
	memory, _ := measureProcess()
	f.createDead()
	f.waitForDead()
	beside := min(f.changeLive(62), f.changeLive(63))
	t.Logf("figure: a setting of %d clusters in %.1f s alone, in %.1f s with %d clusters that never answer: %.2f times",
		liveClusters, alone.Seconds(), beside.Seconds(), deadClusters, beside.Seconds()/alone.Seconds())

	const watched = time.Minute
	requests := len(f.traffic.requests())
	_, cpu := measureProcess()
	<-time.After(watched)
	now, cpuNow := measureProcess()
	t.Logf("figure: without a change, %.1f requests a second, %.0f %% of a processor with the API server and the simulated clusters, "+
		"%d MiB more memory than without the dead clusters", float64(len(f.traffic.requests())-requests)/watched.Seconds(),
		100*(cpuNow-cpu).Seconds()/watched.Seconds(), (int64(now)-int64(memory))>>20)
	t.Logf("figure: most of these requests: %s", describeRequests(f.traffic.requests()[requests:]))
	t.Logf("figure: mean age in the queues: %s", queueAges(t))
	for i := range f.live {
		f.requireReady(fmt.Sprintf("live-%d", i))
	}
}

// liveObject returns the object of a cluster on simulated hosts.
func (f *fleet) liveObject(i int) *v1alpha1.Cluster {
	c := f.live[i].Manifest()
	c.Namespace, c.Name = f.namespace, fmt.Sprintf("live-%d", i)
	c.Spec.SSH.PrivateKeyFile, c.Spec.SSH.Port = "id_ed25519", livePort+i
	c.Spec.FilesFrom = []v1alpha1.FilesSource{{SecretRef: &v1alpha1.LocalReference{Name: keySecret}}}
	return c
}

// connectHost connects to a simulated host. Any other host does not answer.
func (f *fleet) connectHost(ctx context.Context, h v1alpha1.Host, o remote.Options) (remote.Host, error) {
	if i := h.SSH.Port - livePort; i >= 0 && i < len(f.live) {
		return f.live[i].Connect(ctx, h, o)
	}
	ctx, cancel := context.WithTimeout(ctx, o.WithDefaults().Timeout)
	defer cancel()
	<-ctx.Done()
	return nil, &remote.Error{Host: h.Name, Reason: remote.Unreachable, Cause: "no answer", Remedy: "start it", Err: ctx.Err()}
}

// dialAny reaches the API of a simulated cluster. Any other API does not answer.
func (f *fleet) dialAny(ctx context.Context, network, address string) (net.Conn, error) {
	for i, c := range f.live {
		if strings.HasPrefix(address, fmt.Sprintf("10.%d.0.", i)) {
			return c.Dial(ctx, network, address)
		}
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// changeLive changes a setting of all simulated clusters, and returns the time until it is applied.
func (f *fleet) changeLive(pods int) time.Duration {
	f.t.Helper()
	start := time.Now()
	for i := range f.live {
		c := f.get(fmt.Sprintf("live-%d", i))
		was := c.DeepCopy()
		c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": int64(pods)}
		if err := f.api.Patch(f.t.Context(), c, client.MergeFrom(was)); err != nil {
			f.t.Fatal(err)
		}
	}
	f.waitForLive()
	return time.Since(start)
}

func (f *fleet) get(name string) *v1alpha1.Cluster {
	f.t.Helper()
	c := new(v1alpha1.Cluster)
	if err := f.api.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, c); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// list returns the clusters whose names have a prefix.
func (f *fleet) list(prefix string) (out []v1alpha1.Cluster) {
	f.t.Helper()
	var all v1alpha1.ClusterList
	if err := f.api.List(f.t.Context(), &all, client.InNamespace(f.namespace)); err != nil {
		f.t.Fatal(err)
	}
	for _, c := range all.Items {
		if strings.HasPrefix(c.Name, prefix) {
			out = append(out, c)
		}
	}
	return out
}

// waitFor waits until all clusters with a prefix have a condition.
func (f *fleet) waitFor(prefix, kind string, is metav1.ConditionStatus) {
	f.t.Helper()
	f.eventuallyIn(fleetTime, func() string {
		var missing []string
		for _, c := range f.list(prefix) {
			have := meta.FindStatusCondition(c.Status.Conditions, kind)
			if have == nil || have.Status != is || have.ObservedGeneration != c.Generation {
				missing = append(missing, fmt.Sprintf("%s: %+v", c.Name, have))
			}
		}
		if len(missing) == 0 {
			return ""
		}
		return fmt.Sprintf("%d clusters do not have condition %s %s, for example %s", len(missing), kind, is, missing[0])
	})
}

func (f *fleet) waitForLive() { f.t.Helper(); f.waitFor("live-", "Reconciled", metav1.ConditionTrue) }

// waitForDead waits until it is known of each dead cluster that it does not answer.
func (f *fleet) waitForDead() {
	f.t.Helper()
	start := time.Now()
	f.waitFor("dead-", "Ready", metav1.ConditionUnknown)
	f.waitFor("dead-", "HostsReachable", metav1.ConditionFalse)
	f.t.Logf("figure: it is known of all %d clusters that they do not answer, %.0f s after all are reconciled",
		deadClusters, time.Since(start).Seconds())
}

func (f *fleet) requireReady(name string) {
	f.t.Helper()
	if have := meta.FindStatusCondition(f.get(name).Status.Conditions, "Ready"); have == nil || have.Status != metav1.ConditionTrue {
		f.t.Errorf("cluster %s is not ready: %+v", name, have)
	}
}

// createDead creates clusters with the records of a live one, on other hosts.
func (f *fleet) createDead() {
	f.t.Helper()
	ctx := f.t.Context()
	records := f.openSaved()
	template, err := records.Clusters().Load(ctx, "live-0")
	if err != nil {
		f.t.Fatal(err)
	}
	text, err := json.Marshal(template)
	if err != nil {
		f.t.Fatal(err)
	}
	admin, err := records.Kubeconfigs().Load(ctx, "live-0")
	if err != nil {
		f.t.Fatal(err)
	}
	move := func(text string) string { return strings.ReplaceAll(text, "10.0.0.", deadSubnet+".") }
	version := bundletest.LoadCatalogue(f.t).DefaultVersion()
	start := time.Now()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range deadClusters {
		g.Go(func() error {
			c := new(v1alpha1.Cluster)
			if err := json.Unmarshal([]byte(move(string(text))), c); err != nil {
				return err
			}
			c.ObjectMeta = metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("dead-%d", i)}
			c.Spec.SSH.Port, c.Spec.Paused = deadPort+i, true
			status := c.Status
			c.Status = v1alpha1.ClusterStatus{}
			if err := f.api.Create(ctx, c); err != nil {
				return err
			}
			saved := c.DeepCopy()
			saved.ObjectMeta, saved.Spec.Paused = metav1.ObjectMeta{Name: c.Name}, false
			if err := records.Clusters().Save(ctx, saved, nil); err != nil {
				return err
			}
			if err := records.Clusters().SaveStatus(ctx, c.Name, status); err != nil {
				return err
			}
			if err := records.Kubeconfigs().Save(ctx, c.Name, []byte(move(string(admin)))); err != nil {
				return err
			}
			wants, err := intent.Load(ctx, f.api, records.ClusterFiles(), c, version)
			if err != nil {
				return err
			}
			applied := fmt.Sprintf(`{"status":{"appliedIntent":%q}}`, wants.Digest)
			if err := f.api.Status().Patch(ctx, c, client.RawPatch("application/merge-patch+json", []byte(applied))); err != nil {
				return err
			}
			return f.api.Patch(ctx, c, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":null}}`)))
		})
	}
	if err := g.Wait(); err != nil {
		f.t.Fatal(err)
	}
	f.waitFor("dead-", "Reconciled", metav1.ConditionTrue)
	f.t.Logf("figure: %d clusters added in %.0f s", deadClusters, time.Since(start).Seconds())
}

// measureProcess returns the live memory of this process in bytes, and the processor time that it has used.
func measureProcess() (memory uint64, cpu time.Duration) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return m.HeapAlloc, time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// describeRequests returns the most frequent requests.
func describeRequests(list []string) string {
	count := map[string]int{}
	for _, request := range list {
		count[varying.ReplaceAllString(request, "…")]++
	}
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Compare(count[b], count[a]) })
	var out []string
	for _, name := range names[:min(8, len(names))] {
		out = append(out, fmt.Sprintf("%d %s", count[name], name))
	}
	return strings.Join(out, ", ")
}

// varying matches the parts of paths that differ between namespaces, clusters and operations.
var varying = regexp.MustCompile(`test-[a-z0-9]+|(dead|live)-[0-9]+(-[0-9a-f]+)?`)

// queueAges returns how long objects have waited in the queues of the controllers.
func queueAges(t *testing.T) string {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, family := range families {
		if family.GetName() != "workqueue_queue_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			h := m.GetHistogram()
			if h.GetSampleCount() == 0 {
				continue
			}
			name := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "name" {
					name = l.GetValue()
				}
			}
			out = append(out, fmt.Sprintf("%s %.3f s of %d", name, h.GetSampleSum()/float64(h.GetSampleCount()), h.GetSampleCount()))
		}
	}
	if len(out) == 0 {
		t.Error("the controllers have no queues")
	}
	return strings.Join(out, ", ")
}
