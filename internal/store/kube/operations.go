package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/status"
)

// operations is the store of operations and their plans.
type operations struct{ *connection }

// Annotations of Operations.
const (
	annotationCreated = operation.AnnotationCreated
	annotationRequest = operation.AnnotationRequest
	annotationCancel  = v1alpha1.Group + "/cancel" // the last request to cancel the operation
)

const resourceOperations = "operations"

// maxAttempts limits how many ids Create tries.
const maxAttempts = 5

// recordPlan is the label of plans.
const recordPlan = "plan"

// planName returns the name of the plan of an operation. It is not a content of a cluster.
func planName(id string) string { return "slipway-plan." + id }

// Create saves an operation that is about to begin, with its plan, in state Pending. An operation
// without a state is not listed. If it has annotationRequest, a crash may have interrupted its creation,
// and no other process may begin it. Otherwise a user has requested it, and no process has accepted it.
func (s operations) Create(ctx context.Context, now time.Time, spec v1alpha1.OperationSpec, p *plan.Plan) (*v1alpha1.Operation, error) {
	o, err := s.createObject(ctx, now, spec, p)
	if err != nil {
		return nil, fmt.Errorf("saving an operation: %w", err)
	}
	if err := s.savePlan(ctx, o, p, func(*v1alpha1.Operation) error { return nil }); err != nil {
		return nil, errors.Join(err, s.deleteObject(context.WithoutCancel(ctx), resourceOperations, o))
	}
	return o, nil
}

// SavePlan saves the plan of an operation that has not begun, and the operation with its parameters:
// the spec of an Operation cannot change, so its status has the parameters after planning.
func (s operations) SavePlan(ctx context.Context, o *v1alpha1.Operation, p *plan.Plan) error {
	is, err := s.loadObject(ctx, o.Name)
	if err != nil {
		return err
	}
	if err := requireSame(is, o); err != nil {
		return fmt.Errorf("saving the plan of operation %s: %w", o.Name, err)
	}
	o.Status.Plan, o.Status.Parameters = records.DescribePlan(p), nil
	if !reflect.DeepEqual(is.Spec.Parameters, o.Spec.Parameters) || is.Status.Parameters != nil {
		o.Status.Parameters = o.Spec.Parameters.DeepCopy()
	}
	return s.savePlan(ctx, o, p, func(now *v1alpha1.Operation) error {
		if now.Status.StartTime != nil && o.Status.StartTime == nil || operation.HasEnded(now) && !operation.HasEnded(o) {
			return errors.New("another process has begun or ended the operation")
		}
		return nil
	})
}

// requireSame returns records.ErrNotFound if another operation has the name now.
func requireSame(now, o *v1alpha1.Operation) error {
	if now.UID != o.UID {
		return fmt.Errorf("another operation has its name: %w", records.ErrNotFound)
	}
	return nil
}

// savePlan saves a plan, and the operation if its state allows it.
func (s operations) savePlan(ctx context.Context, o *v1alpha1.Operation, p *plan.Plan, allows func(now *v1alpha1.Operation) error) error {
	to := content{
		name: planName(o.Name),
		labels: map[string]string{
			labelCluster: o.Spec.ClusterRef.Name, labelRecord: recordPlan, labelOperation: labelValue(o.Name),
		},
		owner: ownerOf(o),
	}
	err := contents(s).saveJSON(ctx, to, p)
	if err == nil {
		err = s.Update(ctx, o.Name, func(now *v1alpha1.Operation) error {
			err := allows(now)
			now.Status = *o.Status.DeepCopy()
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("saving the plan of operation %s: %w", o.Name, err)
	}
	return nil
}

func ownerOf(o *v1alpha1.Operation) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: v1alpha1.APIVersion, Kind: "Operation", Name: o.Name, UID: o.UID}
}

// createObject creates the object of an operation, with an id after all others. The object has no
// status yet.
func (s operations) createObject(
	ctx context.Context, now time.Time, spec v1alpha1.OperationSpec, p *plan.Plan,
) (*v1alpha1.Operation, error) {
	request := randomHex(idBytes)
	for range maxAttempts {
		latest, err := s.latestID(ctx, now)
		if err != nil {
			return nil, err
		}
		o, err := records.NewOperation(now, latest, spec, p)
		if err != nil {
			return nil, err
		}
		o.Namespace, o.Labels = s.Namespace, map[string]string{labelCluster: spec.ClusterRef.Name}
		o.Annotations = map[string]string{
			annotationCreated: o.CreationTimestamp.Format(time.RFC3339Nano), annotationRequest: request,
		}
		made := new(v1alpha1.Operation)
		err = s.repeat(ctx, func(ctx context.Context) error {
			err := s.own.Post().Namespace(s.Namespace).Resource(resourceOperations).Body(o).Do(ctx).Into(made)
			if apierrors.IsAlreadyExists(err) { // perhaps by an earlier call
				err = s.own.Get().Namespace(s.Namespace).Resource(resourceOperations).Name(o.Name).Do(ctx).Into(made)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if made.Annotations[annotationRequest] == request {
			made.Status = o.Status
			return presentOperation(made), nil
		}
	}
	return nil, errors.New("other processes create operations at the same time")
}

// maxAhead is how much later than now the time of an id can be, because a clock was wrong. An id with a
// later time does not count: a user can have given it.
const maxAhead = 24 * time.Hour

// latestID returns the latest id that Create has given, "" if there is none.
func (s operations) latestID(ctx context.Context, now time.Time) (latest string, err error) {
	list, err := s.listNames(ctx)
	for _, o := range list {
		if at, ok := givenTime(&o); ok && at.Before(now.Add(maxAhead)) {
			latest = max(latest, o.Name)
		}
	}
	return latest, err
}

// listNames returns the metadata of all Operations.
func (s operations) listNames(ctx context.Context) (out []metav1.PartialObjectMetadata, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		text, err := s.own.Get().Namespace(s.Namespace).Resource(resourceOperations).
			SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
		if err != nil {
			return err
		}
		var list metav1.PartialObjectMetadataList
		err = json.Unmarshal(text, &list)
		out = list.Items
		return err
	})
	return out, err
}

// presentOperation returns an operation as other backends return it.
func presentOperation(o *v1alpha1.Operation) *v1alpha1.Operation {
	o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Operation"} // a list has none
	if at, err := time.Parse(time.RFC3339Nano, o.Annotations[annotationCreated]); err == nil && o.Annotations[annotationRequest] != "" {
		o.CreationTimestamp = metav1.NewTime(at)
	} else if at := operation.CreationTime(o); !at.IsZero() {
		o.CreationTimestamp = metav1.NewTime(at)
	}
	if o.Status.Parameters != nil {
		o.Spec.Parameters = *o.Status.Parameters.DeepCopy()
	}
	return o
}

// Save saves the status of an operation. Its spec does not change. The error is records.ErrNotFound if the operation was
// deleted, also if another one has its name.
func (s operations) Save(ctx context.Context, o *v1alpha1.Operation) error {
	return s.Update(ctx, o.Name, func(now *v1alpha1.Operation) error {
		if err := requireSame(now, o); err != nil {
			return err
		}
		now.Status = *o.Status.DeepCopy()
		return nil
	})
}

// Update changes the status of an operation from its current one. change is called again after a conflict.
func (s operations) Update(ctx context.Context, id string, change func(now *v1alpha1.Operation) error) error {
	if err := records.CheckName(id); err != nil {
		return fmt.Errorf("saving an operation: %w", err)
	}
	err := s.repeat(ctx, func(ctx context.Context) error {
		now := new(v1alpha1.Operation)
		if err := s.own.Get().Namespace(s.Namespace).Resource(resourceOperations).Name(id).Do(ctx).Into(now); err != nil {
			return err
		}
		was := now.Status.DeepCopy()
		if err := change(now); err != nil {
			return err
		}
		status.KeepManagementFields(&now.Status, was)
		return s.own.Put().Namespace(s.Namespace).Resource(resourceOperations).Name(id).SubResource("status").Body(now).Do(ctx).Error()
	})
	if err != nil {
		return fmt.Errorf("saving operation %s: %w", id, err)
	}
	return nil
}

// Load returns the operation with that id, or records.ErrNotFound.
func (s operations) Load(ctx context.Context, id string) (*v1alpha1.Operation, error) {
	o, err := s.loadObject(ctx, id)
	if errors.Is(err, records.ErrNotFound) && s.archive.exists() {
		if o, _, err = s.loadArchived(ctx, id, ""); err != nil {
			return nil, fmt.Errorf("reading operation %s: %w", id, err)
		}
	}
	return o, err
}

// loadObject returns the operation with that id if it is an object.
func (s operations) loadObject(ctx context.Context, id string) (*v1alpha1.Operation, error) {
	if err := records.CheckName(id); err != nil {
		return nil, fmt.Errorf("reading operation: %w", err)
	}
	o := new(v1alpha1.Operation)
	err := s.repeat(ctx, func(ctx context.Context) error {
		return s.own.Get().Namespace(s.Namespace).Resource(resourceOperations).Name(id).Do(ctx).Into(o)
	})
	if err != nil {
		return nil, fmt.Errorf("reading operation %s: %w", id, err)
	}
	return presentOperation(o), nil
}

// LoadPlan returns the plan of an operation.
func (s operations) LoadPlan(ctx context.Context, id string) (*plan.Plan, error) {
	o, err := s.loadObject(ctx, id)
	var uid types.UID // of any operation with this name, if none is an object
	var p *plan.Plan
	if err == nil {
		uid = o.UID
		p, err = s.loadPlanOf(ctx, o)
	}
	if errors.Is(err, records.ErrNotFound) && s.archive.exists() {
		if _, p, err = s.loadArchived(ctx, id, uid); err == nil && p == nil {
			err = records.ErrNotFound
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the plan of operation %s: %w", id, err)
	}
	return p, nil
}

// loadPlanOf returns the plan of an operation that is an object. The plan of a deleted operation of the
// same name can still exist: it belongs to the other one.
func (s operations) loadPlanOf(ctx context.Context, o *v1alpha1.Operation) (*plan.Plan, error) {
	p := new(plan.Plan)
	if err := contents(s).loadJSON(ctx, planName(o.Name), ownerOf(o), p); err != nil {
		return nil, err
	}
	return p, nil
}

// LoadPlannedCluster returns the cluster description in the plan of an operation.
func (s operations) LoadPlannedCluster(ctx context.Context, id string) (*v1alpha1.Cluster, error) {
	p, err := s.LoadPlan(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := records.ClusterOfPlan(p)
	if err != nil {
		return nil, fmt.Errorf("reading the plan of operation %s: %w", id, damagedError("Secret "+s.Namespace+"/"+planName(id), err))
	}
	return c, nil
}

// List returns the operations of a cluster, or of all clusters if it is "", newest first. It
// ignores problems of the archive, because no later operation needs what only the archive has.
func (s operations) List(ctx context.Context, cluster string) ([]v1alpha1.Operation, error) {
	out, _, err := s.ListReadable(ctx, cluster)
	return out, err
}

// ListReadable returns the operations, and the problems of the archive.
func (s operations) ListReadable(ctx context.Context, cluster string) (out []v1alpha1.Operation, damaged diag.List, err error) {
	// An operation is deleted after it was archived, so that one of the lists has it.
	if out, err = s.listObjects(ctx, cluster); err != nil {
		return nil, nil, fmt.Errorf("listing operations: %w", err)
	}
	archived, damaged, err := s.listArchived(ctx, cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("listing operations: %w", err)
	}
	objects := map[types.UID]bool{}
	for _, o := range out {
		objects[o.UID] = true
	}
	for _, o := range archived {
		if !objects[o.UID] {
			out = append(out, o)
		}
	}
	sortOperations(out)
	return out, damaged, nil
}

// listObjects returns the operations that are objects, newest first.
func (s operations) listObjects(ctx context.Context, cluster string) (out []v1alpha1.Operation, err error) {
	var list v1alpha1.OperationList
	err = s.repeat(ctx, func(ctx context.Context) error {
		list = v1alpha1.OperationList{}
		get := s.own.Get().Namespace(s.Namespace).Resource(resourceOperations)
		if cluster != "" {
			get = get.Param("fieldSelector", "spec.clusterRef.name="+cluster)
		}
		return get.Do(ctx).Into(&list)
	})
	for i := range list.Items {
		if list.Items[i].Status.State != "" {
			out = append(out, *presentOperation(&list.Items[i]))
		}
	}
	sortOperations(out)
	return out, err
}

// sortOperations sorts operations, newest first.
func sortOperations(ops []v1alpha1.Operation) {
	slices.SortFunc(ops, func(a, b v1alpha1.Operation) int {
		return cmp.Or(orderOf(&b).Compare(orderOf(&a)), cmp.Compare(b.Name, a.Name), cmp.Compare(b.UID, a.UID))
	})
}

// orderOf returns the time by which operations are sorted: in the id that Create has given, or the
// time of the API server. The name that a user has given decides nothing.
func orderOf(o *v1alpha1.Operation) time.Time {
	if at, ok := givenTime(o); ok {
		return at
	}
	return o.CreationTimestamp.Time
}

// givenTime returns the time in the id that Create has given to an operation.
func givenTime(o metav1.Object) (time.Time, bool) {
	at, ok := records.ParseOperationTime(o.GetName())
	return at, ok && o.GetAnnotations()[annotationRequest] != ""
}

// Find returns the operation whose id begins with prefix, records.ErrNotFound if there is none, or
// *records.AmbiguousError if there are several.
func (s operations) Find(ctx context.Context, prefix string) (*v1alpha1.Operation, error) {
	list, err := s.listNames(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	var ids []string
	for _, o := range list {
		ids = append(ids, o.Name)
	}
	if slices.Contains(ids, prefix) {
		return s.Load(ctx, prefix)
	}
	archived, err := s.findArchived(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	ids = append(ids, archived...)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if slices.Contains(ids, prefix) {
		return s.Load(ctx, prefix)
	}
	found := slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, prefix) })
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("operation %s: %w", prefix, records.ErrNotFound)
	case 1:
		return s.Load(ctx, found[0])
	}
	slices.Reverse(found)
	return nil, &records.AmbiguousError{Prefix: prefix, IDs: found}
}
