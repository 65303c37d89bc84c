// Package metrics has the metrics of clusters and operations for Prometheus.
package metrics

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// conditions are the conditions of a cluster that are shown. A condition that a user has written has no metric.
var conditions = []string{
	"BackupRecent", "CertificatesValid", "Created", "Deleting", "Drifted", "EndpointAvailable", "EtcdHealthy", "HostsReachable",
	"NeedsAttention", "NodesReady", "Paused", "Ready", "Reconciled", "Stalled",
}

// otherKind is the kind of an operation that this version does not know.
const otherKind = "other"

// durations are the upper limits of the buckets of the duration of an operation, in seconds.
var durations = []float64{10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400}

// readTime limits the time of one reading of the objects, which are in memory.
const readTime = 5 * time.Second

// Metrics implements prometheus.Collector. While controllers run, it shows the objects in their cache. A process has one.
type Metrics struct {
	clusters, condition, certificate, backup *prometheus.Desc
	operations, queueAge, slots              *prometheus.Desc
	duration                                 *prometheus.HistogramVec

	mu     sync.Mutex
	source *Source // nil while no controllers run
}

// A Source has what the metrics show.
type Source struct {
	// Context ends with the controllers.
	Context context.Context //nolint:containedctx // Prometheus gives none
	// Reader reads from a cache.
	Reader client.Reader
	// ShowsObjects reports whether this process shows the objects: one process does.
	ShowsObjects func() bool
	// CountRunning returns the number of operations that run in this process, and Slots is its limit.
	CountRunning func() int
	Slots        int
	Now          func() time.Time
}

// New returns metrics without a source.
func New() *Metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("slipway_"+name, help, labels, nil)
	}
	return &Metrics{
		clusters: desc("clusters", "Number of Cluster objects."),
		condition: desc("cluster_condition", "The current status of a condition of a cluster; the value is 1.",
			"namespace", "name", "condition", "status"),
		certificate: desc("cluster_certificate_expiry_timestamp_seconds",
			"Time when the first certificate of a cluster expires.", "namespace", "name"),
		backup:     desc("cluster_last_backup_timestamp_seconds", "Time of the latest automatic snapshot of etcd.", "namespace", "name"),
		operations: desc("operations", "Number of Operation objects.", "kind", "state"),
		queueAge:   desc("operation_queue_age_seconds", "Time since the creation of the oldest operation that has not begun."),
		slots:      desc("operation_slots", "Number of operations that can run, and that run, in this process.", "state"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "slipway_operation_duration_seconds",
			Help: "Time from the start to the end of an operation; 0 if it ended before its start.", Buckets: durations,
		}, []string{"kind", "state"}),
	}
}

// Attach shows the objects of a source until detach is called.
func (m *Metrics) Attach(s Source) (detach func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source = &s
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.source = nil
	}
}

// ObserveEnds measures the duration of each operation that ends from now on, while this process shows the objects.
func (m *Metrics) ObserveEnds(ctx context.Context, from cache.Cache, showsObjects func() bool) error {
	informer, err := from.GetInformer(ctx, &v1alpha1.Operation{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(was, is any) {
		before, ok := was.(*v1alpha1.Operation)
		after, same := is.(*v1alpha1.Operation)
		if ok && same && showsObjects() {
			m.observeEnd(before, after)
		}
	}})
	return err
}

// observeEnd measures an operation that has ended between two versions of its object.
func (m *Metrics) observeEnd(before, after *v1alpha1.Operation) {
	s := &after.Status
	if operation.HasEnded(before) || !operation.HasEnded(after) || s.State == v1alpha1.OperationSuperseded {
		return
	}
	took := 0.0 // it has failed before it began
	if s.StartTime != nil && s.EndTime != nil {
		took = s.EndTime.Sub(s.StartTime.Time).Seconds()
	}
	m.duration.WithLabelValues(kindOf(after), string(s.State)).Observe(took)
}

// kindOf returns the kind of an operation as a label.
func kindOf(o *v1alpha1.Operation) string {
	if slices.Contains(operation.Kinds(), operation.Kind(o.Spec.Kind)) {
		return o.Spec.Kind
	}
	return otherKind
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.clusters, m.condition, m.certificate, m.backup, m.operations, m.queueAge, m.slots} {
		to <- d
	}
	m.duration.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.duration.Collect(to)
	m.mu.Lock()
	source := m.source
	m.mu.Unlock()
	if source == nil {
		return
	}
	ctx, cancel := context.WithTimeout(source.Context, readTime)
	defer cancel()
	if source.ShowsObjects() {
		m.collectClusters(ctx, source, to)
		m.collectOperations(ctx, source, to)
	}
	running := float64(source.CountRunning())
	to <- prometheus.MustNewConstMetric(m.slots, prometheus.GaugeValue, running, "running")
	to <- prometheus.MustNewConstMetric(m.slots, prometheus.GaugeValue, float64(source.Slots), "all")
}

// collectClusters sends the metrics of clusters.
func (m *Metrics) collectClusters(ctx context.Context, s *Source, to chan<- prometheus.Metric) {
	var list v1alpha1.ClusterList
	if err := s.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		to <- prometheus.NewInvalidMetric(m.clusters, err)
		return
	}
	to <- prometheus.MustNewConstMetric(m.clusters, prometheus.GaugeValue, float64(len(list.Items)))
	for i := range list.Items {
		c := &list.Items[i]
		shown := map[string]bool{} // a status that was edited can have a condition twice
		for _, is := range c.Status.Conditions {
			if slices.Contains(conditions, is.Type) && !shown[is.Type] {
				shown[is.Type] = true
				to <- prometheus.MustNewConstMetric(m.condition, prometheus.GaugeValue, 1, c.Namespace, c.Name, is.Type, string(is.Status))
			}
		}
		summary := c.Status.Summary
		if summary == nil {
			continue
		}
		if is := summary.NextCertificate; is != nil {
			to <- prometheus.MustNewConstMetric(m.certificate, prometheus.GaugeValue, float64(is.Expires.Unix()), c.Namespace, c.Name)
		}
		if is := summary.LastBackup; is != nil {
			to <- prometheus.MustNewConstMetric(m.backup, prometheus.GaugeValue, float64(is.Time.Unix()), c.Namespace, c.Name)
		}
	}
}

// collectOperations sends the metrics of operations.
func (m *Metrics) collectOperations(ctx context.Context, s *Source, to chan<- prometheus.Metric) {
	var list v1alpha1.OperationList
	if err := s.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		to <- prometheus.NewInvalidMetric(m.operations, err)
		return
	}
	type group struct{ kind, state string }
	counts := map[group]int{}
	var oldest time.Duration
	for i := range list.Items {
		o := &list.Items[i]
		state := o.Status.State
		if state == "" {
			state = v1alpha1.OperationPending
		}
		counts[group{kindOf(o), string(state)}]++
		if (state == v1alpha1.OperationPending || state == v1alpha1.OperationPlanning) && !operations.WaitsForWindow(o) {
			oldest = max(oldest, s.Now().Sub(o.CreationTimestamp.Time))
		}
	}
	for g, n := range counts {
		to <- prometheus.MustNewConstMetric(m.operations, prometheus.GaugeValue, float64(n), g.kind, g.state)
	}
	to <- prometheus.MustNewConstMetric(m.queueAge, prometheus.GaugeValue, oldest.Seconds())
}
