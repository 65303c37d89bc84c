package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// WaitSettled waits until an object is ready: a workload is rolled out, a Job has finished,
// a pod is ready or an API is served. It does not wait for objects of other kinds.
// progress, which may be nil, is called with what is still missing. Only ctx limits the
// time.
func (c Objects) WaitSettled(ctx context.Context, obj *unstructured.Unstructured, progress func(string)) error {
	look := c.settleCheck(obj)
	if look == nil {
		return nil
	}
	if err := c.waitUntil(ctx, withProgress(progress, look)); err != nil {
		return fmt.Errorf("waiting for %s: %w", objectName(obj), err)
	}
	return nil
}

// IsAwaited reports whether WaitSettled waits for objects of this kind.
func (c Objects) IsAwaited(obj *unstructured.Unstructured) bool { return c.settleCheck(obj) != nil }

func (c Objects) settleCheck(obj *unstructured.Unstructured) func(context.Context) (string, error) {
	kind, group := obj.GetKind(), obj.GroupVersionKind().Group
	live := func(judge func(*unstructured.Unstructured) (string, error)) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			u, err := c.Get(ctx, obj)
			if err != nil {
				return "", err
			}
			if u == nil {
				return "it does not exist", nil
			}
			return judge(u)
		}
	}
	switch {
	case group == "apps" && (kind == "Deployment" || kind == "DaemonSet" || kind == "StatefulSet"):
		namespace := obj.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		look, _ := Workloads(c).rolloutCheck(kind, namespace, obj.GetName()) // these kinds have rollouts
		return look
	case group == "batch" && kind == "Job":
		return live(jobPending)
	case group == "" && kind == "Pod":
		return live(podPending)
	case group == "apiregistration.k8s.io" && kind == "APIService":
		return live(func(u *unstructured.Unstructured) (string, error) {
			if conditionStatus(u, "Available") != "True" {
				return "its API is not served yet", nil
			}
			return "", nil
		})
	}
	return nil
}

// jobPending returns what a Job still lacks, or an error if it has failed.
func jobPending(u *unstructured.Unstructured) (string, error) {
	switch {
	case conditionStatus(u, "Complete") == "True":
		return "", nil
	case conditionStatus(u, "Failed") == "True":
		return "", &Error{
			Reason:  ReasonFailed,
			Message: "the job has failed; 'kubectl logs -n " + u.GetNamespace() + " job/" + u.GetName() + "' may say why",
		}
	}
	return "the job has not finished", nil
}

// podPending returns what a Pod without a controller still lacks: it must have succeeded or be
// ready.
func podPending(u *unstructured.Unstructured) (string, error) {
	switch phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); {
	case phase == "Succeeded" || phase == "Running" && conditionStatus(u, "Ready") == "True":
		return "", nil
	case phase == "Failed":
		return "", &Error{
			Reason:  ReasonFailed,
			Message: "the pod has failed; 'kubectl logs -n " + u.GetNamespace() + " " + u.GetName() + "' may say why",
		}
	}
	return "the pod is not ready", nil
}
