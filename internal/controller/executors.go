package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/jobs"
)

// newSelector returns the function that selects how an operation runs.
func (c *Config) newSelector(m manager.Manager, inProcess *executor.Runner) (func(*v1alpha1.Operation) executor.Method, error) {
	var err error
	if inProcess.OwnCA, err = c.readOwnCA(); err != nil {
		return nil, err
	}
	here := executor.Method{Run: inProcess.Run}
	methods := map[v1alpha1.ExecutorKind]executor.Method{
		"": here, v1alpha1.ExecutorInProcess: here,
		v1alpha1.ExecutorJob:      c.refuseExecutor("it needs an operator in a Kubernetes cluster"),
		v1alpha1.ExecutorExternal: c.refuseExecutor("it is not available in this version"),
	}
	if c.Process != nil && c.Process.Jobs != nil {
		api, err := client.New(m.GetConfig(), client.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
		if err != nil {
			return nil, err
		}
		is := c.Process.Jobs
		inJob := executor.Method{IsElsewhere: true, Run: (&jobs.Runner{
			Client: api, Namespace: c.Process.Namespace, Deployment: is.Deployment, Container: is.Container,
			OpenRecords: c.OpenRecords, Guard: inProcess.Guard, Now: c.Lifecycle.Now, Log: c.Log,
		}).Run}
		methods[v1alpha1.ExecutorJob] = inJob
		if is.IsDefault {
			methods[""] = inJob
		}
	}
	return func(o *v1alpha1.Operation) executor.Method { return methods[o.Spec.Executor] }, nil
}

// reasonExecutor is the reason of an operation whose executor is not available.
const reasonExecutor = "ExecutorNotAvailable"

// refuseExecutor returns a method that ends operations.
func (c *Config) refuseExecutor(why string) executor.Method {
	return executor.Method{Run: func(ctx, _ context.Context, key types.NamespacedName) error {
		backend, err := c.OpenRecords(key.Namespace)
		if err != nil {
			return err
		}
		return executor.SaveEnd(ctx, backend.Operations(), key.Name, &executor.End{
			State: v1alpha1.OperationFailed, Reason: reasonExecutor, Message: "spec.executor cannot be used: " + why, Code: v1alpha1.ErrorUserInput,
		}, c.Lifecycle.Now())
	}}
}
