package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/store"
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

// knownKey returns the saved key that signs the backup sets of a cluster, nil if there is
// none yet.
func (s *Service) knownKey(cluster string) (*backup.SigningKey, error) {
	key, _, err := s.keyOf(cluster, func() ([]byte, error) { return nil, store.ErrNotFound })
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return key, err
}

// signingKey returns that key and generates it if there is none yet.
func (s *Service) signingKey(cluster string) (*backup.SigningKey, secret.String, error) {
	return s.keyOf(cluster, backup.NewSigningKey)
}

func (s *Service) keyOf(cluster string, made func() ([]byte, error)) (*backup.SigningKey, secret.String, error) {
	text, err := s.Store.ClusterFiles().LoadOrCreate(cluster, store.BackupKey, made)
	if err != nil {
		return nil, secret.String{}, err
	}
	key, err := backup.ParseSigningKey(text)
	if err != nil {
		return nil, secret.String{}, fmt.Errorf("%s: %w", s.Store.ClusterFiles().Path(cluster, store.BackupKey), err)
	}
	return key, secret.New(string(text)), nil
}

// signs adds the signing key to the environment of a cluster whose hosts make backup sets.
func (s *Service) signs(env *module.Env) error {
	if len(inspect.CopyTargets(env.Cluster)) == 0 {
		return nil
	}
	key, text, err := s.signingKey(env.Cluster.Name)
	if err != nil {
		return err
	}
	env.BackupKey, env.BackupSigner = text, key.PublicKey().String()
	return nil
}

// findSigner makes the plan use the key with which the cluster's hosts sign. With several
// managers, the key of the first is kept: otherwise each manager would replace the key of
// the other at every apply. Control planes that hold the cluster have its CA keys, so they
// are trusted with this key too. The manager takes over the key when the plan is applied:
// see adoptSigner.
func (p *prepared) findSigner(ctx context.Context) error {
	if p.env.BackupSigner == "" || !p.kind.NeedsBundle() || !created(p.recorded) {
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
func (p *prepared) adoptSigner() error {
	if p.formerSigner == "" {
		return nil
	}
	return p.svc.Store.Backups().AdoptKey(p.env.Cluster.Name, []byte(p.env.BackupKey.Reveal()), p.formerSigner)
}

// knownSigner adds only the public key to an environment, if there is one: operations that
// set up no copies keep it in the cluster's ConfigMap.
func (s *Service) knownSigner(env *module.Env) error {
	if len(inspect.CopyTargets(env.Cluster)) == 0 {
		return nil
	}
	key, err := s.knownKey(env.Cluster.Name)
	if key != nil {
		env.BackupSigner = key.PublicKey().String()
	}
	return err
}

// trusted returns the public keys whose signatures are accepted for sets of a cluster.
func (s *Service) trusted(cluster string, t SetTrust) ([]backup.PublicKey, error) {
	if t.WithKeys && !t.Unverified {
		return nil, refused(idWithKeys, "--with-keys is only for unverified sets, but --unverified is not given",
			"omit --with-keys: lost keys are always restored from a verified set")
	}
	key, err := s.knownKey(cluster)
	if err != nil {
		return nil, err
	}
	out := []backup.PublicKey{key.PublicKey()}
	former, err := s.Store.Backups().LoadFormerSigners(cluster)
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
			return nil, refused(idBadSigner, "--signed-by: "+err.Error(),
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
	return refused(string(backup.Unverified), what+": anyone who can write it would effectively become root on all hosts",
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
			note(progress, "", "skipping "+i.File+": it is not verified")
		default:
			return i.File, nil
		}
	}
	if passed > 0 {
		return "", refused(string(backup.Unverified), fmt.Sprintf("no backup of cluster %s in the default directory is verified", name),
			"use a file with --from, or make a backup: slipway etcd snapshot "+name)
	}
	return "", refused(string(backup.Unknown), "there is no backup of cluster "+name+" in the default directory",
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
