package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// StatusName is the name of the ConfigMap in the system namespace that has the conditions of
// each server, as JSON below its StatusKey.
const StatusName = "slipway-server"

// StatusKey returns the key of the server on this machine in the ConfigMap: the host name. Several
// servers on one etcd have one key each.
func StatusKey() string {
	name, err := os.Hostname()
	if err != nil || len(validation.IsConfigMapKey(name)) > 0 {
		return "server"
	}
	return name
}

// The conditions of a server. True is the state that needs attention.
const (
	// DatabaseSpaceLow is true when the database uses most of its quota.
	DatabaseSpaceLow = "DatabaseSpaceLow"
	// ControllersHeld is true while the controllers are on hold after a restore.
	ControllersHeld = "ControllersHeld"
	// BackupsFailing is true when the latest scheduled backup has failed.
	BackupsFailing = "BackupsFailing"
)

// ReadConditions returns the saved conditions of the server on this machine.
func ReadConditions(ctx context.Context, client kubernetes.Interface) ([]metav1.Condition, error) {
	object, err := client.CoreV1().ConfigMaps(SystemNamespace).Get(ctx, StatusName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	text := object.Data[StatusKey()]
	if text == "" {
		return nil, nil
	}
	var out []metav1.Condition
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("reading the conditions in ConfigMap %s: %w", StatusName, err)
	}
	return out, nil
}

// A serverMetrics has the metrics of the server.
type serverMetrics struct{ bytes, inUse, quota *metrics.Gauge }

// newServerMetrics registers the metrics. A process has them once, as the registry does.
func newServerMetrics() serverMetrics {
	gauge := func(name, help string) *metrics.Gauge {
		return metrics.NewGauge(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA})
	}
	m := serverMetrics{
		gauge("slipway_server_database_bytes", "Size of the database of the management server."),
		gauge("slipway_server_database_in_use_bytes", "Bytes of the database that have data."),
		gauge("slipway_server_database_quota_bytes", "Maximum size of the database."),
	}
	for _, g := range []*metrics.Gauge{m.bytes, m.inUse, m.quota} {
		_ = legacyregistry.Register(g) // a second server of a test binary keeps the first one's
	}
	return m
}

// reportUsage reports the size of the database as metrics, as a condition, and in the log when
// it crosses a limit.
func (s *Server) reportUsage(ctx context.Context, u databaseUsage) {
	s.metrics.bytes.Set(float64(u.Bytes))
	s.metrics.inUse.Set(float64(u.InUse))
	s.metrics.quota.Set(float64(u.Quota))
	before := s.guard.usage.Swap(&u)
	level := usageLevel(u)
	if before != nil && usageLevel(*before) == level {
		return
	}
	condition := metav1.Condition{Type: DatabaseSpaceLow, Status: metav1.ConditionFalse, Reason: level, Message: u.String()}
	switch level {
	case "Full", "AlmostFull":
		condition.Status = metav1.ConditionTrue
		s.config.Log.Warn("the database is almost full; delete objects or raise --etcd-quota", "usage", u.String(), "full", u.Full)
	case "Growing":
		condition.Status = metav1.ConditionTrue
		s.config.Log.Info("the database uses most of its quota", "usage", u.String())
	}
	s.SetCondition(ctx, condition)
}

// usageLevel returns the reason of the condition for a usage.
func usageLevel(u databaseUsage) string {
	switch {
	case u.Full:
		return "Full"
	case u.usedPercent() >= warnPart:
		return "AlmostFull"
	case u.usedPercent() >= noticePart:
		return "Growing"
	}
	return "Enough"
}

// SetCondition saves a condition of the server. A failure is logged: the condition is saved
// again when it changes.
func (s *Server) SetCondition(ctx context.Context, c metav1.Condition) {
	s.conditions.Lock()
	defer s.conditions.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	c.LastTransitionTime = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	meta.SetStatusCondition(&s.conditions.list, c)
	if err := s.saveConditions(ctx); err != nil && ctx.Err() == nil {
		s.config.Log.Warn("the condition of the server could not be saved", "condition", c.Type, "error", err)
	}
}

// saveConditions writes the conditions to the ConfigMap.
func (s *Server) saveConditions(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	text, err := json.Marshal(s.conditions.list)
	if err != nil {
		return err
	}
	key := StatusKey()
	object := corev1apply.ConfigMap(StatusName, SystemNamespace).WithData(map[string]string{key: string(text)})
	// A separate manager, because an apply removes the other keys of its manager.
	manager := fieldManager + "-" + key
	_, err = client.CoreV1().ConfigMaps(SystemNamespace).Apply(ctx, object, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

// loadConditions takes over the condition of the latest scheduled backup, which the server cannot
// find out again. The others are set at each start.
func (s *Server) loadConditions(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	list, err := ReadConditions(ctx, client)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if last := meta.FindStatusCondition(list, BackupsFailing); last != nil {
		s.conditions.Lock()
		defer s.conditions.Unlock()
		meta.SetStatusCondition(&s.conditions.list, *last)
	}
	return nil
}
