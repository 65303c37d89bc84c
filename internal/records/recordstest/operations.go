package recordstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

type operations struct{ *Process }

// operationIDs returns all ids, newest first.
func (m *Memory) operationIDs() []string {
	ids := m.keys("operations/", "/operation")
	slices.Reverse(ids)
	return ids
}

func (m *Memory) operation(id string) (*v1alpha1.Operation, error) {
	o := new(v1alpha1.Operation)
	if err := m.decode(operationKey(id, "operation"), o); err != nil {
		return nil, err
	}
	return o, nil
}

func (p operations) Create(
	ctx context.Context, now time.Time, spec v1alpha1.OperationSpec, pl *plan.Plan,
) (o *v1alpha1.Operation, err error) {
	err = p.useFor(ctx, func(m *Memory) error {
		latest := ""
		if ids := m.operationIDs(); len(ids) > 0 {
			latest = ids[0]
		}
		if o, err = records.NewOperation(now, latest, spec, pl); err != nil {
			return err
		}
		return errors.Join(m.encode(operationKey(o.Name, "plan"), pl), m.encode(operationKey(o.Name, "operation"), o))
	})
	return o, err
}

func (p operations) SavePlan(ctx context.Context, o *v1alpha1.Operation, pl *plan.Plan) error {
	return p.useFor(ctx, func(m *Memory) error {
		if _, err := m.operation(o.Name); err != nil {
			return err
		}
		o.Status.Plan = records.DescribePlan(pl)
		return errors.Join(m.encode(operationKey(o.Name, "plan"), pl), m.encode(operationKey(o.Name, "operation"), o))
	}, o.Name)
}

func (p operations) Save(ctx context.Context, o *v1alpha1.Operation) error {
	return p.useFor(ctx, func(m *Memory) error { return m.encode(operationKey(o.Name, "operation"), o) }, o.Name)
}

func (p operations) Update(ctx context.Context, id string, change func(now *v1alpha1.Operation) error) error {
	return p.useFor(ctx, func(m *Memory) error {
		o, err := m.operation(id)
		if err == nil {
			err = change(o)
		}
		if err != nil {
			return err
		}
		return m.encode(operationKey(id, "operation"), o)
	}, id)
}

func (p operations) Load(ctx context.Context, id string) (o *v1alpha1.Operation, err error) {
	err = p.useFor(ctx, func(m *Memory) error { o, err = m.operation(id); return err }, id)
	return o, err
}

func (p operations) Find(ctx context.Context, prefix string) (o *v1alpha1.Operation, err error) {
	err = p.useFor(ctx, func(m *Memory) error {
		ids := m.operationIDs()
		if !slices.Contains(ids, prefix) {
			ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, prefix) })
			if len(ids) > 1 {
				return &records.AmbiguousError{Prefix: prefix, IDs: ids}
			}
			if len(ids) == 0 {
				return fmt.Errorf("operation %s: %w", prefix, records.ErrNotFound)
			}
			prefix = ids[0]
		}
		o, err = m.operation(prefix)
		return err
	})
	return o, err
}

func (p operations) List(ctx context.Context, cluster string) ([]v1alpha1.Operation, error) {
	out, damaged, err := p.ListReadable(ctx, cluster)
	return out, errors.Join(err, damaged.Err())
}

func (p operations) ListReadable(ctx context.Context, cluster string) (out []v1alpha1.Operation, damaged diag.List, err error) {
	err = p.useFor(ctx, func(m *Memory) error {
		for _, id := range m.operationIDs() {
			o, err := m.operation(id)
			var problems diag.List
			switch {
			case errors.As(err, &problems):
				damaged = append(damaged, problems...)
			case err != nil:
				return err
			case cluster == "" || o.Spec.ClusterRef.Name == cluster:
				out = append(out, *o)
			}
		}
		return nil
	})
	return out, damaged, err
}

func (p operations) LoadPlan(ctx context.Context, id string) (*plan.Plan, error) {
	pl := new(plan.Plan)
	err := p.useFor(ctx, func(m *Memory) error { return m.decode(operationKey(id, "plan"), pl) }, id)
	if err != nil {
		return nil, fmt.Errorf("reading the plan of operation %q: %w", id, err)
	}
	return pl, nil
}

func (p operations) LoadPlannedCluster(ctx context.Context, id string) (*v1alpha1.Cluster, error) {
	pl, err := p.LoadPlan(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := records.ClusterOfPlan(pl)
	if err != nil {
		return nil, damaged(operationKey(id, "plan"), err)
	}
	return c, nil
}

func (p operations) RequestCancel(ctx context.Context, id string, r records.CancelRequest) error {
	return p.useFor(ctx, func(m *Memory) error { return m.encode(operationKey(id, "cancel"), r) }, id)
}

func (p operations) LoadCancelRequest(ctx context.Context, id string) (r records.CancelRequest, err error) {
	err = p.useFor(ctx, func(m *Memory) error { return m.decode(operationKey(id, "cancel"), &r) }, id)
	return r, err
}

func (p operations) WaitForCancel(
	ctx context.Context, id string, holder records.Holder, _ func(error),
) (r records.CancelRequest, err error) {
	for {
		var changed chan struct{}
		err := p.useFor(ctx, func(m *Memory) error {
			changed, r = m.changed, records.CancelRequest{} // decoding keeps what a new request does not have
			return ignoreMissing(m.decode(operationKey(id, "cancel"), &r))
		}, id)
		if err != nil || r.Holder.Equal(holder) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return records.CancelRequest{}, context.Cause(ctx)
		case <-changed:
		}
	}
}
