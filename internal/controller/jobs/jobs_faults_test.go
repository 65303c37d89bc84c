package jobs

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"slipway.dev/slipway/api/v1alpha1"
)

// intercept counts the requests of the runner, and injects faults.
func (w *world) intercept() interceptor.Funcs {
	do := func(request func() error) error {
		w.requests.Add(1)
		var before, after error
		if w.fault != nil {
			before, after = w.fault()
		}
		if before != nil {
			return before
		}
		return errors.Join(request(), after)
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			return do(func() error { return c.Get(ctx, key, o, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return do(func() error { return c.List(ctx, list, options...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return do(func() error { return c.Create(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return do(func() error { return c.Patch(ctx, o, patch, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return do(func() error { return c.Delete(ctx, o, options...) })
		},
	}
}

// TestRun_MakesFewRequests has a Job that runs.
func TestRun_MakesFewRequests(t *testing.T) {
	run(t, func(w *world) {
		w.start()
		w.addPod(w.job(), corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}})
		before := w.requests.Load()
		w.pass(time.Minute)
		if n := w.requests.Load() - before; n == 0 || n > 30 {
			w.t.Errorf("%d requests in a minute, want 1 to 30", n)
		}
	})
}

// TestRun_OutlastsFaults refuses and loses requests of the runner, while Jobs are deleted and suspended by hand. There is
// never more than one Job that runs, and no Job that runs at the end.
func TestRun_OutlastsFaults(t *testing.T) {
	for seed := range uint64(20) {
		run(t, func(w *world) {
			random := rand.New(rand.NewPCG(seed, seed))
			w.fault = func() (before, after error) {
				switch random.IntN(8) {
				case 0:
					return apierrors.NewInternalError(errors.New("injected")), nil
				case 1:
					return nil, apierrors.NewTimeoutError("injected", 1)
				}
				return nil, nil
			}
			r := w.start()
			for attempt := 0; !w.hasSucceeded(); attempt++ {
				if attempt > 40 {
					w.t.Fatalf("seed %d: the operation has not ended: %v", seed, r.error())
				}
				if r.hasEnded() { // as the pool does
					r = w.start()
				}
				running := w.runningJobs()
				switch {
				case len(running) > 1:
					w.t.Fatalf("seed %d: %d Jobs run", seed, len(running))
				case len(running) == 0:
				case attempt < 4 && attempt%2 == 0:
					w.must(w.api.Delete(w.t.Context(), &running[0]))
				case attempt < 4:
					yes := true
					running[0].Spec.Suspend = &yes
					w.must(w.api.Update(w.t.Context(), &running[0]))
				default:
					w.succeed()
					w.end(&running[0], batchv1.JobComplete, "")
				}
				w.pass(20 * time.Second)
			}
			for attempt := 0; !r.hasEnded() || r.error() != nil; attempt++ {
				if attempt > 40 {
					w.t.Fatalf("seed %d: the run does not end: %v", seed, r.error())
				}
				if r.hasEnded() {
					r = w.start()
				}
				w.pass(20 * time.Second)
			}
			if left := w.runningJobs(); len(left) > 0 {
				w.t.Errorf("seed %d: %d Jobs still run", seed, len(left))
			}
		})
	}
}

// hasSucceeded reports whether the operation has succeeded.
func (w *world) hasSucceeded() bool {
	return w.operation().Status.State == v1alpha1.OperationSucceeded
}

// runningJobs returns the Jobs that run.
func (w *world) runningJobs() (out []batchv1.Job) {
	for _, j := range w.jobs() {
		if !hasEnded(&j) && !isSuspended(&j) {
			out = append(out, j)
		}
	}
	return out
}
