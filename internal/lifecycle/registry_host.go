package lifecycle

import (
	"cmp"
	"context"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// An InitRegistryRequest asks to set up the private registry of a cluster.
type InitRegistryRequest struct {
	Subject
	Options
}

func (r InitRegistryRequest) shared() sharedRequest {
	return sharedRequest{Subject: r.Subject, Options: r.Options}
}

func (r InitRegistryRequest) behaviour() behaviour { return initRegistry() }

// initRegistry sets up the private registry.
func initRegistry() behaviour {
	b := usual()
	b.accepts = becomesRegistry
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.InitRegistry(p.env, parts), nil
	}
	b.planned = refuseOtherLogin
	b.summary = registryReady
	return b
}

// becomesRegistry refuses to create a registry if the description has none, or if the
// existing registry cannot be changed to match the description.
func becomesRegistry(recorded, wanted *v1alpha1.Cluster) error {
	if _, ok := spec.RegistryHost(wanted); !ok {
		return diag.Refuse(spec.IDNoRegistryHost, "no host of cluster "+wanted.Name+" has the role registry",
			"add the role to one host: roles: [registry]")
	}
	if recorded == nil {
		return nil
	}
	if err := spec.RegistryChange(recorded, wanted).Err(); err != nil || !savedstate.IsCreated(recorded) ||
		equal(known(recorded), known(wanted)) {
		return err
	}
	if recorded.Spec.Registry.Private == nil {
		return diag.Refuse(idRegistryInUse,
			"cluster "+wanted.Name+" is running, and its nodes are not configured for a private registry; init registry does not configure nodes",
			"create the registry and configure the nodes: slipway apply -f FILE")
	}
	return oneSided(wanted)
}

// known returns the settings of the cluster's registry that nodes depend on.
func known(c *v1alpha1.Cluster) []any {
	if c.Spec.Registry.Private == nil {
		return nil
	}
	own := *c.Spec.Registry.Private
	own.Directory, own.MirrorOf = "", nil // only the registry uses Directory, only nodes use MirrorOf
	return []any{spec.RegistryName(c), own}
}

// oneSided is the error for a change of a registry without the nodes that use it.
func oneSided(c *v1alpha1.Cluster) error {
	return diag.Refuse(idRegistryInUse,
		"the nodes of cluster "+c.Name+" use its registry with the saved name, credentials and CA; init registry does not change nodes",
		"change the registry and the nodes: slipway apply -f FILE")
}

// refuseOtherLogin refuses a password or CA that differs from the one of the registry of a
// running cluster, although the file refers to it in the same way.
func refuseOtherLogin(p *prepared) error {
	if !savedstate.IsCreated(p.recorded) {
		return nil
	}
	for _, s := range p.plan.Steps {
		if slices.ContainsFunc(s.Changes, func(c plan.OpChange) bool {
			return slices.Contains([]string{module.RegistryUsers, module.RegistryTrusted, module.RegistryCA}, c.Target)
		}) {
			return oneSided(p.env.Cluster)
		}
	}
	return nil
}

// registryReady describes how to use the registry.
func registryReady(_ context.Context, p *prepared, _ *Result) []string {
	own, name := p.env.Cluster.Spec.Registry.Private, spec.RegistryName(p.env.Cluster)
	out := []string{"Registry at https://" + name + ", with the images of the bundle"}
	if own.PasswordFrom == nil {
		out = append(out,
			"Log in: docker login "+name+" -u "+own.Username+" --password-stdin < "+
				p.svc.Records.ClusterFiles().Location(p.env.Cluster.Name, records.RegistryPassword))
	}
	if p.env.Registry.CAFile != "" {
		ca := cmp.Or(own.CAFile, p.svc.Records.ClusterFiles().Location(p.env.Cluster.Name, records.RegistryCA))
		out = append(out, "Its CA, for machines outside the cluster: "+ca)
	}
	return out
}
