package metrics

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
)

// noon is the time of the tests.
var noon = metav1.NewTime(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))

// objects are the objects in the cache of a test.
type objects struct {
	client.Reader
	clusters   []v1alpha1.Cluster
	operations []v1alpha1.Operation
	err        error
}

// List implements client.Reader.
func (o *objects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.ClusterList:
		list.Items = o.clusters
	case *v1alpha1.OperationList:
		list.Items = o.operations
	}
	return o.err
}

// newObjects returns objects in several states.
func newObjects() *objects {
	cluster := func(name string, conditions ...metav1.Condition) (c v1alpha1.Cluster) {
		c.Namespace, c.Name, c.Status.Conditions = "default", name, conditions
		return c
	}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue}
	prod := cluster("prod", ready, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse}, metav1.Condition{Type: "Invented"})
	prod.Status.Summary = &v1alpha1.ClusterSummary{
		NextCertificate: &v1alpha1.CertificateSummary{Expires: noon}, LastBackup: &v1alpha1.BackupSummary{Time: noon},
	}
	made := func(kind string, state v1alpha1.OperationState, age time.Duration) (o v1alpha1.Operation) {
		o.Spec.Kind, o.Status.State, o.CreationTimestamp = kind, state, metav1.NewTime(noon.Add(-age))
		return o
	}
	return &objects{
		clusters: []v1alpha1.Cluster{prod, cluster("test", metav1.Condition{Type: "Stalled", Status: metav1.ConditionTrue})},
		operations: []v1alpha1.Operation{
			made("create", v1alpha1.OperationRunning, time.Hour), made("apply", "", time.Minute),
			made("apply", v1alpha1.OperationPending, 2*time.Minute), made("invented", v1alpha1.OperationFailed, time.Hour),
		},
	}
}

func attach(t *testing.T, m *Metrics, o *objects) {
	t.Helper()
	t.Cleanup(m.Attach(Source{
		Context: t.Context(), Reader: o, ShowsObjects: func() bool { return true }, Slots: 10,
		CountRunning: func() int { return 3 }, Now: func() time.Time { return noon.Time },
	}))
}

func TestCollect_ShowsNoObjectsIfAnotherProcessDoes(t *testing.T) {
	m := New()
	t.Cleanup(m.Attach(Source{
		Context: t.Context(), Reader: newObjects(), ShowsObjects: func() bool { return false }, Slots: 10,
		CountRunning: func() int { return 3 }, Now: time.Now,
	}))
	if n := testutil.CollectAndCount(m); n != 2 {
		t.Errorf("%d metrics, want the two of this process", n)
	}
}

func TestCollect_ShowsObjects(t *testing.T) {
	m := New()
	if n := testutil.CollectAndCount(m); n != 0 {
		t.Errorf("without a source there are %d metrics", n)
	}
	attach(t, m, newObjects())
	const want = `
# HELP slipway_cluster_certificate_expiry_timestamp_seconds Time when the first certificate of a cluster expires.
# TYPE slipway_cluster_certificate_expiry_timestamp_seconds gauge
slipway_cluster_certificate_expiry_timestamp_seconds{name="prod",namespace="default"} 1.795953600e+09
# HELP slipway_cluster_condition The current status of a condition of a cluster; the value is 1.
# TYPE slipway_cluster_condition gauge
slipway_cluster_condition{condition="Ready",name="prod",namespace="default",status="True"} 1
slipway_cluster_condition{condition="Stalled",name="test",namespace="default",status="True"} 1
# HELP slipway_cluster_last_backup_timestamp_seconds Time of the latest automatic snapshot of etcd.
# TYPE slipway_cluster_last_backup_timestamp_seconds gauge
slipway_cluster_last_backup_timestamp_seconds{name="prod",namespace="default"} 1.795953600e+09
# HELP slipway_clusters Number of Cluster objects.
# TYPE slipway_clusters gauge
slipway_clusters 2
# HELP slipway_operation_queue_age_seconds Time since the creation of the oldest operation that has not begun.
# TYPE slipway_operation_queue_age_seconds gauge
slipway_operation_queue_age_seconds 120
# HELP slipway_operation_slots Number of operations that can run, and that run, in this process.
# TYPE slipway_operation_slots gauge
slipway_operation_slots{state="all"} 10
slipway_operation_slots{state="running"} 3
# HELP slipway_operations Number of Operation objects.
# TYPE slipway_operations gauge
slipway_operations{kind="apply",state="Pending"} 2
slipway_operations{kind="create",state="Running"} 1
slipway_operations{kind="other",state="Failed"} 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(m)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func TestCollect_ReportsErrors(t *testing.T) {
	m := New()
	broken := newObjects()
	broken.err = errors.New("the cache has stopped")
	attach(t, m, broken)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "the cache has stopped") {
		t.Errorf("got %v", err)
	}
}

func TestObserveEnd_MeasuresEachEndOnce(t *testing.T) {
	m := New()
	began := metav1.NewTime(noon.Add(-90 * time.Second))
	running, ended, withdrawn := new(v1alpha1.Operation), new(v1alpha1.Operation), new(v1alpha1.Operation)
	running.Spec.Kind, running.Status.State = "create", v1alpha1.OperationRunning
	ended.Spec.Kind, ended.Status.State, ended.Status.StartTime, ended.Status.EndTime = "create", v1alpha1.OperationSucceeded, &began, &noon
	withdrawn.Status.State, withdrawn.Status.EndTime = v1alpha1.OperationSuperseded, &noon
	m.observeEnd(running, ended)
	m.observeEnd(ended, ended)
	m.observeEnd(running, withdrawn)
	m.observeEnd(running, running)
	failed := new(v1alpha1.Operation)
	failed.Spec.Kind, failed.Status.State = "create", v1alpha1.OperationFailed
	m.observeEnd(running, failed)
	const want = `
# HELP slipway_operation_duration_seconds Time from the start to the end of an operation; 0 if it ended before its start.
# TYPE slipway_operation_duration_seconds histogram
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="10"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="30"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="60"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="120"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="300"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="600"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="1200"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="1800"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="3600"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="7200"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="14400"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Failed",le="+Inf"} 1
slipway_operation_duration_seconds_sum{kind="create",state="Failed"} 0
slipway_operation_duration_seconds_count{kind="create",state="Failed"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="10"} 0
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="30"} 0
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="60"} 0
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="120"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="300"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="600"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="1200"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="1800"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="3600"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="7200"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="14400"} 1
slipway_operation_duration_seconds_bucket{kind="create",state="Succeeded",le="+Inf"} 1
slipway_operation_duration_seconds_sum{kind="create",state="Succeeded"} 90
slipway_operation_duration_seconds_count{kind="create",state="Succeeded"} 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestMonitoring_UsesExistingMetrics checks the names of the metrics and conditions in the alert rules and the dashboard.
func TestMonitoring_UsesExistingMetrics(t *testing.T) {
	described := make(chan *prometheus.Desc, 100)
	New().Describe(described)
	close(described)
	known := []string{ // of the server and of its libraries
		"slipway_server_database_bytes", "slipway_server_database_quota_bytes",
	}
	name := regexp.MustCompile(`fqName: "([a-z_]+)"`)
	for d := range described {
		known = append(known, name.FindStringSubmatch(d.String())[1])
	}
	used := regexp.MustCompile(`\bslipway_[a-z_]+`)
	condition := regexp.MustCompile(`condition=~?\\?"([A-Za-z|]+)`)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../../deploy/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		names := used.FindAllString(string(text), -1)
		if len(names) < 5 {
			t.Errorf("%s has only the metrics %v", file, names)
		}
		for _, n := range names {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				n = strings.TrimSuffix(n, suffix)
			}
			if !slices.Contains(known, n) {
				t.Errorf("%s has the metric %s, which does not exist", file, n)
			}
		}
		for _, found := range condition.FindAllStringSubmatch(string(text), -1) {
			for kind := range strings.SplitSeq(found[1], "|") {
				if !slices.Contains(conditions, kind) {
					t.Errorf("%s has the condition %s, which has no metric", file, kind)
				}
			}
		}
	}
}
