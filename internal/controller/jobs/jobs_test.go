package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/hostguard"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
)

const namespace = "slipway-system"

// A world has a fake API, and one operation.
type world struct {
	t       *testing.T
	api     client.WithWatch
	backend records.Backend
	key     types.NamespacedName
	runner  *Runner
	// requests is the number of requests of the runner, and fault, if not nil, returns the error of a request: instead of
	// the request, or after it.
	requests atomic.Int32
	fault    func() (before, after error)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	group := schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	scheme.AddKnownTypes(group, &v1alpha1.Cluster{}, &v1alpha1.ClusterList{}, &v1alpha1.Operation{}, &v1alpha1.OperationList{})
	metav1.AddToGroupVersion(scheme, group)
	if err := clientscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod", UID: "uid-prod"}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "controllers"}}
	deployment.Spec.Template.Spec = corev1.PodSpec{
		ServiceAccountName: "controllers", Affinity: &corev1.Affinity{},
		Volumes: []corev1.Volume{{Name: "data"}},
		Containers: []corev1.Container{{
			Name: "slipwayd", Image: "slipway.dev/slipwayd:v1", ReadinessProbe: &corev1.Probe{},
			Ports: []corev1.ContainerPort{{ContainerPort: 9443}},
			Args:  []string{"operator", "--data-dir", "/data", "--webhook-listen", ":9443", "--api-url", "https://api"},
		}},
	}
	w := &world{t: t, backend: recordstest.NewMemory(t).Open()}
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, deployment).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
			return []string{string(o.(*corev1.Event).InvolvedObject.UID)} //nolint:forcetypeassert // the index has only events
		}).Build()
	spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod", UID: "uid-prod"}, Kind: "apply"}
	o, err := w.backend.Operations().Create(t.Context(), time.Now(), spec, new(plan.Plan))
	if err != nil {
		t.Fatal(err)
	}
	w.key = types.NamespacedName{Namespace: "team", Name: o.Name}
	o.Namespace, o.UID = "team", "0123456789abcdef"
	w.must(w.backend.Operations().Save(t.Context(), o))
	w.change(func(s *v1alpha1.OperationStatus) {
		at := metav1.NewTime(time.Now().Add(time.Hour))
		s.Deadline, s.State = &at, v1alpha1.OperationPlanning
	})
	open := func(string) (records.Backend, error) { return w.backend, nil }
	w.runner = &Runner{
		Client:    interceptor.NewClient(w.api, w.intercept()),
		Namespace: namespace, Deployment: "controllers", Container: "slipwayd", OpenRecords: open,
		Guard: &hostguard.Guard{Claims: hostclaims.NewIndex(time.Now), OpenRecords: open}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	w.runner.Guard.Claims.Set(hostclaims.New(cluster))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// operation returns the operation.
func (w *world) operation() *v1alpha1.Operation {
	w.t.Helper()
	o, err := w.backend.Operations().Load(w.t.Context(), w.key.Name)
	w.must(err)
	return o
}

// change changes the status of the operation, as the process of a Job does.
func (w *world) change(change func(*v1alpha1.OperationStatus)) {
	w.t.Helper()
	o := w.operation()
	change(&o.Status)
	w.must(w.backend.Operations().Save(w.t.Context(), o))
}

// succeed saves the success of the operation.
func (w *world) succeed() {
	w.t.Helper()
	w.change(func(s *v1alpha1.OperationStatus) { s.State = v1alpha1.OperationSucceeded })
}

// jobs returns the Jobs, oldest first.
func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	w.must(w.api.List(w.t.Context(), &list))
	slices.SortFunc(list.Items, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// job returns the only Job.
func (w *world) job() *batchv1.Job {
	w.t.Helper()
	list := w.jobs()
	if len(list) != 1 {
		w.t.Fatalf("there are %d Jobs, want 1", len(list))
	}
	return &list[0]
}

// end ends a Job as its controller does.
func (w *world) end(j *batchv1.Job, kind batchv1.JobConditionType, reason string) {
	w.t.Helper()
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason})
	w.must(w.api.Status().Update(w.t.Context(), j))
}

// addPod adds a Pod of a Job.
func (w *world) addPod(j *batchv1.Job, status corev1.PodStatus) {
	w.t.Helper()
	w.must(w.api.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: j.Name + "-x", UID: "pod", Labels: map[string]string{batchv1.ControllerUidLabel: string(j.UID)},
		},
		Spec: corev1.PodSpec{NodeName: "n1"}, Status: status,
	}))
}

// A startedRun is a call of Run.
type startedRun struct {
	result   atomic.Pointer[runResult] // nil while it runs
	stop     context.CancelCauseFunc
	withdraw context.CancelCauseFunc
}

type runResult struct{ err error }

func (r *startedRun) hasEnded() bool { return r.result.Load() != nil }

// error returns the error of a run that has ended.
func (r *startedRun) error() error {
	if is := r.result.Load(); is != nil {
		return is.err
	}
	return nil
}

// start calls Run, and waits until it has started a Job.
func (w *world) start() *startedRun {
	w.t.Helper()
	ctx, stop := context.WithCancelCause(w.t.Context())
	withdrawn, withdraw := context.WithCancelCause(ctx)
	r := &startedRun{stop: stop, withdraw: withdraw}
	go func() { r.result.Store(&runResult{w.runner.Run(ctx, withdrawn, w.key)}) }() // ends with the test
	w.pass(interval + time.Second)
	return r
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// run runs a test in a bubble with a fake clock.
func run(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newWorld(t)) })
}

func TestRun_StartsJobWithRights(t *testing.T) {
	run(t, func(w *world) {
		r := w.start()
		j := w.job()
		c := j.Spec.Template.Spec.Containers[0]
		want := []string{"run-operation", "--namespace", "team", "--operation", w.key.Name, "--data-dir", "/data", "--api-url", "https://api"}
		if !slices.Equal(c.Args, want) {
			t.Errorf("the arguments are %q, want %q", c.Args, want)
		}
		spec := j.Spec.Template.Spec
		if c.Image != "slipway.dev/slipwayd:v1" || c.ReadinessProbe != nil || len(c.Ports) > 0 || len(spec.Volumes) != 1 ||
			spec.Affinity != nil || spec.RestartPolicy != corev1.RestartPolicyNever || spec.ServiceAccountName != j.Name {
			t.Errorf("the Pod is %+v", spec)
		}
		if *j.Spec.BackoffLimit != 0 || *j.Spec.Suspend || *j.Spec.TTLSecondsAfterFinished != keptSeconds ||
			*j.Spec.PodReplacementPolicy != batchv1.Failed || *j.Spec.ActiveDeadlineSeconds < 3600 || *j.Spec.ActiveDeadlineSeconds > 3720 {
			t.Errorf("the Job is %+v", j.Spec)
		}
		name := types.NamespacedName{Namespace: namespace, Name: j.Name}
		w.must(w.api.Get(t.Context(), name, new(corev1.ServiceAccount)))
		name.Namespace = "team"
		role, binding := new(rbacv1.Role), new(rbacv1.RoleBinding)
		w.must(errors.Join(w.api.Get(t.Context(), name, role), w.api.Get(t.Context(), name, binding)))
		if s := binding.Subjects; len(s) != 1 || s[0].Name != j.Name || s[0].Namespace != namespace || binding.RoleRef.Name != j.Name {
			t.Errorf("the binding is %+v", binding)
		}
		w.succeed()
		w.end(j, batchv1.JobComplete, "")
		w.pass(interval + time.Second)
		if !r.hasEnded() || r.error() != nil {
			t.Errorf("after the success: ended %t, %v", r.hasEnded(), r.error())
		}
	})
}

// TestRun_EndsWhenOperationWaits has a plan that needs an approval.
func TestRun_EndsWhenOperationWaits(t *testing.T) {
	run(t, func(w *world) {
		r := w.start()
		w.change(func(s *v1alpha1.OperationStatus) { s.State = v1alpha1.OperationAwaitingApproval })
		w.end(w.job(), batchv1.JobComplete, "")
		w.pass(interval + time.Second)
		if !r.hasEnded() || r.error() != nil {
			t.Errorf("ended %t, %v", r.hasEnded(), r.error())
		}
		w.change(func(s *v1alpha1.OperationStatus) { s.State = v1alpha1.OperationPlanning })
		w.start()
		if n := len(w.jobs()); n != 2 {
			t.Errorf("after the approval there are %d Jobs, want 2", n)
		}
	})
}

// TestRun_FindsJobAfterRestart stops the controllers, which does not stop the Job.
func TestRun_FindsJobAfterRestart(t *testing.T) {
	run(t, func(w *world) {
		r := w.start()
		r.stop(executor.ErrStopped)
		w.pass(time.Second)
		if !r.hasEnded() || r.error() != nil {
			t.Fatalf("after the stop: ended %t, %v", r.hasEnded(), r.error())
		}
		again := w.start()
		j := w.job()
		w.succeed()
		w.end(j, batchv1.JobComplete, "")
		w.pass(interval + time.Second)
		if !again.hasEnded() || again.error() != nil {
			t.Errorf("after the success: ended %t, %v", again.hasEnded(), again.error())
		}
	})
}

// TestFollowJob_KeepsJobAtStop stops the controllers: the end of the planning comes with it, and withdraws nothing.
func TestFollowJob_KeepsJobAtStop(t *testing.T) {
	run(t, func(w *world) {
		w.start().stop(executor.ErrStopped)
		w.pass(time.Second)
		name := w.job().Name
		for range 30 { // both contexts have ended, so that each can be seen first
			ctx, stop := context.WithCancelCause(w.t.Context())
			withdrawn, withdraw := context.WithCancelCause(ctx)
			stop(executor.ErrStopped)
			a := &attempt{Runner: w.runner, backend: w.backend, operation: w.operation()}
			if err := a.followJob(ctx, withdrawn); err != nil {
				t.Error(err)
			}
			withdraw(nil)
		}
		if is := w.job().Name; is != name {
			t.Errorf("Job %s was replaced by %s", name, is)
		}
	})
}

// TestRun_CompletesSuspendedJob has a Job whose rights are missing: its process was killed after it had created the Job.
func TestRun_CompletesSuspendedJob(t *testing.T) {
	run(t, func(w *world) {
		r := w.start()
		j := w.job()
		r.stop(executor.ErrStopped)
		w.pass(time.Second)
		yes := true
		j.Spec.Suspend = &yes
		w.must(errors.Join(w.api.Update(t.Context(), j), w.api.Delete(t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: j.Name},
		})))
		w.start()
		if *w.job().Spec.Suspend {
			t.Error("the Job does not run")
		}
		w.must(w.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: j.Name}, new(corev1.ServiceAccount)))
	})
}

// TestRun_FailsBeforeThePlan has a process that ends before it has saved anything: the state is one that a process also
// saves.
func TestRun_FailsBeforeThePlan(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Operation){
		"pending": func(o *v1alpha1.Operation) { o.Status.State = v1alpha1.OperationPending },
		"approved": func(o *v1alpha1.Operation) {
			o.Status.State, o.Spec.ApprovedPlan = v1alpha1.OperationAwaitingApproval, "sha256:0"
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				o := w.operation()
				change(o)
				w.must(w.backend.Operations().Save(w.t.Context(), o))
				r := w.start()
				w.end(w.job(), batchv1.JobFailed, "BackoffLimitExceeded")
				w.pass(10 * time.Second)
				if !r.hasEnded() || r.error() == nil || !strings.Contains(r.error().Error(), "BackoffLimitExceeded") {
					t.Errorf("ended %t, %v", r.hasEnded(), r.error())
				}
			})
		})
	}
}

// TestRun_IsNotWithdrawnAfterBegin has a process that begins the operation before it is stopped.
func TestRun_IsNotWithdrawnAfterBegin(t *testing.T) {
	run(t, func(w *world) {
		r := w.start()
		w.change(func(s *v1alpha1.OperationStatus) {
			at := metav1.Now()
			s.State, s.StartTime = v1alpha1.OperationRunning, &at
		})
		r.withdraw(executor.Superseded)
		w.pass(10 * time.Second)
		if o := w.operation(); !r.hasEnded() || r.error() == nil || o.Status.State != v1alpha1.OperationRunning {
			t.Errorf("ended %t with %v; the operation is %s", r.hasEnded(), r.error(), o.Status.State)
		}
	})
}

// runningJob reports whether a Job has not ended.
func runningJob(w *world) bool {
	return slices.ContainsFunc(w.jobs(), func(j batchv1.Job) bool { return !hasEnded(&j) })
}

// TestRun_EndsAtDeadline has a Job whose process does not end.
func TestRun_EndsAtDeadline(t *testing.T) {
	run(t, func(w *world) {
		r := w.start()
		w.addPod(w.job(), corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}})
		w.pass(time.Hour + 10*time.Minute)
		o := w.operation()
		if !r.hasEnded() || r.error() != nil || o.Status.State != v1alpha1.OperationFailed || o.Status.Reason != executor.ReasonDeadline {
			t.Errorf("ended %t with %v; the operation is %s %s", r.hasEnded(), r.error(), o.Status.State, o.Status.Reason)
		}
		if len(w.jobs()) > 0 {
			t.Error("the Job still exists")
		}
	})
}

// TestRun_IsWithdrawn ends an operation that has not begun.
func TestRun_IsWithdrawn(t *testing.T) {
	run(t, func(w *world) {
		r := w.start()
		r.withdraw(executor.Superseded)
		w.pass(10 * time.Second)
		if o := w.operation(); !r.hasEnded() || r.error() != nil || o.Status.State != v1alpha1.OperationSuperseded || len(w.jobs()) > 0 {
			t.Errorf("ended %t with %v; the operation is %s; %d Jobs", r.hasEnded(), r.error(), o.Status.State, len(w.jobs()))
		}
	})
}

// TestRun_RemovesJobOfDeletedOperation saves nothing.
func TestRun_RemovesJobOfDeletedOperation(t *testing.T) {
	run(t, func(w *world) {
		r := w.start()
		r.stop(executor.ErrDeleted)
		w.pass(10 * time.Second)
		if o := w.operation(); !r.hasEnded() || r.error() != nil || o.Status.State != v1alpha1.OperationPlanning || len(w.jobs()) > 0 {
			t.Errorf("ended %t with %v; the operation is %s; %d Jobs", r.hasEnded(), r.error(), o.Status.State, len(w.jobs()))
		}
	})
}
