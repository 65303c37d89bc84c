package lifecycle

import (
	"cmp"
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
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/registry"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// An InitRegistryRequest asks to set up the private registry of a cluster.
type InitRegistryRequest struct {
	Subject
	Options
}

func (r InitRegistryRequest) shared() sharedRequest {
	return sharedRequest{Subject: r.Subject, Options: r.Options}
}

func (r InitRegistryRequest) behaviour() behaviour { return initRegistry() }

// initRegistry sets up the private registry.
func initRegistry() behaviour {
	b := usual()
	b.accepts = becomesRegistry
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.InitRegistry(p.env, parts), nil
	}
	b.planned = refuseOtherLogin
	b.summary = registryReady
	return b
}

// becomesRegistry refuses to create a registry if the description has none, or if the
// existing registry cannot be changed to match the description.
func becomesRegistry(recorded, wanted *v1alpha1.Cluster) error {
	if _, ok := spec.RegistryHost(wanted); !ok {
		return diag.Refuse(spec.IDNoRegistryHost, "no host of cluster "+wanted.Name+" has the role registry",
			"add the role to one host: roles: [registry]")
	}
	if recorded == nil {
		return nil
	}
	if err := spec.RegistryChange(recorded, wanted).Err(); err != nil || !savedstate.IsCreated(recorded) ||
		equal(known(recorded), known(wanted)) {
		return err
	}
	if recorded.Spec.Registry.Private == nil {
		return diag.Refuse(idRegistryInUse,
			"cluster "+wanted.Name+" is running, and its nodes are not configured for a private registry; init registry does not configure nodes",
			"create the registry and configure the nodes: slipway apply -f FILE")
	}
	return oneSided(wanted)
}

// known returns the settings of the cluster's registry that nodes depend on.
func known(c *v1alpha1.Cluster) []any {
	if c.Spec.Registry.Private == nil {
		return nil
	}
	own := *c.Spec.Registry.Private
	own.Directory, own.MirrorOf = "", nil // only the registry uses Directory, only nodes use MirrorOf
	return []any{spec.RegistryName(c), own}
}

// oneSided is the error for a change of a registry without the nodes that use it.
func oneSided(c *v1alpha1.Cluster) error {
	return diag.Refuse(idRegistryInUse,
		"the nodes of cluster "+c.Name+" use its registry with the saved name, credentials and CA; init registry does not change nodes",
		"change the registry and the nodes: slipway apply -f FILE")
}

// refuseOtherLogin refuses a password or CA that differs from the one of the registry of a
// running cluster, although the file refers to it in the same way.
func refuseOtherLogin(p *prepared) error {
	if !savedstate.IsCreated(p.recorded) {
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

// maxRegistryPassword is how many bytes of a password bcrypt uses, with which registries
// hash passwords.
const maxRegistryPassword = 72

// ownRegistry returns the secrets of the cluster's registry, nil if it has none. They are
// the user's, or are generated once and saved with the cluster. Plans contain none of
// them.
func (s *Service) ownRegistry(ctx context.Context, env module.Env) (_ *module.Registry, err error) {
	if _, ok := spec.RegistryHost(env.Cluster); !ok {
		return nil, nil
	}
	own, r := env.Cluster.Spec.Registry.Private, &module.Registry{}
	if r.Password, err = s.registryPassword(ctx, env.Cluster.Name, own); err != nil {
		return nil, err
	}
	r.Made = own.PasswordFrom == nil
	if r.Hash, err = s.registryHash(ctx, env.Cluster.Name, r); err != nil {
		return nil, err
	}
	if own.CertFile == "" {
		return r, s.registryAuthority(ctx, env, r)
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

func (s *Service) registryPassword(ctx context.Context, cluster string, own *v1alpha1.PrivateRegistry) (secret.String, error) {
	if own.PasswordFrom == nil {
		text, err := s.Records.ClusterFiles().LoadOrCreate(ctx, cluster, records.RegistryPassword,
			func() ([]byte, error) { return []byte(rand.Text()), nil })
		return secret.New(string(text)), err
	}
	password, err := secret.ResolveSource(*own.PasswordFrom)
	list := diag.Refuse(idSecretUnreadable, "", "restore the file or variable that is set in passwordFrom")
	list[0].Path = "spec.registry.private.passwordFrom"
	switch {
	case err != nil:
		list[0].Message = fmt.Sprintf("cannot read the password of the cluster's registry: %v", err)
		return password, list
	case len(password.Reveal()) > maxRegistryPassword:
		list[0].Message = fmt.Sprintf("the password of the cluster's registry has %d bytes; a registry accepts at most %d",
			len(password.Reveal()), maxRegistryPassword)
		list[0].Hint = "choose a shorter password"
		return password, list
	}
	return password, nil
}

// mostHashes is how many hashes of registry passwords are kept, so that a rollback finds
// the hash of the previous password.
const mostHashes = 3

// registryHash returns a hash of the registry's password: a saved one, or a new one. The
// saved hashes are sorted by their last use, latest first; the oldest are removed. If two
// processes write at the same time, one hash is lost: then the one on the host counts.
func (s *Service) registryHash(ctx context.Context, cluster string, r *module.Registry) (string, error) {
	text, err := s.Records.ClusterFiles().Load(ctx, cluster, records.RegistryHashes)
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
	hashes = append([]string{hash}, hashes[:min(len(hashes), mostHashes-1)]...)
	return hash, s.Records.ClusterFiles().Save(ctx, cluster, records.RegistryHashes, []byte(strings.Join(hashes, "\n")+"\n"))
}

// registryAuthority sets the CA that signs the registry's certificate, and generates it
// if there is none.
func (s *Service) registryAuthority(ctx context.Context, env module.Env, r *module.Registry) error {
	name := env.Cluster.Name
	var err error
	r.CAKey, err = s.Records.ClusterFiles().LoadOrCreate(ctx, name, records.RegistryCAKey, func() ([]byte, error) {
		_, text, err := pki.NewKey()
		return text, err
	})
	if err != nil {
		return err
	}
	r.CA, err = s.Records.ClusterFiles().LoadOrCreate(ctx, name, records.RegistryCA, func() ([]byte, error) {
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

// registryReady describes how to use the registry.
func registryReady(_ context.Context, p *prepared, _ *Result) []string {
	own, name := p.env.Cluster.Spec.Registry.Private, spec.RegistryName(p.env.Cluster)
	out := []string{"Registry at https://" + name + ", with the images of the bundle"}
	if own.PasswordFrom == nil {
		out = append(out,
			"Log in: docker login "+name+" -u "+own.Username+" --password-stdin < "+
				p.svc.Records.ClusterFiles().Location(p.env.Cluster.Name, records.RegistryPassword))
	}
	if p.env.Registry.CAFile != "" {
		ca := cmp.Or(own.CAFile, p.svc.Records.ClusterFiles().Location(p.env.Cluster.Name, records.RegistryCA))
		out = append(out, "Its CA, for machines outside the cluster: "+ca)
	}
	return out
}
