package drift

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/controller/service"
)

// react shows the differences, and requests a repair if the cluster asks for it.
func (k *Checker) react(ctx context.Context, c *v1alpha1.Cluster, svc *service.Opened, f *finding, all []v1alpha1.Operation) error {
	if f.count == 0 || c.Spec.DriftPolicy != v1alpha1.DriftRepair {
		return k.show(ctx, c, f)
	}
	waits := func(o v1alpha1.Operation) bool { return executor.IsRepair(&o) && operations.WaitsForWindow(&o) }
	if at := slices.IndexFunc(all, waits); at >= 0 {
		f.reason, f.message = reasonRepairing, "operation "+all[at].Name+" repairs "+f.message+"; "+all[at].Status.Message
		return k.show(ctx, c, f)
	}
	if why := k.refuse(ctx, c, svc, f, all); why != "" {
		f.reason, f.message = reasonRefused, "the repair is refused: "+why+"; "+f.message
		return k.show(ctx, c, f)
	}
	next, err := svc.NextOperation(ctx, svc.Intent.Cluster)
	if err != nil {
		return err
	}
	o := operations.NewRequest(c, next.Kind, "repair "+svc.Intent.Digest, all, k.Now())
	o.Annotations[executor.AnnotationRepair] = svc.Intent.Digest
	if err := k.Client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	f.reason, f.message = reasonRepairing, "operation "+o.Name+" repairs "+f.message
	return k.show(ctx, c, f)
}

// refuse returns the reason why differences are not repaired automatically, "" if they are.
func (k *Checker) refuse(ctx context.Context, c *v1alpha1.Cluster, svc *service.Opened, f *finding, all []v1alpha1.Operation) string {
	if len(f.plan.Removes) > 0 {
		return "the plan removes hosts or data"
	}
	if n := len(all); n > 0 && executor.IsRepair(&all[n-1]) && all[n-1].Status.State != v1alpha1.OperationSucceeded {
		return "operation " + all[n-1].Name + " has failed: " + all[n-1].Status.Message
	}
	return executor.FindUnhealthy(ctx, svc.Service, c.Name)
}
