package lifecycle

import (
	"context"

	"slipway.dev/slipway/internal/lifecycle/bundlesource"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/registrysecrets"
)

// load reads data from this machine that goes to hosts or into the cluster.
func (p *prepared) load(ctx context.Context) error {
	if err := p.loadPasswords(ctx); err != nil {
		return err
	}
	return p.loadAddons(ctx)
}

// loadPasswords reads the passwords of registries and the credentials of copy targets,
// for operations that set them up. They are neither in plans nor in the saved state:
// each operation reads them again.
func (p *prepared) loadPasswords(ctx context.Context) error {
	if !p.kind.NeedsBundle() {
		return p.svc.keys.AddKnownTo(ctx, &p.env)
	}
	var err error
	if p.env.Passwords, err = bundlesource.ReadPasswords(p.env.Cluster); err != nil {
		return err
	}
	if p.env.CopySecrets, err = inspect.ReadCopySecrets(p.env.Cluster); err != nil {
		return err
	}
	if err := p.svc.keys.AddTo(ctx, &p.env); err != nil {
		return err
	}
	secrets := registrysecrets.Secrets{Saved: p.svc.Records.ClusterFiles(), Files: p.svc.Files, Now: p.svc.Now}
	p.env.Registry, err = secrets.Load(ctx, p.env)
	return err
}
