package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/pipeline"
)

// A CreateRequest asks to create the cluster of a file.
type CreateRequest struct {
	Subject
	Options
}

func (r CreateRequest) shared() sharedRequest {
	return sharedRequest{Subject: r.Subject, Options: r.Options}
}

func (r CreateRequest) behaviour() behaviour { return createCluster() }

// createCluster creates a cluster.
func createCluster() behaviour {
	b := usual()
	b.accepts = func(recorded, _ *v1alpha1.Cluster) error {
		if recorded == nil {
			return nil
		}
		return exists(recorded)
	}
	b.warnings = func(p *prepared) diag.List { return precheck.WarnUnlisted(p.env.Release) }
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.CreateCluster(p.env, parts), nil
	}
	b.summary = clusterReady
	return b
}

// exists returns the error for creating a cluster that exists already.
func exists(recorded *v1alpha1.Cluster) error {
	hint := "change the cluster: slipway apply -f FILE"
	if recorded.Status.Phase != v1alpha1.PhaseRunning && recorded.Status.Operation != "" {
		hint = "continue its latest operation: slipway resume " + recorded.Name
	}
	return diag.Refuse(idClusterExists, "cluster "+recorded.Name+" already exists", hint)
}

// clusterReady describes a running cluster, or the hosts that left it.
func clusterReady(_ context.Context, p *prepared, res *Result) []string {
	if len(p.env.Leaving) > 0 {
		return p.describeLeftHosts(res, p.describeLeftHost)
	}
	nodes := p.working(res)
	return []string{
		fmt.Sprintf("Kubernetes %s on %s: %s", p.env.Release.Kubernetes, count(len(nodes), "node"), strings.Join(nodes, ", ")),
		"API at https://" + access.OutsideAddress(p.env.Cluster) + " (" + p.env.Cluster.Spec.ControlPlaneEndpoint.Domain + ")",
	}
}

// working returns the names of the hosts that take part and did not fail.
func (p *prepared) working(res *Result) []string {
	return slices.DeleteFunc(names(p.hosts), func(name string) bool {
		return slices.ContainsFunc(res.Failures, func(f HostFailure) bool { return f.Host == name })
	})
}

// A DeleteRequest asks to remove a cluster from its hosts. The cluster of a file is used
// only if the cluster is not saved.
type DeleteRequest struct {
	Subject
	Options
	// Forget removes the cluster from the saved state even if some hosts cannot be reset:
	// hosts that are unreachable, belong to another cluster now, or fail. It includes
	// IgnoreErrors.
	Forget bool
}

func (r DeleteRequest) shared() sharedRequest {
	return sharedRequest{Subject: r.Subject, Options: r.Options, forget: r.Forget}
}

func (r DeleteRequest) behaviour() behaviour { return deleteCluster() }

// deleteCluster removes a cluster from its hosts.
func deleteCluster() behaviour {
	b := usual()
	b.wanted = savedOrFile
	b.pipeline = func(ctx context.Context, p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.DeleteCluster(p.env), nil
	}
	b.summary = func(_ context.Context, p *prepared, res *Result) []string {
		return []string{count(len(p.working(res)), "host") + " reset"}
	}
	return b
}

// rollbackCreate rolls back a creation: it resets the hosts as a delete does.
func rollbackCreate() behaviour {
	b := deleteCluster()
	b.rollBack = func(context.Context, *prepared, *v1alpha1.Operation) error { return nil }
	return b
}

// An InitOSRequest asks to prepare the operating system of hosts.
type InitOSRequest struct {
	Subject
	Options
}

func (r InitOSRequest) shared() sharedRequest {
	return sharedRequest{Subject: r.Subject, Options: r.Options}
}

func (r InitOSRequest) behaviour() behaviour { return initOS() }

// initOS prepares hosts.
func initOS() behaviour {
	b := usual()
	b.pipeline = func(ctx context.Context, p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.InitOS(p.env), nil
	}
	b.summary = func(_ context.Context, p *prepared, _ *Result) []string {
		return []string{count(len(p.hosts), "host") + " prepared"}
	}
	return b
}
