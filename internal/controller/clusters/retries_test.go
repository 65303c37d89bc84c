package clusters

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
)

func TestNextAttempt_FollowsPolicy(t *testing.T) {
	end := metav1.NewTime(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	policy := func(attempts int32, backoff time.Duration) *v1alpha1.RetryPolicy {
		return &v1alpha1.RetryPolicy{Attempts: attempts, Backoff: &metav1.Duration{Duration: backoff}}
	}
	for _, tc := range []struct {
		name, reason string
		policy       *v1alpha1.RetryPolicy
		change       func(*v1alpha1.Operation)
		want         time.Duration // after the failure, 0 for no attempt
	}{
		{"no policy", "a failure waits for a user", nil, nil, 0},
		{"first", "the first wait", policy(3, time.Second), nil, time.Second},
		{"default", "a minute is the default", &v1alpha1.RetryPolicy{Attempts: 1}, nil, time.Minute},
		{"second", "each wait is twice as long", policy(3, time.Second), attempts(1), 2 * time.Second},
		{"third", "each wait is twice as long", policy(3, time.Second), attempts(2), 4 * time.Second},
		{"longest", "a wait has a limit", policy(10, time.Minute), attempts(9), 10 * time.Minute},
		{"longest at once", "a wait has a limit", policy(10, 10*time.Minute), attempts(1), 10 * time.Minute},
		{"last", "all attempts were used", policy(3, time.Second), attempts(3), 0},
		{"fewer attempts now", "the policy has changed", policy(1, time.Second), attempts(3), 0},
		{"user input", "another attempt fails too", policy(3, time.Second), code(v1alpha1.ErrorUserInput), 0},
		{"credentials", "another attempt fails too", policy(3, time.Second), code(v1alpha1.ErrorCredentials), 0},
		{"unreachable", "the host can come back", policy(3, time.Second), code(v1alpha1.ErrorUnreachable), time.Second},
		{"capacity", "room can be made", policy(3, time.Second), code(v1alpha1.ErrorCapacity), time.Second},
		{"conflict", "the other program can end", policy(3, time.Second), code(v1alpha1.ErrorConflict), time.Second},
		{
			"plan changed", "a new plan needs an approval", policy(3, time.Second),
			func(o *v1alpha1.Operation) { o.Status.Reason = executor.ReasonPlanChanged }, 0,
		},
		{"cancelled", "a user has ended it", policy(3, time.Second), func(o *v1alpha1.Operation) { o.Spec.Cancelled = true }, 0},
		{
			"succeeded", "there is nothing to do", policy(3, time.Second),
			func(o *v1alpha1.Operation) { o.Status.State = v1alpha1.OperationSucceeded }, 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := new(v1alpha1.Operation)
			o.Status.State, o.Status.EndTime, o.Status.ErrorCode = v1alpha1.OperationFailed, &end, v1alpha1.ErrorInternal
			if tc.change != nil {
				tc.change(o)
			}
			at, ok := nextAttempt(tc.policy, o)
			if ok != (tc.want != 0) || ok && at.Sub(end.Time) != tc.want {
				t.Errorf("%s: %s, %t, want %s", tc.reason, at.Sub(end.Time), ok, tc.want)
			}
		})
	}
}

// attempts sets the number of automatic attempts.
func attempts(n int32) func(*v1alpha1.Operation) {
	return func(o *v1alpha1.Operation) { o.Status.AutomaticRetry = &v1alpha1.AutomaticRetryStatus{Attempts: n} }
}

// code sets the error code.
func code(is v1alpha1.ErrorCode) func(*v1alpha1.Operation) {
	return func(o *v1alpha1.Operation) { o.Status.ErrorCode = is }
}
