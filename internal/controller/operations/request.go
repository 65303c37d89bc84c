package operations

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// hashDigits is the length of the hash in the name of an operation.
const hashDigits = 10

// NewRequest returns an operation that follows earlier ones, which are sorted by age. Its name depends only on its cause:
// the cluster, the kind, a reason, and the latest operation. So two processes request the same one.
func NewRequest(
	c *v1alpha1.Cluster, kind operation.Kind, reason string, earlier []v1alpha1.Operation, created time.Time,
) *v1alpha1.Operation {
	if n := len(earlier); n > 0 {
		reason += "\x00" + string(earlier[n-1].UID)
	}
	return newOperation(c, kind, reason, earlier, created)
}

// NewScheduled returns an operation that was due at a time. Its name depends on the cluster, the kind and this time.
func NewScheduled(
	c *v1alpha1.Cluster, kind operation.Kind, due time.Time, earlier []v1alpha1.Operation, created time.Time,
) *v1alpha1.Operation {
	at := due.UTC().Format(time.RFC3339)
	o := newOperation(c, kind, "due "+at, earlier, created)
	o.Annotations[operation.AnnotationScheduled] = at
	return o
}

// newOperation returns an operation whose name depends on the cluster, the kind and a cause.
func newOperation(
	c *v1alpha1.Cluster, kind operation.Kind, cause string, earlier []v1alpha1.Operation, created time.Time,
) *v1alpha1.Operation {
	if n := len(earlier); n > 0 {
		if after := operation.CreationTime(&earlier[n-1]).Add(time.Millisecond); created.Before(after) {
			created = after
		}
	}
	sum := sha256.Sum256([]byte(string(c.UID) + "\x00" + string(kind) + "\x00" + cause))
	return &v1alpha1.Operation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Operation"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Labels: map[string]string{v1alpha1.LabelCluster: c.Name},
			Annotations: map[string]string{operation.AnnotationCreated: created.UTC().Format(time.RFC3339Nano)},
			Name:        fmt.Sprintf("%s-%s", c.Name, hex.EncodeToString(sum[:])[:hashDigits]),
		},
		Spec: v1alpha1.OperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: c.Name, UID: c.UID}, Kind: string(kind),
		},
	}
}
