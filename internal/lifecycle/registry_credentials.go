package lifecycle

import (
	"context"
	"fmt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/secret"
)

// load reads data from this machine that goes to hosts or into the cluster.
func (p *prepared) load(ctx context.Context) error {
	if err := p.loadPasswords(); err != nil {
		return err
	}
	return p.loadAddons(ctx)
}

// loadPasswords reads the passwords of registries and the credentials of copy targets,
// for operations that set them up. They are neither in plans nor in the saved state:
// each operation reads them again.
func (p *prepared) loadPasswords() error {
	if !p.kind.NeedsBundle() {
		return p.svc.knownSigner(&p.env)
	}
	var err error
	if p.env.Passwords, err = passwords(p.env.Cluster); err != nil {
		return err
	}
	if p.env.CopySecrets, err = inspect.ReadCopySecrets(p.env.Cluster); err != nil {
		return err
	}
	if err := p.svc.signs(&p.env); err != nil {
		return err
	}
	p.env.Registry, err = p.svc.ownRegistry(p.env)
	return err
}

// passwords returns the passwords of a cluster's registries by name.
func passwords(c *v1alpha1.Cluster) (map[string]secret.String, error) {
	var list diag.List
	out := make(map[string]secret.String, len(c.Spec.Registry.Auths))
	for i, a := range c.Spec.Registry.Auths {
		if a.PasswordFrom == nil {
			continue
		}
		password, err := secret.ResolveSource(*a.PasswordFrom)
		if err != nil {
			list = append(list,
				refused(idSecretUnreadable, fmt.Sprintf("cannot read the password of registry %s: %v", a.Registry, err),
					"restore the file or variable that is set in passwordFrom")...)
			list[len(list)-1].Path = fmt.Sprintf("spec.registry.auths[%d].passwordFrom", i)
		}
		out[a.Registry] = password
	}
	return out, list.Err()
}

// speaking returns this machine's settings for bundle and chart registries: the same as
// on hosts.
func speaking(env module.Env) bundle.Registry {
	return bundle.Registry{Plain: env.Cluster.Spec.Registry.Insecure, Logins: env.RegistryLogins()}
}
