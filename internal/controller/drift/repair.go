package drift

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// react shows the differences, and requests a repair if the cluster asks for it.
func (k *Checker) react(ctx context.Context, c *v1alpha1.Cluster, svc *service.Opened, f *finding, all []v1alpha1.Operation) error {
	if f.count == 0 || c.Spec.DriftPolicy != v1alpha1.DriftRepair {
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
	o := repairOf(c, next.Kind, svc.Intent.Digest, all)
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

// hashDigits is the length of the hash in the name of an operation.
const hashDigits = 10

// repairOf returns the operation that repairs a cluster. Two checks at the same time return the same name.
func repairOf(c *v1alpha1.Cluster, kind operation.Kind, digest string, all []v1alpha1.Operation) *v1alpha1.Operation {
	cause := string(c.UID) + "\x00repair\x00" + digest
	if n := len(all); n > 0 {
		cause += "\x00" + string(all[n-1].UID)
	}
	sum := sha256.Sum256([]byte(cause))
	return &v1alpha1.Operation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Operation"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: fmt.Sprintf("%s-%s", c.Name, hex.EncodeToString(sum[:])[:hashDigits]),
			Labels:      map[string]string{v1alpha1.Group + "/cluster": c.Name},
			Annotations: map[string]string{executor.AnnotationRepair: digest},
		},
		Spec: v1alpha1.OperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: c.Name, UID: c.UID}, Kind: string(kind), Executor: v1alpha1.ExecutorInProcess,
		},
	}
}
