// Package registrysecrets has the secrets of the private registries of clusters: the password with its hashes, and the
// CA. Each one is the user's, or is generated once and saved with the cluster.
package registrysecrets

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/registry"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// IDSecretUnreadable is the ID of a password that cannot be read, as in package spec.
const IDSecretUnreadable = "secret-unreadable"

// Secrets loads the secrets of registries. All fields are required.
type Secrets struct {
	// Saved has the generated secrets.
	Saved records.ClusterFiles
	// Files are the records as files.
	Files records.Files
	Now   func() time.Time
}

// MaxPassword is how many bytes of a password bcrypt uses, with which registries
// hash passwords.
const MaxPassword = 72

// Load returns the secrets of the cluster's registry, nil if it has none. They are
// the user's, or are generated once and saved with the cluster. Plans contain none of
// them.
func (s *Secrets) Load(ctx context.Context, env module.Env) (_ *module.Registry, err error) {
	if _, ok := spec.RegistryHost(env.Cluster); !ok {
		return nil, nil
	}
	own, r := env.Cluster.Spec.Registry.Private, &module.Registry{}
	if r.Password, err = s.readPassword(ctx, env.Cluster.Name, own); err != nil {
		return nil, err
	}
	r.Made = own.PasswordFrom == nil
	if r.Hash, err = s.findHash(ctx, env.Cluster.Name, r); err != nil {
		return nil, err
	}
	if own.CertFile == "" {
		return r, s.createCA(ctx, env, r)
	}
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{own.CertFile, &r.Cert}, {own.KeyFile, &r.Key}, {own.CAFile, &r.CA}} {
		if f.name == "" { // nodes trust its CA anyway
			continue
		}
		if *f.to, err = bounded.ReadArgument(f.name, bounded.Argument); err != nil {
			return nil, fmt.Errorf("reading the registry's certificate: %w", err)
		}
	}
	r.CAFile = own.CAFile
	return r, nil
}

func (s *Secrets) readPassword(ctx context.Context, cluster string, own *v1alpha1.PrivateRegistry) (secret.String, error) {
	if own.PasswordFrom == nil {
		text, err := s.Saved.LoadOrCreate(ctx, cluster, records.RegistryPassword,
			func() ([]byte, error) { return []byte(rand.Text()), nil })
		return secret.New(string(text)), err
	}
	password, err := secret.ResolveSource(*own.PasswordFrom)
	list := diag.Refuse(IDSecretUnreadable, "", "restore the file or variable that is set in passwordFrom")
	list[0].Path = "spec.registry.private.passwordFrom"
	switch {
	case err != nil:
		list[0].Message = fmt.Sprintf("cannot read the password of the cluster's registry: %v", err)
		return password, list
	case len(password.Reveal()) > MaxPassword:
		list[0].Message = fmt.Sprintf("the password of the cluster's registry has %d bytes; a registry accepts at most %d",
			len(password.Reveal()), MaxPassword)
		list[0].Hint = "choose a shorter password"
		return password, list
	}
	return password, nil
}

// MaxHashes is how many hashes of registry passwords are kept, so that a rollback finds
// the hash of the previous password.
const MaxHashes = 3

// findHash returns a hash of the registry's password: a saved one, or a new one. The
// saved hashes are sorted by their last use, latest first; the oldest are removed. If two
// processes write at the same time, one hash is lost: then the one on the host counts.
func (s *Secrets) findHash(ctx context.Context, cluster string, r *module.Registry) (string, error) {
	text, err := s.Saved.Load(ctx, cluster, records.RegistryHashes)
	if err != nil {
		return "", err
	}
	hashes := strings.Fields(string(text))
	at := slices.IndexFunc(hashes, func(hash string) bool { return registry.MatchesPassword(r, hash) })
	if at == 0 {
		return hashes[0], nil
	}
	var hash string
	if at > 0 {
		hash = hashes[at]
		hashes = slices.Delete(hashes, at, at+1)
	} else if hash, err = registry.HashPassword(r); err != nil {
		return "", err
	}
	hashes = append([]string{hash}, hashes[:min(len(hashes), MaxHashes-1)]...)
	return hash, s.Saved.Save(ctx, cluster, records.RegistryHashes, []byte(strings.Join(hashes, "\n")+"\n"))
}

// createCA sets the CA that signs the registry's certificate, and creates it
// if there is none.
func (s *Secrets) createCA(ctx context.Context, env module.Env, r *module.Registry) error {
	name := env.Cluster.Name
	var err error
	r.CAKey, err = s.Saved.LoadOrCreate(ctx, name, records.RegistryCAKey, func() ([]byte, error) {
		_, text, err := pki.NewKey()
		return text, err
	})
	if err != nil {
		return err
	}
	r.CA, err = s.Saved.LoadOrCreate(ctx, name, records.RegistryCA, func() ([]byte, error) {
		key, err := pki.ParseKey(r.CAKey)
		if err != nil {
			return nil, err
		}
		now := s.Now()
		c := &x509.Certificate{
			Subject:   pkix.Name{CommonName: "registry of " + name},
			NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(env.Cluster.Spec.Kubernetes.Certificates.CAValidity.Duration),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		}
		return pki.SignCertificate(c, c, key.Public(), key)
	})
	if err == nil {
		r.CAFile, err = s.Files.ClusterFile(ctx, name, records.RegistryCA)
	}
	return err
}
