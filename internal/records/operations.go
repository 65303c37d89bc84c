package records

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/plan"
)

// stampFormat is the time at the beginning of an id.
const stampFormat = "20060102-150405"

// ParseOperationTime returns the time at the beginning of an id of NewOperation.
func ParseOperationTime(id string) (time.Time, bool) {
	at, err := time.Parse(stampFormat, id[:min(len(id), len(stampFormat))])
	return at, err == nil
}

// NewOperation returns an operation as Operations.Create saves it. latest is the latest id, "" if
// there are no operations.
func NewOperation(now time.Time, latest string, spec v1alpha1.OperationSpec, p *plan.Plan) (*v1alpha1.Operation, error) {
	if err := errors.Join(CheckName(spec.ClusterRef.Name), CheckName(spec.Kind)); err != nil {
		return nil, fmt.Errorf("saving an operation: %w", err)
	}
	now = now.UTC()
	stamp := now
	if latest >= stamp.Format(stampFormat) {
		t, ok := ParseOperationTime(latest)
		if !ok {
			return nil, fmt.Errorf("saving an operation after %s: the id does not begin with a time", latest)
		}
		stamp = t.Add(time.Second)
	}
	var random [2]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	o := &v1alpha1.Operation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Operation"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              stamp.Format(stampFormat) + "-" + spec.Kind + "-" + hex.EncodeToString(random[:]),
			CreationTimestamp: metav1.NewTime(now),
		},
		Spec:   spec,
		Status: v1alpha1.OperationStatus{State: v1alpha1.OperationPending},
	}
	o.Status.Plan = DescribePlan(p)
	return o, nil
}

// DescribePlan returns a plan in short, nil for a plan without a digest.
func DescribePlan(p *plan.Plan) *v1alpha1.PlanStatus {
	if p.Digest == "" {
		return nil
	}
	return &v1alpha1.PlanStatus{Digest: p.Digest, Summary: p.TotalsLine()}
}
