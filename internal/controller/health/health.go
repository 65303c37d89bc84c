// Package health shows the health of clusters in the status of their objects. It probes them in a pool of its
// workers, so that a cluster that does not respond delays neither other clusters nor the controllers.
package health

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// A Source probes one cluster. It returns soon after the end of its context.
type Source interface {
	// QueryAPI queries the API and the nodes.
	QueryAPI(ctx context.Context, c *v1alpha1.Cluster, q Query) (*inspect.APIReport, error)
	// QueryHosts queries the hosts over SSH.
	QueryHosts(ctx context.Context, c *v1alpha1.Cluster, q Query) (*inspect.HealthReport, error)
}

// A Query describes how a cluster is queried.
type Query struct {
	// ThroughHosts also tries to reach the API over SSH.
	ThroughHosts bool
	// Fresh reads the kubeconfig, the keys and the files of the cluster again, also if they were read before and
	// no change was reported.
	Fresh bool
}

// A Config configures a Prober. Client, Source, Now and Log are required.
type Config struct {
	// Client reads from a cache, and writes to the API.
	Client client.Client
	Source Source
	// Newer returns the newest version after a version, "" if there is none. It can be nil.
	Newer func(version string) string
	// Times are the periods and limits. Zero fields have the default.
	Times Times
	Now   func() time.Time
	Log   *slog.Logger
}

// A Prober probes all clusters from time to time.
type Prober struct {
	Config
	queues map[work]workqueue.TypedDelayingInterface[task]

	mu       sync.Mutex
	clusters map[types.NamespacedName]*cluster
}

// A task is one kind of work for a cluster.
type task struct {
	cluster types.NamespacedName
	work    work
}

// work is a kind of work.
type work int

const (
	// probeAPI queries an API that answers. After a failure, probeSilentAPI follows until the API answers again.
	probeAPI work = iota
	probeSilentAPI
	// probeHosts queries the hosts, and publish writes the status.
	probeHosts
	publish
)

// workers is the number of tasks of each kind that run at the same time. Each kind has a queue of its workers, so that
// many clusters without an answer do not delay the probes of others.
var workers = map[work]int{probeAPI: 32, probeSilentAPI: 64, probeHosts: 16, publish: 4}

// New returns a prober. It begins with Start.
func New(c Config) *Prober {
	c.Times.setDefaults()
	p := &Prober{
		Config: c, queues: map[work]workqueue.TypedDelayingInterface[task]{},
		clusters: map[types.NamespacedName]*cluster{},
	}
	for kind := range workers {
		p.queues[kind] = workqueue.NewTypedDelayingQueue[task]()
	}
	return p
}

// schedule does a task after a while.
func (p *Prober) schedule(cluster types.NamespacedName, kind work, after time.Duration) {
	p.queues[kind].AddAfter(task{cluster, kind}, after)
}

// Reconcile begins to probe a cluster, or ends it. After the end of an operation, the hosts are probed at once. It
// connects to nothing.
func (p *Prober) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	c := new(v1alpha1.Cluster)
	err := p.Client.Get(ctx, key.NamespacedName, c)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil {
		p.Forget(key.NamespacedName)
		return reconcile.Result{}, nil
	}
	p.track(c)
	all, err := operations.ListOf(ctx, p.Client, key.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	all = slices.DeleteFunc(all, func(o v1alpha1.Operation) bool { return o.CreationTimestamp.Before(&c.CreationTimestamp) })
	if is := p.find(key.NamespacedName); is != nil && is.addOperations(all) && isProbed(c) {
		p.schedule(key.NamespacedName, probeHosts, 0)
	}
	p.schedule(key.NamespacedName, publish, 0)
	return reconcile.Result{}, nil
}

// track begins to probe a cluster that was created.
func (p *Prober) track(c *v1alpha1.Cluster) {
	key := client.ObjectKeyFromObject(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	is := p.clusters[key]
	isTaken := is == nil // after a start of this process, or from another one
	if is == nil || is.uid != c.UID {
		is = newCluster(c, p.Now())
		p.clusters[key] = is
	}
	if !is.probed && isProbed(c) {
		is.probed, is.since, is.next = true, p.Now(), probeAPI
		p.schedule(key, probeAPI, firstDelay(isTaken, p.Times.Period))
		p.schedule(key, probeHosts, firstDelay(isTaken, p.Times.HostsPeriod/2))
		p.schedule(key, publish, p.Times.Unanswered)
	}
	is.probed = is.probed && isProbed(c)
}

// firstDelay returns the time until the first probe. A process takes many clusters at once: their probes are spread over
// a period.
func firstDelay(isTaken bool, period time.Duration) time.Duration {
	if isTaken {
		return randomUntil(period)
	}
	return 0
}

// Forget ends the probes of a cluster.
func (p *Prober) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clusters, key)
}

// find returns the state of a cluster, nil if it is not probed.
func (p *Prober) find(key types.NamespacedName) *cluster {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clusters[key]
}

// Start works until ctx ends, and waits for the probes that run.
func (p *Prober) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for kind, n := range workers {
		for range n {
			running.Go(func() { p.workOn(ctx, p.queues[kind]) })
		}
	}
	<-ctx.Done()
	for _, q := range p.queues {
		q.ShutDown()
	}
	running.Wait()
	return nil
}

// workOn does tasks until their queue is shut down.
func (p *Prober) workOn(ctx context.Context, queue workqueue.TypedDelayingInterface[task]) {
	for {
		t, over := queue.Get()
		if over {
			return
		}
		if ctx.Err() == nil {
			p.doTask(ctx, t)
		}
		queue.Done(t)
	}
}

// doTask does a task, and schedules the next one.
func (p *Prober) doTask(ctx context.Context, t task) {
	is := p.find(t.cluster)
	if is == nil {
		return
	}
	c := new(v1alpha1.Cluster)
	if err := p.Client.Get(ctx, t.cluster, c); err != nil {
		if client.IgnoreNotFound(err) != nil {
			p.schedule(t.cluster, t.work, p.Times.Period)
		}
		return
	}
	if t.work != publish && !isProbed(c) {
		return // it continues when the cluster is probed again
	}
	switch t.work {
	case probeAPI, probeSilentAPI:
		if p.isNext(is, t.work) {
			p.probeAPI(ctx, is, c, t)
		}
	case probeHosts:
		p.schedule(t.cluster, probeHosts, p.probeHosts(ctx, is, c))
	case publish:
	}
	if ctx.Err() != nil || p.find(t.cluster) != is { // another process probes it now
		return
	}
	next, err := p.publish(ctx, is, c)
	if err != nil {
		p.Log.Warn("the health of a cluster was not saved", "cluster", t.cluster, "error", err)
		next = p.Times.Period
	}
	if next > 0 {
		p.schedule(t.cluster, publish, next)
	}
}

// isNext reports whether a kind of probe is the next one of an API. Another one is from before the cluster was created
// again.
func (p *Prober) isNext(is *cluster, kind work) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return is.next == kind
}

// setNext schedules the next probe of an API.
func (p *Prober) setNext(is *cluster, key types.NamespacedName, kind work, after time.Duration) {
	p.mu.Lock()
	is.next = kind
	p.mu.Unlock()
	p.schedule(key, kind, after)
}

// quickLimit limits the probe of an API that has answered before. After it, the probe is repeated with more time, apart
// from the APIs that answer.
const quickLimit = 2 * time.Second

// probeAPI queries the API of a cluster, and schedules the next query.
func (p *Prober) probeAPI(ctx context.Context, is *cluster, c *v1alpha1.Cluster, t task) {
	fresh := is.readsAPIFresh()
	ask := func(limit time.Duration, q Query) (*inspect.APIReport, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return p.Source.QueryAPI(ctx, c, q)
	}
	limit := p.Times.API
	if t.work == probeAPI {
		limit = min(limit, quickLimit)
	}
	report, err := ask(limit, Query{Fresh: fresh})
	direct := err == nil && report.Answers
	if ctx.Err() == nil && !direct {
		if t.work == probeAPI {
			p.setNext(is, t.cluster, probeSilentAPI, 0)
			return
		}
		endpoint := ""
		if err == nil {
			endpoint = report.Endpoint
		}
		if other, failed := ask(p.Times.Hosts, Query{ThroughHosts: true, Fresh: fresh}); failed == nil && other.Answers {
			report, err = other, nil
			report.Endpoint = endpoint
		}
	}
	if err != nil {
		report = &inspect.APIReport{Message: err.Error()}
	}
	next := probeSilentAPI
	if direct {
		next = probeAPI
	}
	p.setNext(is, t.cluster, next, is.addAPI(report, &p.Times, p.Now()))
}

// probeHosts queries the hosts of a cluster. It returns the time until the next query.
func (p *Prober) probeHosts(ctx context.Context, is *cluster, c *v1alpha1.Cluster) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, inspect.HostsTime(len(c.Spec.Hosts), p.Times.Hosts))
	defer cancel()
	report, err := p.Source.QueryHosts(ctx, c, Query{ThroughHosts: true, Fresh: is.readsHostsFresh()})
	return is.addHosts(report, err, &p.Times, p.Now())
}
