package health

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/clusterstatus"
)

// fieldManager owns the fields of a status that the prober sets.
const fieldManager = "slipway-health"

// writeInterval is the shortest time between two writes of a status.
const writeInterval = 2 * time.Second

// publish writes the status of a cluster if it has changed, or was not written for a while. It returns the time
// until the status may change without a new observation, or until it can be written; 0 if neither is expected.
func (p *Prober) publish(ctx context.Context, is *cluster, c *v1alpha1.Cluster) (next time.Duration, err error) {
	is.writing.Lock()
	defer is.writing.Unlock()
	now := p.Now()
	wanted, next := p.evaluate(is, c, now)
	if isNew(c) && len(is.written.Conditions) == 0 && meta.IsStatusConditionFalse(wanted.Conditions, conditionAttention) {
		return next, nil // the first write is about the creation of the cluster, or about what a person has to do
	}
	same := equality.Semantic.DeepEqual(withoutTimes(wanted), withoutTimes(is.written))
	if same && (is.writtenAt.IsZero() || now.Sub(is.writtenAt) < p.Times.Refresh) {
		if is.writtenAt.IsZero() {
			is.writtenAt = now // another process wrote it: a restart writes nothing
		}
		return next, nil
	}
	if wait := writeInterval - now.Sub(is.writtenAt); wait > 0 {
		return wait, nil
	}
	if err := p.write(ctx, c, wanted); err != nil {
		return next, err
	}
	is.written, is.writtenAt = wanted, now
	return next, nil
}

// withoutTimes returns a copy without the times of the observations, and without the causes of failed probes, which
// may differ each time.
func withoutTimes(s shown) shown {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if s.Conditions[i].Status == metav1.ConditionUnknown {
			s.Conditions[i].Message = ""
		}
	}
	s.Summary = *s.Summary.DeepCopy()
	if s.Summary.API != nil {
		s.Summary.API.ObservedTime = nil
	}
	if s.Summary.Etcd != nil {
		s.Summary.Etcd.ObservedTime = metav1.Time{}
	}
	if s.Summary.NextCertificate != nil {
		s.Summary.NextCertificate.ObservedTime = metav1.Time{}
	}
	if s.Summary.LastBackup != nil {
		s.Summary.LastBackup.ObservedTime = metav1.Time{}
	}
	if s.Summary.LastRestoreTest != nil {
		s.Summary.LastRestoreTest.ObservedTime = metav1.Time{}
	}
	if s.Summary.NewerVersion != nil {
		s.Summary.NewerVersion.ObservedTime = metav1.Time{}
	}
	return s
}

// write writes the status. Other fields belong to others.
func (p *Prober) write(ctx context.Context, c *v1alpha1.Cluster, is shown) error {
	wanted := map[string]any{"conditions": is.Conditions}
	if is.Summary != (v1alpha1.ClusterSummary{}) {
		wanted["summary"] = is.Summary // server-side apply makes an empty one null
	}
	return clusterstatus.Apply(ctx, p.Client, c, fieldManager, wanted)
}
