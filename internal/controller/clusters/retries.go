package clusters

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/maintenance"
	"slipway.dev/slipway/internal/controller/operations"
)

// The time until an automatic attempt, if the policy has none, and at most.
const (
	defaultBackoff = time.Minute
	maxBackoff     = 10 * time.Minute
)

// lastingReasons end operations that need a decision of a user, or another operation.
var lastingReasons = []string{
	executor.ReasonPlanChanged, executor.ReasonRepairRefused, executor.ReasonClusterGone, executor.ReasonOtherCluster,
	executor.ReasonDeletion,
}

// nextAttempt returns the time from which a failed operation may be repeated automatically, false if it may not.
func nextAttempt(policy *v1alpha1.RetryPolicy, o *v1alpha1.Operation) (time.Time, bool) {
	s := &o.Status
	switch {
	case policy == nil, s.State != v1alpha1.OperationFailed, s.EndTime == nil, o.Spec.Cancelled,
		s.ErrorCode == v1alpha1.ErrorUserInput, s.ErrorCode == v1alpha1.ErrorCredentials, slices.Contains(lastingReasons, s.Reason):
		return time.Time{}, false
	}
	done := countAttempts(o)
	if done >= policy.Attempts {
		return time.Time{}, false
	}
	wait := defaultBackoff
	if policy.Backoff != nil {
		wait = policy.Backoff.Duration
	}
	for range done {
		wait = min(2*wait, maxBackoff)
	}
	return s.EndTime.Add(min(wait, maxBackoff)), true
}

// countAttempts returns the number of automatic attempts of an operation.
func countAttempts(o *v1alpha1.Operation) int32 {
	if is := o.Status.AutomaticRetry; is != nil {
		return is.Attempts
	}
	return 0
}

// repeatFailed begins another attempt of a failed operation if the policy of the cluster allows it and its time has
// come; otherwise the status of the operation shows the time.
func (p *pass) repeatFailed(ctx context.Context, o *v1alpha1.Operation) error {
	at, ok := nextAttempt(p.cluster.Spec.RetryPolicy, o)
	if !ok {
		return nil
	}
	now, windows := p.Lifecycle.Now(), p.cluster.Spec.Maintenance.Windows
	if at.Before(now) {
		at = now
	}
	if at, ok = maintenance.NextOpen(windows, at); !ok {
		return nil
	}
	if wait := at.Sub(now); wait > 0 {
		p.requeueAfter(min(wait, maxBackoff))
		return p.updateOperation(ctx, o, func(s *v1alpha1.OperationStatus) {
			next := metav1.NewTime(at.Truncate(time.Second))
			if is := s.AutomaticRetry; is == nil || is.NextTime == nil || !is.NextTime.Equal(&next) {
				s.AutomaticRetry = &v1alpha1.AutomaticRetryStatus{Attempts: countAttempts(o), NextTime: &next}
			}
		})
	}
	return p.updateOperation(ctx, o, func(s *v1alpha1.OperationStatus) {
		s.AutomaticRetry = &v1alpha1.AutomaticRetryStatus{Attempts: countAttempts(o) + 1}
		operations.Reopen(s)
	})
}

// repeatLatest is repeatFailed for the latest operation of the cluster, unless it belongs to another intent. The
// attempts of all other operations end. Automatic operations do not end attempts.
func (p *pass) repeatLatest(ctx context.Context, digest string) error {
	var latest *v1alpha1.Operation
	for i := range p.operations {
		if o := &p.operations[i]; !isAutomatic(o) {
			latest = o
		}
	}
	if latest != nil && latest.Spec.IntentDigest != "" && latest.Spec.IntentDigest != digest {
		latest = nil
	}
	if err := p.endAttempts(ctx, latest); err != nil || latest == nil {
		return err
	}
	return p.repeatFailed(ctx, latest)
}

// endAttempts ends the automatic attempts of all operations that have a next one, except one that may still be
// repeated, nil for none.
func (p *pass) endAttempts(ctx context.Context, except *v1alpha1.Operation) error {
	for i := range p.operations {
		o := &p.operations[i]
		if is := o.Status.AutomaticRetry; is == nil || is.NextTime == nil {
			continue
		}
		if _, ok := nextAttempt(p.cluster.Spec.RetryPolicy, o); ok && o == except {
			continue
		}
		err := p.updateOperation(ctx, o, func(s *v1alpha1.OperationStatus) {
			s.AutomaticRetry = &v1alpha1.AutomaticRetryStatus{Attempts: countAttempts(o)}
			if o.Spec.Cancelled && s.State == v1alpha1.OperationFailed {
				executor.Cancelled.SetStatus(s, p.Lifecycle.Now())
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// updateOperation changes the status of an operation, unless another process has changed it.
func (p *pass) updateOperation(ctx context.Context, o *v1alpha1.Operation, change func(*v1alpha1.OperationStatus)) error {
	was := o.DeepCopy()
	change(&o.Status)
	err := p.Client.Status().Patch(ctx, o, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}

// describeNextAttempt returns when a failed operation is repeated automatically, "" if it is not.
func (p *pass) describeNextAttempt(o *v1alpha1.Operation) string {
	is := o.Status.AutomaticRetry
	if is == nil || is.NextTime == nil || p.cluster.Spec.RetryPolicy == nil {
		return ""
	}
	return fmt.Sprintf("automatic attempt %d of %d begins at %s", is.Attempts+1, p.cluster.Spec.RetryPolicy.Attempts,
		maintenance.Describe(p.cluster.Spec.Maintenance.Windows, is.NextTime.Time))
}

// requeueAfter requests another pass after a time, or earlier if one is requested already.
func (p *pass) requeueAfter(after time.Duration) { p.again = min(cmp.Or(p.again, after), after) }
