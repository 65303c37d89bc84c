package lifecycle

import (
	"context"
	"fmt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/secret"
)

// load reads what is on this machine and goes to hosts or into the cluster.
func (p *prepared) load(ctx context.Context) error {
	if err := p.loadPasswords(); err != nil {
		return err
	}
	return p.loadAddons(ctx)
}

// loadPasswords reads those of registries and what is logged in with where copies of
// backups are kept, for operations that set these up. They
// are in no plan and in no record: each reads them again.
func (p *prepared) loadPasswords() error {
	if !p.installs() {
		return p.svc.knownSigner(&p.env)
	}
	var err error
	if p.env.Passwords, err = passwords(p.env.Cluster); err != nil {
		return err
	}
	if p.env.CopySecrets, err = copySecrets(p.env.Cluster); err != nil {
		return err
	}
	if err := p.svc.signs(&p.env); err != nil {
		return err
	}
	p.env.Registry, err = p.svc.ownRegistry(p.env)
	return err
}

// passwords are those of a cluster's registries, by name.
func passwords(c *v1alpha1.Cluster) (map[string]secret.String, error) {
	var list diag.List
	out := make(map[string]secret.String, len(c.Spec.Registry.Auths))
	for i, a := range c.Spec.Registry.Auths {
		if a.PasswordFrom == nil {
			continue
		}
		password, err := secret.Resolve(*a.PasswordFrom)
		if err != nil {
			list = append(list, refused(idSecretUnreadable, fmt.Sprintf("there is no password of registry %s: %v", a.Registry, err), "put it back where passwordFrom says")...)
			list[len(list)-1].Path = fmt.Sprintf("spec.registry.auths[%d].passwordFrom", i)
		}
		out[a.Registry] = password
	}
	return out, list.Err()
}

// speaking says how this machine speaks to registries, of bundles and of charts: as
// hosts do.
func speaking(env module.Env) bundle.Registry {
	return bundle.Registry{Plain: env.Cluster.Spec.Registry.Insecure, Logins: env.Logins()}
}
