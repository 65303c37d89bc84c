package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/operator/manifests"
)

// goneTime limits the wait until the objects no longer exist. Running operations stop at a safe point first.
const goneTime = 3 * time.Minute

// kept are the kinds that remain after the removal of the operator: Clusters and their records depend on them, or they
// protect Clusters.
var kept = []string{manifests.KindDefinition, "Namespace", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// Uninstall removes the operator. Clusters, operations and the namespace remain, so that an operator that is installed
// later continues. withData removes the definitions and the namespace too, and is refused while there are Clusters.
func (i *Installer) Uninstall(ctx context.Context, withData bool) error {
	if _, err := i.Status(ctx); err != nil && (!withData || !isMissing(err)) {
		return err
	}
	if withData {
		if err := i.refuseClusters(ctx); err != nil {
			return err
		}
	}
	objects, err := manifests.Objects(manifests.Options{Version: "v0.0.0"})
	if err != nil {
		return err
	}
	slices.Reverse(objects) // the webhook first: its Service disappears
	// Operations stop at a safe point, and save their state with the rights that are removed afterwards.
	if err := i.removeAll(ctx, objects, func(o *unstructured.Unstructured) bool { return slices.Contains(first, o.GetKind()) }); err != nil {
		return err
	}
	if err := i.stopJobs(ctx); err != nil {
		return err
	}
	if withData {
		if err := i.refuseClusters(ctx); err != nil { // some can be new
			return err
		}
	}
	return i.removeAll(ctx, objects, func(o *unstructured.Unstructured) bool {
		return !slices.Contains(first, o.GetKind()) && (withData || !slices.Contains(kept, o.GetKind()) && !isUserRole(o))
	})
}

// first are the kinds that are removed before the others.
var first = []string{"ValidatingWebhookConfiguration", manifests.KindDeployment}

// removeAll deletes the selected objects, and waits until they do not exist.
func (i *Installer) removeAll(
	ctx context.Context, objects []*unstructured.Unstructured, selects func(*unstructured.Unstructured) bool,
) error {
	var removed []*unstructured.Unstructured
	for _, object := range objects {
		if !selects(object) {
			continue
		}
		gone, err := i.remove(ctx, object)
		if err != nil {
			return err
		}
		if gone {
			removed = append(removed, object)
		}
	}
	return i.waitUntilGone(ctx, removed)
}

// stopJobs deletes the Jobs of operations, and waits until their processes have stopped at a safe point.
func (i *Installer) stopJobs(ctx context.Context) error {
	list, err := i.client.Resource(manifests.JobResource).Namespace(manifests.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelOperationUID})
	if err != nil {
		return fmt.Errorf("reading the Jobs of operations: %w", err)
	}
	var removed []*unstructured.Unstructured
	foreground := metav1.DeletePropagationForeground
	for n := range list.Items {
		job := &list.Items[n]
		err := i.client.Resource(manifests.JobResource).Namespace(manifests.Namespace).
			Delete(ctx, job.GetName(), metav1.DeleteOptions{PropagationPolicy: &foreground})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", describe(job), err)
		}
		removed = append(removed, job)
	}
	return i.waitUntilGone(ctx, removed)
}

// refuseClusters refuses to delete the definitions while there are Clusters.
func (i *Installer) refuseClusters(ctx context.Context) error {
	var status Status
	if err := i.countClusters(ctx, &status); err != nil {
		return err
	}
	if status.Clusters == 0 {
		return nil
	}
	return diag.Refuse(idClusters, fmt.Sprintf("there are %d Clusters: without their definition, they would be deleted", status.Clusters),
		"delete them first, or omit --with-data")
}

// isUserRole reports whether an object is a role of users of Clusters.
func isUserRole(o *unstructured.Unstructured) bool {
	return o.GetKind() == "ClusterRole" && o.GetName() != manifests.Name
}

func isMissing(err error) bool {
	var list diag.List
	return errors.As(err, &list) && slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.ID == idMissing })
}

// remove deletes an object of Slipway. It reports whether it existed.
func (i *Installer) remove(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	at := i.resource(object)
	is, err := at.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !manifests.IsOurs(is) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", describe(object), err)
	}
	foreground := metav1.DeletePropagationForeground
	err = at.Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: &foreground})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("deleting %s: %w", describe(object), err)
	}
	i.report("%s deleted", describe(object))
	return true, nil
}

// waitUntilGone waits until objects do not exist.
func (i *Installer) waitUntilGone(ctx context.Context, objects []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, goneTime)
	defer cancel()
	var left []string
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		left = nil
		for _, object := range objects {
			if _, err := i.resource(object).Get(ctx, object.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				left = append(left, describe(object))
			}
		}
		return len(left) == 0, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("these objects still exist after %s: %s", goneTime, strings.Join(left, ", "))
	}
	return err
}
