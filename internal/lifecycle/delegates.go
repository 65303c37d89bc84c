package lifecycle

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/bundlesource"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/lifecycle/supportbundle"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// waitTimes limit waits that package inspect does not know.
type waitTimes struct {
	// between is how long to wait, between two minors of an upgrade, for pods that were
	// moved.
	between time.Duration
	// cleanup limits the cleanup after a stopped operation.
	cleanup time.Duration
}

func usualWaits() waitTimes {
	return waitTimes{between: 5 * time.Minute, cleanup: 30 * time.Second}
}

// savedClusters are the saved clusters, with errors for front ends.
type savedClusters struct {
	*savedstate.View
	*bundlesource.Finder
}

// Kubeconfig returns the admin kubeconfig, with the first address at which the API is
// ready. Live asks control planes instead of the store; warnings name the control planes
// whose kubeconfig was refused.
func (s *Service) Kubeconfig(ctx context.Context, name string, live bool) (conf []byte, warnings diag.List, err error) {
	conf, warnings, err = s.Access.Kubeconfig(ctx, name, live)
	conf, err = savedstate.ConvertNotFound(conf, err)
	return conf, warnings, err
}

// dialer returns the dialer for queries and work outside of operations.
func (s *Service) dialer() hostconn.Dialer {
	return hostconn.Dialer{Connect: s.Connect, KnownHosts: s.Files.KnownHosts(), Home: s.Home, Log: s.Log}
}

// parts are the parts of the service that are separate packages.
type parts struct {
	*access.Access
	*backups.Backups
	*hostexec.Executor
	*inspect.Inspector
	*supportbundle.Collector
	*savedstate.View
	keys    backups.SigningKeys
	past    history.History
	bundles *bundlesource.Finder
}

// delegate sets up the parts.
func (s *Service) delegate() {
	s.View = &savedstate.View{Records: s.Records, Warn: s.Warn, Object: s.object().ID}
	s.past = history.History{View: s.View}
	s.bundles = bundlesource.New(bundlesource.Config{
		Owner: s.Owner, Catalogue: s.Catalogue, Cache: s.Cache, Source: s.Source, FilesDir: s.object().FilesDir, Now: s.Now,
	})
	saved := savedClusters{s.View, s.bundles}
	s.keys = backups.SigningKeys{Records: s.Records}
	s.Executor = hostexec.New(hostexec.Config{
		Clusters: saved, Dialer: s.dialer(), Resolve: s.Resolve, Shell: s.Shell, Warn: s.WarnOf,
	})
	s.Access = access.New(access.Config{
		Records: s.Records, Files: s.Files, Owner: s.Owner, Clusters: saved, Catalogue: s.Catalogue,
		Cache: s.Cache, Dialer: s.dialer(), DialAPI: s.Dial, Now: s.Now,
	})
	s.Inspector = inspect.New(inspect.Config{
		Clusters: saved, Records: s.Records, Access: s.Access, Catalogue: s.Catalogue, Dialer: s.dialer(), DialAPI: s.Dial, Now: s.Now,
		SigningKey: s.keys.Known, CAIDs: backups.CAIDs,
	})
	s.Backups = backups.New(backups.Config{
		Clusters: saved, Records: s.Records, Files: s.Files, Owner: s.Owner,
		Keys: s.keys, Access: s.Access, Inspector: s.Inspector, Executor: s.Executor,
		Dialer: s.dialer(), FilesDir: s.object().FilesDir, Now: s.Now, Log: s.Log,
	})
	s.Collector = supportbundle.New(supportbundle.Config{
		Clusters: saved, Records: s.Records, Inspector: s.Inspector, Secrets: s.readableSecrets, Now: s.Now,
	})
}

// Certificates returns the certificates on every host of a cluster. It warns about
// certificates that expire within a time; 0 selects the default.
func (s *Service) Certificates(ctx context.Context, of Subject, within time.Duration, progress event.Sink) (*inspect.Certificates, error) {
	c, err := s.described(ctx, of)
	if err != nil {
		return nil, err
	}
	return s.CheckCertificates(ctx, c, within, progress)
}

// described returns a cluster, from its file or otherwise from the saved state, with all
// defaults. A saved cluster whose creation has not finished is refused.
func (s *Service) described(ctx context.Context, of Subject) (*v1alpha1.Cluster, error) {
	if of.Cluster == nil {
		c, err := s.Cluster(ctx, of.Name)
		return c, errors.Join(err, unrecorded(c))
	}
	recorded, err := s.Saved(ctx, of.Cluster.Name)
	if err != nil {
		return nil, err
	}
	return s.asRecorded(of.Cluster, recorded), nil
}

// readableSecrets returns the secrets of a cluster's registry and copy targets that this
// machine can read.
func (s *Service) readableSecrets(ctx context.Context, c *v1alpha1.Cluster) []string {
	out := s.registrySecrets(ctx, c)
	if keys, err := inspect.ReadCopySecrets(c); err == nil {
		for _, key := range keys {
			out = append(out, key.Reveal())
		}
	}
	return out
}

// registrySecrets returns the password of the cluster's registry, if this machine can read
// it, and the login with it.
func (s *Service) registrySecrets(ctx context.Context, c *v1alpha1.Cluster) []string {
	p := c.Spec.Registry.Private
	if p == nil {
		return nil
	}
	var password string
	if p.PasswordFrom != nil {
		if value, err := secret.ResolveSource(*p.PasswordFrom); err == nil { // one that cannot be read is nowhere else
			password = value.Reveal()
		}
	} else if text, err := s.Records.ClusterFiles().Load(ctx, c.Name, records.RegistryPassword); err == nil {
		password = string(text)
	}
	if password == "" {
		return nil
	}
	return []string{password, base64.StdEncoding.EncodeToString([]byte(cmp.Or(p.Username, spec.DefaultRegistryUser) + ":" + password))}
}
