package lifecycle

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
)

// findSigner makes the plan use the key with which the cluster's hosts sign. With several
// managers, the key of the first is kept: otherwise each manager would replace the key of
// the other at every apply. Control planes that hold the cluster have its CA keys, so they
// are trusted with this key too. The manager takes over the key when the plan is applied:
// see adoptSigner.
func (p *prepared) findSigner(ctx context.Context) error {
	if p.env.BackupSigner == "" || !p.kind.NeedsBundle() || !savedstate.IsCreated(p.recorded) {
		return nil
	}
	for _, h := range p.hosts {
		if h.Conn == nil || !h.HasRole(v1alpha1.RoleControlPlane) || !module.IsJoined(h) {
			continue
		}
		text, err := hostconn.Query(ctx, h.Conn, op.ReadFile{Path: etcdbackup.SigningKey, Secret: true})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		key, bad := backup.ParseSigningKey(text)
		if err != nil || bad != nil {
			continue // it has no key or cannot be queried
		}
		signer := key.PublicKey().String()
		if signer == p.env.BackupSigner {
			return nil
		}
		p.findings = append(p.findings, diag.Diagnostic{
			ID: idSignerAdopted, Severity: diag.Warning, Host: h.Name,
			Message: "hosts sign their backup sets with " + signer + ", and this manager signs with " + p.env.BackupSigner +
				": the operation makes this manager use the key of the hosts",
			Hint: "no action is needed: backup sets that this manager signed remain trusted",
		})
		p.formerSigner = p.env.BackupSigner
		p.env.BackupKey, p.env.BackupSigner = secret.New(string(text)), signer
		return nil
	}
	return nil
}

// adoptSigner saves the key that findSigner found as this manager's key. The caller holds
// the cluster's lock.
func (p *prepared) adoptSigner(ctx context.Context) error {
	if p.formerSigner == "" {
		return nil
	}
	return p.svc.Records.Backups().AdoptKey(ctx, p.env.Cluster.Name, []byte(p.env.BackupKey.Reveal()), p.formerSigner)
}
