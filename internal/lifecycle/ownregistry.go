package lifecycle

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/registry"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

// becomesRegistry refuses to make a registry that the description has none of, or
// that one which is there cannot become.
func becomesRegistry(k Kind, recorded, wanted *v1alpha1.Cluster) error {
	if k != InitRegistry {
		return nil
	}
	if _, ok := spec.RegistryHost(wanted); !ok {
		return refused(spec.IDNoRegistryHost, "no host of cluster "+wanted.Name+" has the role registry", "give it to one of them: roles: [registry]")
	}
	if recorded == nil {
		return nil
	}
	if err := spec.RegistryChange(recorded, wanted).Err(); err != nil || !created(recorded) || equal(known(recorded), known(wanted)) {
		return err
	}
	if recorded.Spec.Registry.Private == nil {
		return refused(idRegistryInUse, "cluster "+wanted.Name+" runs, and its nodes know no registry of its own yet, of which init registry tells them nothing",
			"have both: slipway apply -f FILE")
	}
	return oneSided(wanted)
}

// known is what nodes know of the cluster's own registry, and by what it knows them.
func known(c *v1alpha1.Cluster) []any {
	if c.Spec.Registry.Private == nil {
		return nil
	}
	own := *c.Spec.Registry.Private
	own.Directory, own.MirrorOf = "", nil // the one it knows alone, the other they
	return []any{spec.RegistryName(c), own}
}

// oneSided refuses to change a registry without the nodes that use it.
func oneSided(c *v1alpha1.Cluster) error {
	return refused(idRegistryInUse, "nodes of cluster "+c.Name+" use its registry by the name, the login and the authority that are on record, and init registry touches no node",
		"change both: slipway apply -f FILE")
}

// otherLogin refuses a password or an authority that is another than what the
// registry of a cluster that runs has, though the file names it as before.
func (p *prepared) otherLogin() error {
	if p.request.Kind != InitRegistry || !created(p.recorded) {
		return nil
	}
	for _, s := range p.plan.Steps {
		if slices.ContainsFunc(s.Changes, func(c plan.OpChange) bool {
			return slices.Contains([]string{module.RegistryUsers, module.RegistryTrusted, module.RegistryCA}, c.Target)
		}) {
			return oneSided(p.env.Cluster)
		}
	}
	return nil
}

// maxRegistryPassword is how many bytes of a password bcrypt uses, by which registries
// know passwords.
const maxRegistryPassword = 72

// ownRegistry is what is secret of the cluster's own registry: the user's, or made
// once and kept with the records. It is nil for a cluster without one. Nothing of it
// is in a plan.
func (s *service) ownRegistry(env module.Env) (_ *module.Registry, err error) {
	if _, ok := spec.RegistryHost(env.Cluster); !ok {
		return nil, nil
	}
	own, r := env.Cluster.Spec.Registry.Private, &module.Registry{}
	if r.Password, err = s.registryPassword(env.Cluster.Name, own); err != nil {
		return nil, err
	}
	r.Made = own.PasswordFrom == nil
	if r.Hash, err = s.registryHash(env.Cluster.Name, r); err != nil {
		return nil, err
	}
	if own.CertFile == "" {
		return r, s.registryAuthority(env, r)
	}
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{own.CertFile, &r.Cert}, {own.KeyFile, &r.Key}, {own.CAFile, &r.CA}} {
		if f.name == "" { // nodes trust its authority anyway
			continue
		}
		if *f.to, err = bounded.ReadArgument(f.name, bounded.Argument); err != nil {
			return nil, fmt.Errorf("reading the registry's certificate: %w", err)
		}
	}
	r.CAFile = own.CAFile
	return r, nil
}

func (s *service) registryPassword(cluster string, own *v1alpha1.PrivateRegistry) (secret.String, error) {
	if own.PasswordFrom == nil {
		text, err := s.Store.Made(cluster, store.RegistryPassword, func() ([]byte, error) { return []byte(rand.Text()), nil })
		return secret.New(string(text)), err
	}
	password, err := secret.Resolve(*own.PasswordFrom)
	list := refused(idSecretUnreadable, "", "put it back where passwordFrom says")
	list[0].Path = "spec.registry.private.passwordFrom"
	switch {
	case err != nil:
		list[0].Message = fmt.Sprintf("there is no password of the cluster's registry: %v", err)
		return password, list
	case len(password.Reveal()) > maxRegistryPassword:
		list[0].Message = fmt.Sprintf("the password of the cluster's registry has %d bytes; a registry accepts at most %d", len(password.Reveal()), maxRegistryPassword)
		list[0].Hint = "choose a shorter password"
		return password, list
	}
	return password, nil
}

// mostHashes is how many hashes of registry passwords are kept: a rollback to the password
// before finds its hash again.
const mostHashes = 3

// registryHash returns a hash of the registry's password: one that is kept, or a new one.
// The latest in use comes first; the least recently used are removed. If
// two processes write at once, one of them is not kept: then the one on the host counts.
func (s *service) registryHash(cluster string, r *module.Registry) (string, error) {
	text, err := s.Store.Kept(cluster, store.RegistryHashes)
	if err != nil {
		return "", err
	}
	hashes := strings.Fields(string(text))
	at := slices.IndexFunc(hashes, func(hash string) bool { return registry.Matches(r, hash) })
	if at == 0 {
		return hashes[0], nil
	}
	var hash string
	if at > 0 {
		hash = hashes[at]
		hashes = slices.Delete(hashes, at, at+1)
	} else if hash, err = registry.Hash(r); err != nil {
		return "", err
	}
	hashes = append([]string{hash}, hashes[:min(len(hashes), mostHashes-1)]...)
	return hash, s.Store.Keep(cluster, store.RegistryHashes, []byte(strings.Join(hashes, "\n")+"\n"))
}

// registryAuthority has an authority at hand that signs the registry's certificate.
func (s *service) registryAuthority(env module.Env, r *module.Registry) error {
	name := env.Cluster.Name
	var err error
	r.CAKey, err = s.Store.Made(name, store.RegistryCAKey, func() ([]byte, error) {
		_, text, err := pki.NewKey()
		return text, err
	})
	if err != nil {
		return err
	}
	r.CAFile = s.Store.FilePath(name, store.RegistryCA)
	r.CA, err = s.Store.Made(name, store.RegistryCA, func() ([]byte, error) {
		key, err := pki.Key(r.CAKey)
		if err != nil {
			return nil, err
		}
		now := s.Now()
		c := &x509.Certificate{
			Subject:   pkix.Name{CommonName: "registry of " + name},
			NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(env.Cluster.Spec.Kubernetes.Certificates.CAValidity.Duration),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		}
		return pki.Sign(c, c, key.Public(), key)
	})
	return err
}

// registryReady says how the registry is used.
func (p *prepared) registryReady() []string {
	own, name := p.env.Cluster.Spec.Registry.Private, spec.RegistryName(p.env.Cluster)
	out := []string{"Registry at https://" + name + ", with the images of the bundle"}
	if own.PasswordFrom == nil {
		out = append(out, "Log in: docker login "+name+" -u "+own.Username+" --password-stdin < "+p.svc.Store.FilePath(p.env.Cluster.Name, store.RegistryPassword))
	}
	if f := p.env.Registry.CAFile; f != "" {
		out = append(out, "Its authority, for machines outside the cluster: "+f)
	}
	return out
}
