package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

// operations is the store of operations and their plans.
type operations struct{ *directory }

// Create saves an operation that is about to begin, with its plan, in state
// Pending. Its id begins with the time, so that ids sort by age:
// "20261120-181502-create-x7k2". If that time is not after the time of the latest id, for
// example because the clock was set back, the id is one second after the latest one.
func (s operations) Create(ctx context.Context, now time.Time, spec v1alpha1.OperationSpec, p *plan.Plan) (*v1alpha1.Operation, error) {
	ids, err := s.listIDs()
	if err != nil {
		return nil, err
	}
	latest := ""
	if len(ids) > 0 {
		latest = ids[0]
	}
	o, err := records.NewOperation(now, latest, spec, p)
	if err != nil {
		return nil, err
	}
	if err := s.makeDir(s.operationPath(o.Name)); err != nil {
		return nil, fmt.Errorf("saving operation %s: %w", o.Name, err)
	}
	return o, s.savePlan(ctx, o, p)
}

// SavePlan saves the plan of an operation that has not begun, and the operation with its parameters.
func (s operations) SavePlan(ctx context.Context, o *v1alpha1.Operation, p *plan.Plan) error {
	if _, err := s.Load(ctx, o.Name); err != nil {
		return err
	}
	o.Status.Plan = records.DescribePlan(p)
	return s.savePlan(ctx, o, p)
}

// savePlan saves the operation last, because an operation without its file is not listed.
func (s operations) savePlan(ctx context.Context, o *v1alpha1.Operation, p *plan.Plan) error {
	if err := s.writeJSON(s.operationPath(o.Name, "plan.json"), p); err != nil {
		return fmt.Errorf("saving the plan of operation %s: %w", o.Name, err)
	}
	return s.Save(ctx, o)
}

// Save saves the state of an operation.
func (s operations) Save(_ context.Context, o *v1alpha1.Operation) error {
	if err := records.CheckName(o.Name); err != nil {
		return fmt.Errorf("saving an operation: %w", err)
	}
	if err := s.writeJSON(s.operationPath(o.Name, "operation.json"), o); err != nil {
		return fmt.Errorf("saving operation %s: %w", o.Name, err)
	}
	return nil
}

// Update changes the state of an operation. The caller has the lock of its cluster.
func (s operations) Update(ctx context.Context, id string, change func(now *v1alpha1.Operation) error) error {
	o, err := s.Load(ctx, id)
	if err == nil {
		err = change(o)
	}
	if err != nil {
		return err
	}
	return s.Save(ctx, o)
}

// Load returns the operation with that id, or ErrNotFound.
func (s operations) Load(_ context.Context, id string) (*v1alpha1.Operation, error) {
	if err := records.CheckName(id); err != nil {
		return nil, fmt.Errorf("reading operation: %w", err)
	}
	o, path := new(v1alpha1.Operation), s.operationPath(id, "operation.json")
	err := s.readJSON(path, o)
	if err == nil && (o.Spec.ClusterRef.Name == "" || o.Spec.Kind == "") {
		err = damagedFileError(path, errors.New("it names no cluster or no kind"))
	}
	if err != nil {
		return nil, fmt.Errorf("reading operation %s: %w", id, err)
	}
	return o, nil
}

// LoadPlan returns the plan of an operation.
func (s operations) LoadPlan(_ context.Context, id string) (*plan.Plan, error) {
	if err := records.CheckName(id); err != nil {
		return nil, fmt.Errorf("reading plan: %w", err)
	}
	p := new(plan.Plan)
	if err := s.readJSON(s.operationPath(id, "plan.json"), p); err != nil {
		return nil, fmt.Errorf("reading the plan of operation %s: %w", id, err)
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
		return nil, fmt.Errorf("reading the plan of operation %s: %w", id, damagedFileError(s.operationPath(id, "plan.json"), err))
	}
	return c, nil
}

// List returns the operations of a cluster, or of all clusters if it is "", newest
// first. A damaged operation that may belong to the cluster is an error: a caller must
// not take an earlier operation for the latest one.
func (s operations) List(ctx context.Context, cluster string) ([]v1alpha1.Operation, error) {
	out, damaged, err := s.ListReadable(ctx, cluster)
	return out, errors.Join(err, damaged.Err())
}

// ListReadable returns the Operations that can be read, and the problems of the others. The
// plan of a damaged operation shows its cluster; if the plan is damaged as well, the
// operation may belong to any cluster.
func (s operations) ListReadable(ctx context.Context, cluster string) (out []v1alpha1.Operation, damaged diag.List, err error) {
	ids, err := s.listIDs()
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		o, err := s.Load(ctx, id)
		var list diag.List
		switch {
		case errors.As(err, &list):
			if p, err := s.LoadPlan(ctx, id); err == nil && cluster != "" && p.Cluster != "" && p.Cluster != cluster {
				continue
			}
			damaged = append(damaged, list...)
		case err != nil:
			return nil, nil, err
		case cluster == "" || o.Spec.ClusterRef.Name == cluster:
			out = append(out, *o)
		}
	}
	return out, damaged, nil
}

// Find returns the operation whose id begins with prefix, ErrNotFound if there
// is none, or *AmbiguousError if there are several.
func (s operations) Find(ctx context.Context, prefix string) (*v1alpha1.Operation, error) {
	ids, err := s.listIDs()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, id := range ids {
		if id == prefix {
			return s.Load(ctx, id)
		}
		if strings.HasPrefix(id, prefix) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("operation %s: %w", prefix, records.ErrNotFound)
	case 1:
		return s.Load(ctx, found[0])
	}
	return nil, &records.AmbiguousError{Prefix: prefix, IDs: found}
}

// listIDs returns all ids, newest first. Incomplete operations that a crash left are
// not among them.
func (s operations) listIDs() ([]string, error) {
	entries, err := s.readDir(s.joinHome("operations"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if records.CheckName(e.Name()) != nil {
			continue
		}
		if _, err := s.statFile(s.operationPath(e.Name(), "operation.json")); err == nil {
			ids = append(ids, e.Name())
		}
	}
	slices.Reverse(ids)
	return ids, nil
}
