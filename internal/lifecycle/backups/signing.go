package backups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/secret"
)

// SetTrust selects which backup sets may be used besides those signed with the cluster's
// own key.
type SetTrust struct {
	// SignedBy is the public key of another manager that signed the set; "" means none.
	SignedBy string
	// Unverified allows a set without a valid signature. Anyone who can write that set
	// effectively becomes root on all hosts of the cluster.
	Unverified bool
	// WithKeys also restores lost keys of hosts from a set without a valid signature.
	// The author of the set may have these keys. It needs Unverified.
	WithKeys bool
}

// SigningKeys are the saved keys that sign the backup sets of clusters.
type SigningKeys struct{ Records records.Backend }

// Known returns the key of a cluster, nil if there is none yet.
func (s SigningKeys) Known(ctx context.Context, cluster string) (*backup.SigningKey, error) {
	key, _, err := s.keyOf(ctx, cluster, func() ([]byte, error) { return nil, records.ErrNotFound })
	if errors.Is(err, records.ErrNotFound) {
		return nil, nil
	}
	return key, err
}

// LoadOrCreate returns the key of a cluster and generates it if there is none yet.
func (s SigningKeys) LoadOrCreate(ctx context.Context, cluster string) (*backup.SigningKey, secret.String, error) {
	return s.keyOf(ctx, cluster, backup.NewSigningKey)
}

func (s SigningKeys) keyOf(ctx context.Context, cluster string, made func() ([]byte, error)) (*backup.SigningKey, secret.String, error) {
	text, err := s.Records.ClusterFiles().LoadOrCreate(ctx, cluster, records.BackupKey, made)
	if err != nil {
		return nil, secret.String{}, err
	}
	key, err := backup.ParseSigningKey(text)
	if err != nil {
		return nil, secret.String{}, fmt.Errorf("%s: %w", s.Records.ClusterFiles().Location(cluster, records.BackupKey), err)
	}
	return key, secret.New(string(text)), nil
}

// AddTo adds the signing key to the environment of a cluster whose hosts make backup sets.
func (s SigningKeys) AddTo(ctx context.Context, env *module.Env) error {
	if len(inspect.CopyTargets(env.Cluster)) == 0 {
		return nil
	}
	key, text, err := s.LoadOrCreate(ctx, env.Cluster.Name)
	if err != nil {
		return err
	}
	env.BackupKey, env.BackupSigner = text, key.PublicKey().String()
	return nil
}

// AddKnownTo adds only the public key to an environment, if there is one: operations that
// set up no copies keep it in the cluster's ConfigMap.
func (s SigningKeys) AddKnownTo(ctx context.Context, env *module.Env) error {
	if len(inspect.CopyTargets(env.Cluster)) == 0 {
		return nil
	}
	key, err := s.Known(ctx, env.Cluster.Name)
	if key != nil {
		env.BackupSigner = key.PublicKey().String()
	}
	return err
}

// Trusted returns the public keys whose signatures are accepted for sets of a cluster.
func (s SigningKeys) Trusted(ctx context.Context, cluster string, t SetTrust) ([]backup.PublicKey, error) {
	if t.WithKeys && !t.Unverified {
		return nil, diag.Refuse(idWithKeys, "--with-keys is only for unverified sets, but --unverified is not given",
			"omit --with-keys: lost keys are always restored from a verified set")
	}
	key, err := s.Known(ctx, cluster)
	if err != nil {
		return nil, err
	}
	out := []backup.PublicKey{key.PublicKey()}
	former, err := s.Records.Backups().LoadFormerSigners(ctx, cluster)
	if err != nil {
		return nil, err
	}
	for _, text := range former {
		if k, err := backup.ParsePublicKey(text); err == nil {
			out = append(out, k)
		}
	}
	if t.SignedBy != "" {
		other, err := backup.ParsePublicKey(t.SignedBy)
		if err != nil {
			return nil, diag.Refuse(idBadSigner, "--signed-by: "+err.Error(),
				"copy the key from the ConfigMap in the cluster of the manager that made the set: kubectl -n "+
					"kube-system get configmap slipway-cluster -o yaml")
		}
		out = append(out, other)
	}
	return out, nil
}

// verified reports whether one of the keys has signed a set.
func verified(set *backup.Set, keys []backup.PublicKey) bool {
	return slices.ContainsFunc(keys, func(k backup.PublicKey) bool { return k.IsSignerOf(set.Signature) })
}

// unverified returns the error for a set without a signature of a trusted key.
func unverified(set *backup.Set, cluster string) error {
	what := "the set is not signed"
	if set.Signature != nil {
		what = "the set was changed after it was signed, or was signed with a key that cluster " + cluster + " does not trust"
	}
	return diag.Refuse(string(backup.Unverified), what+": anyone who can write it would effectively become root on all hosts",
		"use a verified set, or, if you know where this one comes from, add --unverified")
}

// newestOf returns the newest set of a list that may be used: a verified one, unless
// unverified sets are allowed. The signature of an encrypted set can only be read with its
// key, so without that key the set counts as verified here: it is checked when it is
// opened.
func newestOf(list []SnapshotInfo, name string, ids []age.Identity, keys []backup.PublicKey, t SetTrust,
	progress event.Sink,
) (string, error) {
	passed := 0
	for _, i := range list {
		if i.KeysOnly {
			continue
		}
		set, err := backup.ReadHeader(i.File, ids)
		switch {
		case err == nil && set.KeysOnly():
		case err == nil && !t.Unverified && !verified(set, keys):
			passed++
			event.SendNote(progress, "", "skipping "+i.File+": it is not verified")
		default:
			return i.File, nil
		}
	}
	if passed > 0 {
		return "", diag.Refuse(string(backup.Unverified), fmt.Sprintf("no backup of cluster %s in the default directory is verified", name),
			"use a file with --from, or make a backup: slipway etcd snapshot "+name)
	}
	return "", diag.Refuse(string(backup.Unknown), "there is no backup of cluster "+name+" in the default directory",
		"use a file with --from, or make a backup: slipway etcd snapshot "+name)
}

// doubts returns the warnings about a set that is used anyway.
func doubts(set *backup.Set, file string, isVerified bool, t SetTrust) (out diag.List) {
	if !isVerified {
		hint := "continue only if you know where it comes from"
		if t.WithKeys {
			hint = "continue only if you know where it comes from: hosts get lost CA and service account keys from this set, " +
				"and its author may have these keys"
		}
		out = append(out, diag.Diagnostic{
			ID: string(backup.Unverified), Severity: diag.Warning, Hint: hint,
			Message: "the set is not verified: anyone who can write it effectively becomes root on all hosts",
		})
	}
	if says, ok := takenBy(file); ok && !says.Equal(set.Taken) {
		out = append(out, diag.Diagnostic{
			ID: idBackupRenamed, Severity: diag.Warning,
			Message: fmt.Sprintf("the file name has the time %s, but the set was taken at %s: an older set may have replaced a newer one",
				says.UTC().Format(time.RFC3339), set.Taken.UTC().Format(time.RFC3339)),
			Hint: "compare the set with other sets: slipway etcd snapshots " + set.Cluster,
		})
	}
	return out
}

// takenBy returns the time when a set was taken according to its file name.
func takenBy(file string) (time.Time, bool) {
	if n, ok := copies.ParseName(file); ok {
		return n.Taken, true
	}
	_, taken, _, ok := backup.ParseFileName(file)
	return taken, ok
}
