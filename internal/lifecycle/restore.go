package lifecycle

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/pipeline"
)

// A RestoreEtcdRequest asks to restore the etcd data of a saved cluster from a backup set.
type RestoreEtcdRequest struct {
	Name string
	Options
	// Backup is the file of the set to restore. Identity is the file of the key that
	// decrypts it, "" if it is not encrypted.
	Backup   string
	Identity string
	// SetTrust selects the sets that may be restored.
	backups.SetTrust
}

func (r RestoreEtcdRequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options}
}

func (r RestoreEtcdRequest) behaviour() behaviour { return restoreEtcd(&r) }

// restoreEtcd restores the data of etcd from a backup set.
func restoreEtcd(r *RestoreEtcdRequest) behaviour {
	var set *backups.OpenedSet
	var earlier backups.BegunRestore
	b := usual()
	b.wanted = savedOrFile
	b.begin = func(ctx context.Context, p *prepared) error { return mayMaintain(p.recorded, "a restore") }
	b.prepare = func(ctx context.Context, p *prepared, progress event.Sink) (err error) {
		set, err = r.openSet(ctx, p, earlier, progress)
		p.blobs.backup, p.marks = set, set.MarkPaths(p.env.Cluster)
		return err
	}
	b.warnings = func(*prepared) diag.List { return set.Warnings() }
	b.pipeline = func(ctx context.Context, p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.RestoreEtcd(p.env, set.Source), nil
	}
	b.needs = needsPart
	b.losses = func(p *prepared) []string { return set.Losses(p.env.Cluster.Name) }
	b.summary = func(_ context.Context, p *prepared, res *Result) []string { return p.restored(set.Set, res) }
	b.save = func(_ *prepared, o *v1alpha1.OperationParameters) {
		o.Backup, o.Identity, o.SignedBy, o.Unverified, o.WithKeys = r.Backup, r.Identity, r.SignedBy, r.Unverified, r.WithKeys
		o.Verified, o.Restores = set.IsVerified(), set.Key()
	}
	b.resume = func(o *v1alpha1.OperationParameters) {
		r.Backup, r.Identity = o.Backup, o.Identity
		r.SetTrust = backups.SetTrust{SignedBy: o.SignedBy, Unverified: o.Unverified, WithKeys: o.WithKeys}
		earlier = backups.BegunRestore{Key: o.Restores, Verified: o.Verified}
	}
	b.close = func() error { return set.Close() }
	return b
}

// openSet opens the backup set of the request. It makes the paths in the request absolute.
func (r *RestoreEtcdRequest) openSet(
	ctx context.Context, p *prepared, earlier backups.BegunRestore, progress event.Sink,
) (*backups.OpenedSet, error) {
	note(progress, "", "verifying the backup set")
	if _, _, err := p.svc.CurrentKubeconfig(ctx, p.env); err != nil { // the API is queried with it at the end
		return nil, err
	}
	before, err := p.svc.past.CountEtcdReplacements(ctx, p.env.Cluster.Name, p.continues)
	if err != nil {
		return nil, err
	}
	selected := backups.Selection{File: r.Backup, Identity: r.Identity, SetTrust: r.SetTrust, Before: before, Earlier: earlier}
	set, err := p.svc.Backups.Open(ctx, &selected, p.env)
	r.Backup, r.Identity = selected.File, selected.Identity
	return set, err
}

// restored describes the restored data and what remains to be done.
func (p *prepared) restored(set *backup.Set, res *Result) []string {
	return []string{
		fmt.Sprintf("etcd was restored to the data of %s: revision %d, %d keys, on %s",
			set.Taken.UTC().Format(time.DateTime+" MST"), set.Snapshot.Revision, set.Snapshot.Keys,
			count(len(p.env.EtcdMembers(p.env.Cluster)), "member")),
		"the previous data is kept on each of these hosts in " + facts.DirEtcd + "/before-" + res.Operation +
			": remove it when you no longer need it",
	}
}
