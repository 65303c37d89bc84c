package jobs

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestRun_FindsLostJobs ends within a minute with the reason, and removes the Job.
func TestRun_FindsLostJobs(t *testing.T) {
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"}},
		}}}
	}
	running := []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for _, tc := range []struct {
		name, want string
		lose       func(*world, *batchv1.Job)
	}{
		{"deleted", "it was deleted", func(w *world, j *batchv1.Job) { w.must(w.api.Delete(w.t.Context(), j)) }},
		{"suspended by hand", "it was suspended", func(w *world, j *batchv1.Job) {
			j.Spec.Suspend = ptr.To(true)
			w.must(w.api.Update(w.t.Context(), j))
		}},
		{"without Pods by hand", "it has no Pod", func(w *world, j *batchv1.Job) {
			j.Spec.Parallelism = ptr.To(int32(0))
			w.must(w.api.Update(w.t.Context(), j))
		}},
		{"image", "ImagePullBackOff: no such image", func(w *world, j *batchv1.Job) { w.addPod(j, waiting("ImagePullBackOff")) }},
		{"configuration", "CreateContainerConfigError: ", func(w *world, j *batchv1.Job) {
			w.addPod(j, waiting("CreateContainerConfigError"))
		}},
		{"no node", "no node can run it: too few CPUs", func(w *world, j *batchv1.Job) {
			w.addPod(j, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "too few CPUs"},
			}})
		}},
		{"evicted", "Evicted: the node has no memory", func(w *world, j *batchv1.Job) {
			w.addPod(j, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node has no memory"})
		}},
		{"killed", "code 137 (OOMKilled)", func(w *world, j *batchv1.Job) {
			w.addPod(j, corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
			}}})
		}},
		{"dead node", "node n1 does not answer", func(w *world, j *batchv1.Job) {
			w.addPod(j, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: running, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionFalse},
			}})
		}},
		{"quota", "FailedCreate: exceeded quota", func(w *world, j *batchv1.Job) {
			w.must(w.api.Create(w.t.Context(), &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, InvolvedObject: corev1.ObjectReference{UID: j.UID},
				Type: corev1.EventTypeWarning, Reason: "FailedCreate", Message: "exceeded quota",
			}))
		}},
		{"dead node before the start", "node n1 does not answer", func(w *world, j *batchv1.Job) {
			w.must(w.api.Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
			w.addPod(j, corev1.PodStatus{Phase: corev1.PodPending})
		}},
		{"volume", "FailedMount: no such volume", func(w *world, j *batchv1.Job) {
			w.must(w.api.Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			}}))
			w.addPod(j, corev1.PodStatus{Phase: corev1.PodPending})
			w.must(w.api.Create(w.t.Context(), &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, InvolvedObject: corev1.ObjectReference{UID: "pod"},
				Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "no such volume",
			}))
		}},
		{"no Pod", "it has no Pod", func(*world, *batchv1.Job) {}},
		{"failed", "BackoffLimitExceeded", func(w *world, j *batchv1.Job) { w.end(j, batchv1.JobFailed, "BackoffLimitExceeded") }},
		{"without a result", "has ended without a result", func(w *world, j *batchv1.Job) {
			w.addPod(j, corev1.PodStatus{Phase: corev1.PodSucceeded})
			w.end(j, batchv1.JobComplete, "")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, func(w *world) {
				r := w.start()
				tc.lose(w, w.job())
				w.pass(55 * time.Second)
				if r.hasEnded() && r.error() != nil && strings.Contains(r.error().Error(), tc.want) && !runningJob(w) {
					return
				}
				w.pass(3 * time.Minute) // a Pod on a dead node remains
				if !r.hasEnded() || r.error() == nil || !strings.Contains(r.error().Error(), tc.want) || runningJob(w) {
					t.Errorf("ended %t with %v, want %q; Jobs %d", r.hasEnded(), r.error(), tc.want, len(w.jobs()))
				}
			})
		})
	}
}

// TestRun_RemovesSuspendedJobs has Jobs of other operations.
func TestRun_RemovesSuspendedJobs(t *testing.T) {
	run(t, func(w *world) {
		add := func(name string, age time.Duration, suspended bool) {
			w.must(w.api.Create(w.t.Context(), &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
					Labels: map[string]string{v1alpha1.LabelOperationUID: name},
				},
				Spec: batchv1.JobSpec{Suspend: &suspended},
			}))
		}
		add("never-started", time.Hour, true)
		add("created-now", time.Second, true)
		add("runs", time.Hour, false)
		w.start()
		var left []string
		for _, j := range w.jobs() {
			if len(j.Name) < 20 {
				left = append(left, j.Name)
			}
		}
		if want := []string{"created-now", "runs"}; !slices.Equal(left, want) {
			t.Errorf("the Jobs %q of other operations are left, want %q", left, want)
		}
	})
}
