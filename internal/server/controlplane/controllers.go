package controlplane

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

const (
	// leaseName is the Lease of the server that runs the controllers.
	leaseName     = "slipway-controllers"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second

	// controllerWorkers is the number of workers of a controller, and collectorWorkers
	// the number of workers of the garbage collector.
	controllerWorkers, collectorWorkers = 5, 10
	// resyncPeriod is the time after which a controller looks at all objects again.
	resyncPeriod = 10 * time.Minute
	// collectorSync is the time between two looks at the served resources.
	collectorSync = 30 * time.Second
	// maxCertificateTTL limits the lifetime of client certificates.
	maxCertificateTTL = 365 * 24 * time.Hour
)

// A controllerGroup runs the controllers while this server holds their Lease.
type controllerGroup struct {
	config Config
	client *rest.Config

	mu      sync.Mutex
	cancel  context.CancelFunc // nil while the controllers are not started
	stopped bool
	running sync.WaitGroup
}

// start starts the controllers. It does nothing if they are started already, or after stop.
func (g *controllerGroup) start(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cancel != nil || g.stopped {
		return
	}
	ctx, g.cancel = context.WithCancel(ctx)
	g.running.Go(func() { g.repeat(ctx, g.leadOnce) })
	if g.config.ShareControllers && g.config.Controllers != nil {
		g.running.Go(func() {
			g.repeat(ctx, func(ctx context.Context) error { return g.config.Controllers(ctx, g.fastClient()) })
		})
	}
}

// fastClient returns a client for controllers, which have much to do at times: a namespace with many objects is deleted
// object by object.
func (g *controllerGroup) fastClient() *rest.Config {
	fast := rest.CopyConfig(g.client)
	fast.QPS, fast.Burst = 200, 400
	return fast
}

// stopWithin stops the controllers and waits for them until the limit has passed or ctx ends.
func (g *controllerGroup) stopWithin(ctx context.Context, limit time.Duration) {
	g.mu.Lock()
	cancel := g.cancel
	g.stopped = true
	g.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if err := waitFor(ctx, "the controllers", g.running.Wait); err != nil {
		g.config.Log.Warn(err.Error())
	}
}

// repeat runs controllers again whenever they have ended, until ctx ends.
func (g *controllerGroup) repeat(ctx context.Context, run func(context.Context) error) {
	for ctx.Err() == nil {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			g.config.Log.Error("the controllers have ended and start again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPeriod):
		}
	}
}

// leadOnce waits for the Lease and runs the controllers until it is lost. It returns the Lease
// if the controllers cannot run.
func (g *controllerGroup) leadOnce(ctx context.Context) error {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(g.client), "slipwayd-controllers"))
	if err != nil {
		return err
	}
	identity, err := g.identity()
	if err != nil {
		return err
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, SystemNamespace, leaseName, client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return err
	}
	leading := &leadership{}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				leading.runUnlessEnded(func() {
					if err := g.run(ctx, client); err != nil && ctx.Err() == nil {
						g.config.Log.Error("the controllers have ended and start again", "error", err)
						giveUp()
					}
				})
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	leading.end()
	return nil
}

// A leadership is one period in which this server holds the Lease. The elector calls back in
// a goroutine for which it does not wait.
type leadership struct {
	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// runUnlessEnded calls f, unless the period has ended.
func (l *leadership) runUnlessEnded(f func()) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return
	}
	l.running.Add(1)
	l.mu.Unlock()
	defer l.running.Done()
	f()
}

// end ends the period and waits for f.
func (l *leadership) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.running.Wait()
}

// identity returns the holder of the Lease. Only one process can use the data directory, so
// after a crash the next one continues with the same identity. Servers on one external etcd
// have the same id and differ in host and process.
func (g *controllerGroup) identity() (string, error) {
	if len(g.config.Etcd.Servers) == 0 {
		return g.config.Dir.ServerID(), nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s_%s_%d", g.config.Dir.ServerID(), host, os.Getpid()), nil
}

// run runs the controllers until ctx ends and all of them have ended.
func (g *controllerGroup) run(ctx context.Context, client kubernetes.Interface) error {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	fast := g.fastClient()
	objects, err := metadata.NewForConfig(fast)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, resyncPeriod)
	all := metadatainformer.NewSharedInformerFactory(objects, resyncPeriod)
	started := make(chan struct{})
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, objects, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(shared, all), started)
	if err != nil {
		return fmt.Errorf("creating the garbage collector: %w", err)
	}
	requests := shared.Certificates().V1().CertificateSigningRequests()
	sign, err := signer.NewKubeAPIServerClientCSRSigningController(ctx, client, requests,
		g.config.Certificates.CAFile(), g.config.Certificates.CAKeyFile(), maxCertificateTTL)
	if err != nil {
		return fmt.Errorf("creating the signer of client certificates: %w", err)
	}
	namespaces := namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		shared.Core().V1().Namespaces(), resyncPeriod, corev1.FinalizerKubernetes)
	roles := clusterroleaggregation.NewClusterRoleAggregation(shared.Rbac().V1().ClusterRoles(), client.RbacV1())
	clean := cleaner.NewCSRCleanerController(client.CertificatesV1().CertificateSigningRequests(), requests)

	var running sync.WaitGroup
	running.Go(func() { namespaces.Run(ctx, controllerWorkers) })
	running.Go(func() { collector.Run(ctx, collectorWorkers, collectorSync) })
	running.Go(func() { collector.Sync(ctx, client.Discovery(), collectorSync) })
	running.Go(func() { sign.Run(ctx, controllerWorkers) })
	running.Go(func() { roles.Run(ctx, 1) })
	running.Go(func() { clean.Run(ctx, 1) })
	var failed error
	if more := g.config.Controllers; more != nil && !g.config.ShareControllers {
		running.Go(func() {
			if failed = more(ctx, rest.CopyConfig(fast)); failed != nil {
				giveUp()
			}
		})
	}
	shared.Start(ctx.Done())
	all.Start(ctx.Done())
	close(started)
	running.Wait()
	shared.Shutdown()
	all.Shutdown()
	return failed
}
