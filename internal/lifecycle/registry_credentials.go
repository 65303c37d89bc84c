package lifecycle

import (
	"context"

	"slipway.dev/slipway/internal/lifecycle/bundlesource"
	"slipway.dev/slipway/internal/lifecycle/inspect"
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
		return p.svc.keys.AddKnownTo(&p.env)
	}
	var err error
	if p.env.Passwords, err = bundlesource.ReadPasswords(p.env.Cluster); err != nil {
		return err
	}
	if p.env.CopySecrets, err = inspect.ReadCopySecrets(p.env.Cluster); err != nil {
		return err
	}
	if err := p.svc.keys.AddTo(&p.env); err != nil {
		return err
	}
	p.env.Registry, err = p.svc.ownRegistry(p.env)
	return err
}
