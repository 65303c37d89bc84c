package module

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

// KindObject is the kind of a Kubernetes object in plans.
const KindObject op.Kind = "object"

// StaticObjects adapts a function that creates objects without requests to the cluster.
func StaticObjects(make func() ([]*unstructured.Unstructured, error)) func(context.Context,
	*engine.Scope) ([]*unstructured.Unstructured, error) {
	return func(context.Context, *engine.Scope) ([]*unstructured.Unstructured, error) { return make() }
}

// KeepObjects returns an action that keeps objects in the cluster as wanted. The task must
// consume KeyKube.
func KeepObjects(wanted func(context.Context, *engine.Scope) ([]*unstructured.Unstructured, error)) *engine.Action {
	return &engine.Action{
		Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
			client := engine.GetValue(s, KeyKube)
			objs, err := wanted(ctx, s)
			if err != nil {
				return nil, err
			}
			var out []plan.OpChange
			if s.IsPending() { // no cluster yet, or the wanted objects are not known: all of them
				for _, o := range objs {
					out = append(out,
						plan.OpChange{
							Kind:   KindObject,
							Target: kube.Change{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}.ObjectName(), Summary: "create",
						})
				}
				return out, nil
			}
			changes, err := client.Objects().Diff(ctx, objs)
			for _, c := range changes {
				out = append(out, plan.OpChange{Kind: KindObject, Target: c.ObjectName(), Summary: string(c.Action), Diff: c.Diff})
			}
			return out, err
		},
		Apply: func(ctx context.Context, s *engine.Scope) error {
			objs, err := wanted(ctx, s)
			if err != nil {
				return err
			}
			return engine.GetValue(s, KeyKube).Objects().Apply(ctx, objs)
		},
	}
}
