// Package controller runs the controllers of Slipway against an API with its definitions.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/clusters"
	"slipway.dev/slipway/internal/controller/drift"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/health"
	"slipway.dev/slipway/internal/controller/hostguard"
	"slipway.dev/slipway/internal/controller/metrics"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/controller/readcache"
	"slipway.dev/slipway/internal/controller/schedule"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/controller/sharding"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/records"
)

// A Config configures the controllers. Client, OpenRecords and Lifecycle are required.
type Config struct {
	Client *rest.Config
	// Namespace limits the controllers to one namespace; "" is all.
	Namespace string
	// OpenRecords returns the records of a namespace.
	OpenRecords func(namespace string) (records.Backend, error)
	// OpenCached returns another OpenRecords, for records that are only read: read returns Secrets, also from memory.
	// nil: OpenRecords is used.
	OpenCached func(read ReadSecret) func(namespace string) (records.Backend, error)
	// Lifecycle has the parts of the configuration that are the same for all operations.
	Lifecycle lifecycle.Config
	// FilesBases are the directories for private files; none: the defaults of package privatedir.
	FilesBases []string
	// Slots is the number of operations that run at the same time. Default: executor.DefaultSlots.
	Slots int
	// Health are the periods and limits of the probes of clusters. Zero fields have the default.
	Health health.Times
	// DriftInterval is the time between two checks of a cluster for manual changes. Default: 1 h.
	DriftInterval time.Duration
	// ScheduleJitter spreads the operations that became due while no controller ran. Default: 10 min.
	ScheduleJitter time.Duration
	// StopTime limits the time until running operations reach a safe point. Default: 60 s.
	StopTime time.Duration
	// Process has what the controllers need outside of a management server. nil: they run in one.
	Process *Process
	// Sharing makes several processes share the clusters. nil: this process has all clusters.
	Sharing *Sharing
	// Metrics show the clusters and operations of these controllers; nil for none.
	Metrics *metrics.Metrics
	Log     *slog.Logger

	members *sharding.Members // nil without Sharing
}

// A ReadSecret reads a Secret.
type ReadSecret = func(ctx context.Context, namespace, name string) (*corev1.Secret, error)

// Delays between two passes after an error.
const (
	firstDelay = 50 * time.Millisecond
	lastDelay  = time.Minute
)

const (
	defaultStopTime = time.Minute
	// stopReserve is the time to stop everything but the operations.
	stopReserve = 15 * time.Second
	// workers is the number of objects of a kind that are looked at at the same time.
	workers = 4
)

// newScheme returns the kinds that the controllers use.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	group := schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	scheme.AddKnownTypes(group, &v1alpha1.Cluster{}, &v1alpha1.ClusterList{}, &v1alpha1.Operation{}, &v1alpha1.OperationList{})
	metav1.AddToGroupVersion(scheme, group)
	return scheme, clientscheme.AddToScheme(scheme)
}

// Run runs the controllers until ctx ends. Running operations then stop at a safe point.
func Run(ctx context.Context, c Config) error {
	if c.Slots == 0 {
		c.Slots = executor.DefaultSlots
	}
	if c.StopTime == 0 {
		c.StopTime = defaultStopTime
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	cached := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	if c.Namespace != "" {
		cached.DefaultNamespaces = map[string]cache.Config{c.Namespace: {}}
	}
	logger := logr.FromSlogHandler(c.Log.Handler())
	log.SetLogger(logger)            // it has an effect once
	api := rest.CopyConfig(c.Client) // an administrator's client can ask for protobuf, which our kinds do not have
	api.ContentType, api.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	graceful := c.StopTime + stopReserve
	options := manager.Options{
		Cache:  cached,
		Scheme: scheme, Logger: logger, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:              config.Controller{SkipNameValidation: new(true)}, // a test runs several
		GracefulShutdownTimeout: &graceful,
	}
	if c.members, err = c.newMembers(api); err != nil {
		return err
	}
	if c.Process != nil {
		c.Process.setOptions(&options)
		if c.Metrics != nil {
			_ = ctrlmetrics.Registry.Register(c.Metrics) // the second run of a test binary keeps the first one's
		}
	}
	m, err := manager.New(api, options)
	if err != nil {
		return fmt.Errorf("starting the controllers: %w", err)
	}
	if err := m.GetFieldIndexer().IndexField(ctx, &v1alpha1.Operation{}, operations.ClusterField, clusterName); err != nil {
		return err
	}
	if err := m.GetFieldIndexer().IndexField(ctx, &v1alpha1.Cluster{}, filesField, fileSources); err != nil {
		return err
	}
	ended := make(endings, maxEndings)
	opener := service.Opener{
		Client: m.GetAPIReader(), OpenRecords: c.OpenRecords, Lifecycle: c.Lifecycle, FilesBases: c.FilesBases, Log: c.Log,
	}
	guard := &hostguard.Guard{Claims: hostclaims.NewIndex(time.Now), OpenRecords: c.OpenRecords, Lifecycle: c.Lifecycle}
	selectRunner, err := c.newSelector(m, &executor.Runner{Opener: opener, Writer: m.GetClient(), Guard: guard})
	if err != nil {
		return err
	}
	running := executor.NewPool(ctx, executor.PoolConfig{Select: selectRunner, Slots: c.Slots, Notify: ended.add, Log: c.Log})
	defer running.Close(c.StopTime)
	if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		running.Close(c.StopTime)
		return nil
	})); err != nil {
		return err
	}
	if c.members != nil {
		if err := m.Add(c.joinMembers(m)); err != nil {
			return err
		}
	}
	if c.Process != nil {
		if err := c.Process.addTo(ctx, m, c.Log); err != nil {
			return fmt.Errorf("starting the controllers: %w", err)
		}
	}
	if err := c.addControllers(m, guard, running, ended); err != nil {
		return err
	}
	if err := errors.Join(c.addHealth(m, opener), c.addDrift(m, opener)); err != nil {
		return err
	}
	if c.Metrics != nil {
		if err := m.Add(c.showMetrics(m, running)); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// readOwnCA returns the CA certificates of the cluster in which the controllers run, none if they run in a management
// server.
func (c *Config) readOwnCA() ([]byte, error) {
	if c.Process == nil {
		return nil, nil
	}
	return readCA(c.Client)
}

// readCA returns the CA certificates of the API, in PEM form.
func readCA(client *rest.Config) ([]byte, error) {
	client = rest.CopyConfig(client)
	if err := rest.LoadTLSFiles(client); err != nil {
		return nil, fmt.Errorf("reading the CA of the API: %w", err)
	}
	return client.CAData, nil
}

// showMetrics returns the part of a manager that shows metrics while its controllers run.
func (c *Config) showMetrics(m manager.Manager, running *executor.Pool) manager.Runnable {
	shows := func() bool { return c.owns(types.NamespacedName{Name: "metrics"}) } // one process does
	return manager.RunnableFunc(func(ctx context.Context) error {
		if err := c.Metrics.ObserveEnds(ctx, m.GetCache(), shows); err != nil {
			return err
		}
		defer c.Metrics.Attach(metrics.Source{
			Context: ctx, Reader: m.GetClient(), ShowsObjects: shows,
			CountRunning: running.CountRunning, Slots: running.CountSlots(), Now: c.Lifecycle.Now,
		})()
		<-ctx.Done()
		return nil
	})
}

// addControllers adds the controllers to a manager.
func (c *Config) addControllers(m manager.Manager, guard *hostguard.Guard, running *executor.Pool, ended endings) error {
	options := controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstDelay, lastDelay),
	}
	queue := &operations.Reconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Executor: running, Owns: c.owns, Now: c.Lifecycle.Now,
	}
	queued := handler.EnqueueRequestsFromMapFunc(queueOf(m.GetClient()))
	b := builder.ControllerManagedBy(m).Named("operation").For(&v1alpha1.Operation{}).WithOptions(options).
		Watches(&v1alpha1.Operation{}, queued).
		Watches(&v1alpha1.Operation{}, byUser(), builder.WithPredicates(changedByUser)).
		Watches(&v1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(waitingForWindow(m.GetClient())), builder.WithPredicates(changedByUser)).
		WatchesRawSource(source.Channel(ended, queued))
	err := c.watchMembers(b, m.GetClient(), func() client.ObjectList { return new(v1alpha1.OperationList) }).Complete(queue)
	if err != nil {
		return fmt.Errorf("adding the controller of operations: %w", err)
	}
	options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstDelay, lastDelay)
	wanted := &clusters.Reconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), OpenRecords: c.OpenRecords, Lifecycle: c.Lifecycle, Executor: running,
		Guard: guard,
	}
	if wanted.OwnCA, err = c.readOwnCA(); err != nil {
		return err
	}
	files := func(kind string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(clustersWithFiles(m.GetClient(), kind))
	}
	b = builder.ControllerManagedBy(m).Named("cluster").WithOptions(options).
		For(&v1alpha1.Cluster{}, builder.WithPredicates(clusters.Changes())).
		Watches(&v1alpha1.Operation{}, handler.EnqueueRequestsFromMapFunc(clusterOfOperation)).
		Watches(&v1alpha1.Cluster{}, byUser(), builder.WithPredicates(changedByUser)).
		Watches(&v1alpha1.Cluster{}, claimsHandler(guard.Claims)).
		WatchesMetadata(&corev1.Secret{}, files("Secret")).
		WatchesMetadata(&corev1.ConfigMap{}, files("ConfigMap"))
	if err := c.completeForClusters(b, m, wanted); err != nil {
		return fmt.Errorf("adding the controller of clusters: %w", err)
	}
	return nil
}

// addHealth adds the probes of clusters, and the schedules that depend on them, to a manager.
func (c *Config) addHealth(m manager.Manager, opener service.Opener) error {
	kept := readcache.New(readcache.Config{Versions: m.GetClient(), Live: m.GetAPIReader(), Now: c.Lifecycle.Now})
	prober := health.New(health.Config{
		Client: m.GetClient(), Times: c.Health, Newer: c.Lifecycle.Catalogue.NewerVersion,
		Source: health.NewLifecycle(c.openThrough(kept, false, opener), c.openThrough(kept, true, opener), c.Health),
		Now:    c.Lifecycle.Now, Log: c.Log,
	})
	b := builder.ControllerManagedBy(m).Named("health").For(&v1alpha1.Cluster{}).
		Watches(&v1alpha1.Operation{}, handler.EnqueueRequestsFromMapFunc(clusterOfOperation))
	if err := c.completeForClusters(b, m, prober); err != nil {
		return fmt.Errorf("adding the controller of probes: %w", err)
	}
	schedules := &schedule.Reconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Observe: prober.Observe, Jitter: c.ScheduleJitter,
		Started: c.Lifecycle.Now(), Now: c.Lifecycle.Now,
	}
	schedules.SetDefaults()
	if err := c.completeForClusters(builder.ControllerManagedBy(m).Named("schedule").For(&v1alpha1.Cluster{}), m, schedules); err != nil {
		return fmt.Errorf("adding the controller of schedules: %w", err)
	}
	return m.Add(prober)
}

// openThrough returns an opener that reads through a cache.
func (c *Config) openThrough(kept *readcache.Cache, fresh bool, o service.Opener) service.Opener {
	o.Client = kept.Reader(fresh)
	if c.OpenCached != nil {
		o.OpenRecords = c.OpenCached(kept.ReadSecret(fresh))
	}
	return o
}

// addDrift adds the checks for manual changes to a manager.
func (c *Config) addDrift(m manager.Manager, opener service.Opener) error {
	checker := drift.New(drift.Config{
		Client: m.GetClient(), Live: m.GetAPIReader(), Opener: opener, Events: m.GetEventRecorder("slipway-drift"),
		Interval: c.DriftInterval, Now: c.Lifecycle.Now, Log: c.Log,
	})
	b := builder.ControllerManagedBy(m).Named("drift").For(&v1alpha1.Cluster{}).
		Watches(&v1alpha1.Operation{}, handler.EnqueueRequestsFromMapFunc(clusterOfOperation))
	if err := c.completeForClusters(b, m, checker); err != nil {
		return fmt.Errorf("adding the controller of differences: %w", err)
	}
	return m.Add(checker)
}

// endings passes the ends of runs to the controller of operations.
type endings chan event.GenericEvent

// maxEndings is the number of ends that wait for the controller.
const maxEndings = 1024

func (e endings) add(o *v1alpha1.Operation) {
	select {
	case e <- event.GenericEvent{Object: o}:
	default: // the controllers have stopped
	}
}

// clusterName returns the value of the index of operations.
func clusterName(o client.Object) []string {
	return []string{o.(*v1alpha1.Operation).Spec.ClusterRef.Name} //nolint:forcetypeassert // the index has only operations
}

// filesField is the index of clusters by the objects that have their files.
const filesField = "spec.filesFrom"

// fileSources returns the values of the index of clusters: "Secret/name".
func fileSources(o client.Object) (out []string) {
	for _, from := range o.(*v1alpha1.Cluster).Spec.FilesFrom { //nolint:forcetypeassert // the index has only clusters
		if from.SecretRef != nil {
			out = append(out, "Secret/"+from.SecretRef.Name)
		}
		if from.ConfigMapRef != nil {
			out = append(out, "ConfigMap/"+from.ConfigMapRef.Name)
		}
	}
	return out
}

// clustersWithFiles returns the clusters that use an object for their files.
func clustersWithFiles(c client.Client, kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (out []reconcile.Request) {
		var list v1alpha1.ClusterList
		err := c.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{filesField: kind + "/" + o.GetName()})
		if err != nil {
			return nil // the cache has stopped
		}
		for i := range list.Items {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return out
	}
}

// clusterOfOperation returns the cluster of an operation.
func clusterOfOperation(_ context.Context, o client.Object) []reconcile.Request {
	name := clusterName(o)[0]
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// queueOf returns an operation, and the unfinished operations of its cluster.
func queueOf(c client.Client) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		out := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
		all, err := operations.ListOf(ctx, c, types.NamespacedName{Namespace: o.GetNamespace(), Name: clusterName(o)[0]})
		if err != nil {
			return out // the cache has stopped
		}
		for i := range all {
			if all[i].Name != o.GetName() && !operations.IsFinished(&all[i]) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
			}
		}
		return out
	}
}
