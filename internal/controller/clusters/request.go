package clusters

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// hashDigits is the length of the hash in the name of an operation.
const hashDigits = 10

// newOperation returns an operation whose name depends only on what led to it: the cluster, what is wanted of
// it, and the latest operation.
func (p *pass) newOperation(kind operation.Kind, wanted string) *v1alpha1.Operation {
	c := p.cluster
	cause := string(c.UID) + "\x00" + string(kind) + "\x00" + wanted
	created := p.Lifecycle.Now()
	if n := len(p.operations); n > 0 {
		latest := &p.operations[n-1]
		cause += "\x00" + string(latest.UID)
		if after := operation.CreationTime(latest).Add(time.Millisecond); created.Before(after) {
			created = after
		}
	}
	sum := sha256.Sum256([]byte(cause))
	return &v1alpha1.Operation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Operation"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Labels: map[string]string{labelCluster: c.Name},
			Annotations: map[string]string{operation.AnnotationCreated: created.UTC().Format(time.RFC3339Nano)},
			Name:        fmt.Sprintf("%s-%s", c.Name, hex.EncodeToString(sum[:])[:hashDigits]),
		},
		Spec: v1alpha1.OperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: c.Name, UID: c.UID}, Kind: string(kind), Executor: v1alpha1.ExecutorInProcess,
		},
	}
}

// labelCluster is the label with the name of the cluster.
const labelCluster = v1alpha1.Group + "/cluster"

// createOperation creates an operation. It exists already if an earlier pass was interrupted, or the cache is old.
func (p *pass) createOperation(ctx context.Context, o *v1alpha1.Operation) error {
	err := p.Client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return p.Live.Get(ctx, client.ObjectKeyFromObject(o), o)
	}
	return err
}
