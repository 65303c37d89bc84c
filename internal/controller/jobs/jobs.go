// Package jobs runs operations in Jobs of the cluster that has the controllers: one Job for each attempt. The process
// in the Job plans and applies the operation as the process of the controllers would, and saves its status and journal.
// So this package only starts Jobs, finds Jobs that cannot end, and removes them.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/hostguard"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
)

const (
	// interval is the time between two checks of a Job, each with two requests.
	interval = 5 * time.Second
	// requestTime limits the requests of one check.
	requestTime = 30 * time.Second
	// reserve is the time after the deadline of an operation in which its process saves the end.
	reserve = 2 * time.Minute
	// suspendTime is the time after which a Job that does not run is not started by the process that has created it.
	suspendTime = 10 * time.Minute
	// removeTime limits the time until a Job and its Pods are removed. A Pod on a node that does not answer remains.
	removeTime = 2 * time.Minute
)

// A Runner runs operations in Jobs. All fields are required.
type Runner struct {
	// Client reads and writes without a cache.
	Client client.Client
	// Namespace has the Jobs, and Deployment the Pods of the controllers: a Job has the same image and volumes.
	Namespace, Deployment string
	// Container is the name of the container in the Deployment.
	Container   string
	OpenRecords func(namespace string) (records.Backend, error)
	Guard       *hostguard.Guard
	Now         func() time.Time
	Log         *slog.Logger
}

// Run continues an operation until it has ended, or waits for an approval. See executor.Runner.Run. When the controllers
// stop, the Job continues, and the next call finds it.
func (r *Runner) Run(ctx, withdrawn context.Context, key types.NamespacedName) error {
	backend, err := r.OpenRecords(key.Namespace)
	if err != nil {
		return err
	}
	o, err := executor.LoadUnfinished(ctx, backend, key.Name)
	if o == nil {
		return err
	}
	a := &attempt{Runner: r, backend: backend, operation: o}
	err = a.followJob(ctx, withdrawn)
	var ends *executor.End
	if errors.As(err, &ends) {
		return a.saveEnd(ctx, ends)
	}
	return err
}

// An attempt is the Job of an operation.
type attempt struct {
	*Runner
	backend   records.Backend
	operation *v1alpha1.Operation
	job       *batchv1.Job
}

// followJob starts a Job unless one runs, and returns when it has ended. withdrawn is derived from ctx.
func (a *attempt) followJob(ctx, withdrawn context.Context) error {
	if err := a.findJob(ctx); err != nil {
		return err
	}
	if a.job == nil {
		// The process of an earlier Job can have been killed. The next one would end at once while the lock is valid.
		if err := executor.CheckHolder(ctx, a.backend, a.operation.Spec.ClusterRef.Name); err != nil {
			return err
		}
		if err := executor.AdoptStart(ctx, a.backend, a.operation, a.Now()); err != nil {
			return err
		}
		if err := a.createJob(withdrawn); err != nil {
			return cmp.Or(context.Cause(withdrawn), err)
		}
	}
	if err := a.startJob(ctx); err != nil {
		return errors.Join(err, a.removeJob(ctx, false)) // it would remain suspended if the operation ends
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var seen observer
	for {
		select {
		case <-withdrawn.Done(): // it also ends with ctx
			if ctx.Err() != nil {
				return a.endObservation(ctx)
			}
			return a.withdraw(ctx, context.Cause(withdrawn))
		case <-tick.C:
		}
		done, err := a.checkJob(ctx, &seen)
		if done || err != nil {
			return err
		}
	}
}

// withdraw ends an operation that has not begun. If its process has begun it in the meantime, another attempt resumes it.
func (a *attempt) withdraw(ctx context.Context, why error) error {
	if err := a.removeJob(ctx, true); err != nil {
		return err
	}
	o, err := executor.LoadUnfinished(context.WithoutCancel(ctx), a.backend, a.operation.Name)
	switch {
	case o == nil:
		return err
	case o.Status.StartTime != nil:
		return fmt.Errorf("operation %s has begun, and cannot be withdrawn", o.Name)
	}
	return why
}

// endObservation ends the observation of a Job. The Job continues, unless the object of its operation was deleted.
func (a *attempt) endObservation(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), executor.ErrDeleted) {
		return a.removeJob(ctx, true)
	}
	return nil
}

// findJob finds the Job that runs the operation.
func (a *attempt) findJob(ctx context.Context) error {
	var list batchv1.JobList
	selector := client.MatchingLabels{v1alpha1.LabelOperationUID: string(a.operation.UID)}
	if err := a.Client.List(ctx, &list, client.InNamespace(a.Namespace), selector); err != nil {
		return fmt.Errorf("reading the Jobs of operation %s: %w", a.operation.Name, err)
	}
	for i := range list.Items {
		if j := &list.Items[i]; !hasEnded(j) && j.DeletionTimestamp == nil {
			a.job = j
		}
	}
	return nil
}

// hasEnded reports whether a Job has ended.
func hasEnded(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}

// isSuspended reports whether a Job does not run its Pods.
func isSuspended(j *batchv1.Job) bool { return ptr.Deref(j.Spec.Suspend, false) }

// createJob creates a Job that does not run yet. An operation that has not begun is refused if its Cluster must not use its
// hosts.
func (a *attempt) createJob(ctx context.Context) error {
	o := a.operation
	if at := a.deadline(); at != nil && !a.Now().Before(at.Time) {
		return executor.DeadlineExceeded
	}
	cluster := new(v1alpha1.Cluster)
	err := a.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterRef.Name}, cluster)
	switch {
	case apierrors.IsNotFound(err): // the process ends the operation
	case err != nil:
		return fmt.Errorf("reading Cluster %s/%s: %w", o.Namespace, o.Spec.ClusterRef.Name, err)
	case o.Status.StartTime == nil && !operation.Kind(o.Spec.Kind).RemovesCluster():
		if err := executor.CheckHosts(ctx, a.Guard, o, cluster); err != nil {
			return err
		}
	}
	template := new(appsv1.Deployment)
	if err := a.Client.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Deployment}, template); err != nil {
		return fmt.Errorf("reading Deployment %s/%s: %w", a.Namespace, a.Deployment, err)
	}
	job, err := a.newJob(template)
	if err != nil {
		return err
	}
	if err := a.removeSuspended(ctx); err != nil {
		return err
	}
	if err := a.Client.Create(ctx, job); err != nil {
		return fmt.Errorf("creating Job %s/%s: %w", a.Namespace, job.Name, err)
	}
	a.job = job
	return nil
}

// removeSuspended deletes the Jobs that were never started: their process ended after it had created them, and their
// operation was withdrawn. A Job that another process creates is started within that time.
func (a *attempt) removeSuspended(ctx context.Context) error {
	var list batchv1.JobList
	if err := a.Client.List(ctx, &list, client.InNamespace(a.Namespace), client.HasLabels{v1alpha1.LabelOperationUID}); err != nil {
		return fmt.Errorf("reading the Jobs of operations: %w", err)
	}
	for i := range list.Items {
		j := &list.Items[i]
		if !isSuspended(j) || a.Now().Sub(j.CreationTimestamp.Time) < suspendTime {
			continue
		}
		err := a.Client.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground),
			client.Preconditions{UID: &j.UID, ResourceVersion: &j.ResourceVersion}) // another process can start it now
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting Job %s/%s: %w", j.Namespace, j.Name, err)
		}
	}
	return nil
}

// startJob gives a Job its rights, and lets it run. A process that has ended in between has left it without.
func (a *attempt) startJob(ctx context.Context) error {
	if !isSuspended(a.job) {
		return nil
	}
	for _, object := range append(a.newRights(), a.newServiceAccount()) {
		if err := a.Client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the rights of Job %s/%s: %w", a.Namespace, a.job.Name, err)
		}
	}
	was := a.job.DeepCopy()
	no := false
	a.job.Spec.Suspend = &no
	if err := a.Client.Patch(ctx, a.job, client.MergeFrom(was)); err != nil {
		return fmt.Errorf("starting Job %s/%s: %w", a.Namespace, a.job.Name, err)
	}
	return nil
}

// checkJob reports whether the Job has done its work. The error is why it cannot.
func (a *attempt) checkJob(ctx context.Context, seen *observer) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	job := new(batchv1.Job)
	err = a.Client.Get(ctx, client.ObjectKeyFromObject(a.job), job)
	switch {
	case apierrors.IsNotFound(err) || err == nil && job.UID != a.job.UID:
		if done, err := a.hasResult(ctx); done || err != nil {
			return done, err
		}
		return false, errors.Join(a.newLostError("it was deleted"), a.removeJob(ctx, !seen.isAway)) // its process can still save
	case err != nil:
		a.Log.Warn("the Job of an operation was not read", "operation", client.ObjectKeyFromObject(a.operation), "error", err)
		return false, nil
	}
	a.job = job
	if hasEnded(job) {
		if done, err := a.hasResult(ctx); done || err != nil {
			a.removeRights(ctx)
			return done, err
		}
	}
	if at := a.deadline(); at != nil && a.Now().After(at.Add(reserve)) {
		return false, errors.Join(a.removeJob(ctx, true), executor.DeadlineExceeded)
	}
	why, err := a.findProblem(ctx, job, seen)
	if err != nil {
		a.Log.Warn("the Pods of an operation were not read", "operation", client.ObjectKeyFromObject(a.operation), "error", err)
		return false, nil
	}
	if why == "" {
		return false, nil
	}
	return false, errors.Join(a.newLostError(why), a.removeJob(ctx, !seen.isAway))
}

// deadline returns the time at which the controllers stop the operation, nil for none. A request that waits for another
// operation has the deadline of that one.
func (a *attempt) deadline() *metav1.Time {
	if operation.Kind(a.operation.Spec.Kind).ContinuesAnother() {
		return nil
	}
	return a.operation.Status.Deadline
}

// newLostError returns the error of a Job that cannot do its work. The pool starts another one.
func (a *attempt) newLostError(why string) error {
	return fmt.Errorf("the work of Job %s/%s cannot be done: %s", a.Namespace, a.job.Name, why)
}

// hasResult reports whether the process of the Job has saved its result: the operation has ended, or waits.
func (a *attempt) hasResult(ctx context.Context) (bool, error) {
	o, err := a.backend.Operations().Load(ctx, a.operation.Name)
	if errors.Is(err, records.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	switch o.Status.State { // its process can have saved nothing yet
	case v1alpha1.OperationAwaitingApproval:
		return o.Spec.ApprovedPlan == "", nil
	case v1alpha1.OperationPending:
		return o.Status.Reason == executor.ReasonResuming, nil
	}
	return operation.HasEnded(o), nil
}

// removeRights deletes the Role of the Job and its binding. Their operation can remain for a long time.
func (a *attempt) removeRights(ctx context.Context) {
	for _, object := range a.newRights() {
		if err := a.Client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
			a.Log.Warn("the rights of a Job were not deleted", "job", a.Namespace+"/"+a.job.Name, "error", err)
		}
	}
}

// removeJob deletes the Job and its rights. With wait, it waits until the process has ended: a process on a node that
// does not answer does not end. The context of the caller can have ended.
func (a *attempt) removeJob(ctx context.Context, wait bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	err := a.Client.Delete(ctx, a.job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &a.job.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting Job %s/%s: %w", a.Namespace, a.job.Name, err)
	}
	defer a.removeRights(ctx) // after the process has saved its state
	if !wait {
		return nil
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		pods, err := a.listPods(ctx, a.job)
		if err == nil && !slices.ContainsFunc(pods, canRun) {
			return nil
		}
		select {
		case <-ctx.Done():
			a.Log.Warn("the Pod of a Job did not end in time; its lock and fencing number protect the hosts", "job", a.Namespace+"/"+a.job.Name)
			return nil
		case <-tick.C:
		}
	}
}

// saveEnd saves the end of the operation. The context of the caller can have ended.
func (a *attempt) saveEnd(ctx context.Context, ends *executor.End) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	defer cancel()
	return executor.SaveEnd(ctx, a.backend.Operations(), a.operation.Name, ends, a.Now())
}
