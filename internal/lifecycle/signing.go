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
	"slipway.dev/slipway/internal/module"
	recovery "slipway.dev/slipway/internal/module/backup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/store"
)

// SetTrust says which backup sets are used besides those that the cluster's own key has
// signed.
type SetTrust struct {
	// SignedBy is the public key of another manager that has signed the set; "" is none.
	SignedBy string
	// Unverified uses a set without a valid signature: whoever could write it becomes
	// as good as root on all hosts of the cluster.
	Unverified bool
	// WithKeys takes keys that hosts have lost from a set without a valid signature, too:
	// whoever wrote the set may have these keys. It needs Unverified.
	WithKeys bool
}

// knownKey returns the key that signs the backup sets of a cluster, as it is on record;
// nil if none was made yet.
func (s *service) knownKey(cluster string) (*backup.SigningKey, error) {
	key, _, err := s.keyOf(cluster, func() ([]byte, error) { return nil, store.ErrNotFound })
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return key, err
}

// signingKey returns that key, and has it be made if there is none yet.
func (s *service) signingKey(cluster string) (*backup.SigningKey, secret.String, error) {
	return s.keyOf(cluster, backup.NewSigningKey)
}

func (s *service) keyOf(cluster string, made func() ([]byte, error)) (*backup.SigningKey, secret.String, error) {
	text, err := s.Store.Made(cluster, store.BackupKey, made)
	if err != nil {
		return nil, secret.String{}, err
	}
	key, err := backup.ParseSigningKey(text)
	if err != nil {
		return nil, secret.String{}, fmt.Errorf("%s: %w", s.Store.FilePath(cluster, store.BackupKey), err)
	}
	return key, secret.New(string(text)), nil
}

// signs gives an environment the key of a cluster whose hosts make backup sets.
func (s *service) signs(env *module.Env) error {
	if len(targetsOf(env.Cluster)) == 0 {
		return nil
	}
	key, text, err := s.signingKey(env.Cluster.Name)
	if err != nil {
		return err
	}
	env.BackupKey, env.BackupSigner = text, key.Public().String()
	return nil
}

// findSigner plans with the key with which the cluster's hosts sign. Of several managers,
// the key of the first is kept: otherwise each would replace the other's key at every apply. Control
// planes that hold the cluster have the keys of its CAs, so they are trusted with this one.
// The manager takes the key over when the plan is carried out: see adoptSigner.
func (p *prepared) findSigner(ctx context.Context) error {
	if p.env.BackupSigner == "" || !p.installs() || !created(p.recorded) {
		return nil
	}
	for _, h := range p.hosts {
		if h.Conn == nil || !h.HasRole(v1alpha1.RoleControlPlane) || !module.Holds(h) {
			continue
		}
		text, err := answer(ctx, h.Conn, op.ReadFile{Path: recovery.SigningKey, Secret: true})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		key, bad := backup.ParseSigningKey(text)
		if err != nil || bad != nil {
			continue // it has none, or cannot be asked
		}
		signer := key.Public().String()
		if signer == p.env.BackupSigner {
			return nil
		}
		p.findings = append(p.findings, diag.Diagnostic{
			ID: idSignerAdopted, Severity: diag.Warning, Host: h.Name,
			Message: "hosts sign their backup sets with " + signer + ", and this manager signs with " + p.env.BackupSigner + ": the operation makes this manager use the key of the hosts",
			Hint:    "sets that this manager has signed stay trusted here; for a new key, remove the old one here and on the hosts first: docs/guide/backup.md",
		})
		p.formerSigner = p.env.BackupSigner
		p.env.BackupKey, p.env.BackupSigner = secret.New(string(text)), signer
		return nil
	}
	return nil
}

// adoptSigner makes the key that findSigner has found this manager's own. The caller holds
// the cluster's lock.
func (p *prepared) adoptSigner() error {
	if p.formerSigner == "" {
		return nil
	}
	return p.svc.Store.AdoptBackupKey(p.env.Cluster.Name, []byte(p.env.BackupKey.Reveal()), p.formerSigner)
}

// knownSigner gives an environment the public half of the key alone, as far as there is
// one: operations that set up no copies keep it in the cluster's record.
func (s *service) knownSigner(env *module.Env) error {
	if len(targetsOf(env.Cluster)) == 0 {
		return nil
	}
	key, err := s.knownKey(env.Cluster.Name)
	if key != nil {
		env.BackupSigner = key.Public().String()
	}
	return err
}

// trusted are the public keys whose signatures count for sets of a cluster.
func (s *service) trusted(cluster string, t SetTrust) ([]backup.PublicKey, error) {
	if t.WithKeys && !t.Unverified {
		return nil, refused(idWithKeys, "--with-keys is for sets that are not verified, and --unverified is not given",
			"leave it away: lost keys are always taken from a verified set; or add --unverified if you know where the set comes from")
	}
	key, err := s.knownKey(cluster)
	if err != nil {
		return nil, err
	}
	out := []backup.PublicKey{key.Public()}
	former, err := s.Store.Former(cluster)
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
			return nil, refused(idBadSigner, "--signed-by: "+err.Error(), "copy the key from the record of the manager that made the set: kubectl -n kube-system get configmap slipway-cluster -o yaml")
		}
		out = append(out, other)
	}
	return out, nil
}

// verified reports whether one of some keys has signed a set.
func verified(set *backup.Set, keys []backup.PublicKey) bool {
	return slices.ContainsFunc(keys, func(k backup.PublicKey) bool { return k.Verifies(set.Signature) })
}

// unverified is the refusal of a set that no trusted key has signed.
func unverified(set *backup.Set, cluster string) error {
	what := "the set is not signed"
	if set.Signature != nil {
		what = "the set was changed after it was signed, or a key has signed it that cluster " + cluster + " does not trust"
	}
	return refused(string(backup.Unverified), what+": whoever could write it would become as good as root on all hosts",
		"use a set that is verified: slipway etcd snapshots "+cluster+"; use this one only if you know where it comes from: --unverified")
}

// newestOf is the newest set of a list that may be used: one that is verified, unless
// others may be used as well. An encrypted set shows its signature to a holder of its
// key alone, so that one is taken for verified here: it is looked at when it is opened.
func newestOf(list []SnapshotInfo, name string, ids []age.Identity, keys []backup.PublicKey, t SetTrust, progress event.Sink) (string, error) {
	passed := 0
	for _, i := range list {
		if i.KeysOnly {
			continue
		}
		set, err := backup.Head(i.File, ids)
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
		return "", refused(string(backup.Unverified), fmt.Sprintf("no backup of cluster %s at its usual place is verified", name),
			"take one: slipway etcd snapshot "+name+"; or name a file with --from, and --unverified if you know where it comes from")
	}
	return "", refused(string(backup.Unknown), "there is no backup of cluster "+name+" at its usual place", "take one: slipway etcd snapshot "+name+"; or name its file with --from")
}

// doubts are what is told of a set that is used all the same.
func doubts(set *backup.Set, file string, isVerified bool, t SetTrust) (out diag.List) {
	if !isVerified {
		hint := "continue only if you know where it comes from; keys that hosts have lost are not taken from it; with --with-keys, they are"
		if t.WithKeys {
			hint = "continue only if you know where it comes from: hosts get the CA and service account keys that they have lost from this set; " +
				"whoever wrote it may have these keys and can use them after the restore"
		}
		out = append(out, diag.Diagnostic{
			ID: string(backup.Unverified), Severity: diag.Warning, Hint: hint,
			Message: "the set is not verified: whoever could write it becomes as good as root on all hosts",
		})
	}
	if says, ok := takenBy(file); ok && !says.Equal(set.Taken) {
		out = append(out, diag.Diagnostic{
			ID: idBackupRenamed, Severity: diag.Warning,
			Message: fmt.Sprintf("the name of the file says that the set was taken at %s, and it was taken at %s: an older set may have been put in the place of another", says.UTC().Format(time.RFC3339), set.Taken.UTC().Format(time.RFC3339)),
			Hint:    "compare it with other sets: slipway etcd snapshots " + set.Cluster,
		})
	}
	return out
}

// takenBy is when a set was taken, by the name of its file.
func takenBy(file string) (time.Time, bool) {
	if n, ok := copies.Parse(file); ok {
		return n.Taken, true
	}
	_, taken, _, ok := backup.Placed(file)
	return taken, ok
}
