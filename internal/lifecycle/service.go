package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/filesdir"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// A Config configures a service. All fields except Owner, Resolve, Dial, Log, Warn and Source
// are required.
type Config struct {
	Records records.Backend
	// Files are the records as files.
	Files records.Files
	// Owner is the owner of files that the service creates for the user; nil is the user who runs
	// the program.
	Owner     *fileowner.Owner
	Catalogue *release.Catalogue
	// Cache is the directory for downloads, builds and bundles.
	Cache string
	// Home is the user's home, for SSH keys.
	Home string
	// Connect connects to a host.
	Connect func(context.Context, v1alpha1.Host, remote.Options) (remote.Host, error)
	// Resolve returns how Connect logs in to a host; nil uses the cluster's settings.
	Resolve func(v1alpha1.Host, remote.Options) (remote.Login, error)
	// Shell runs a login shell on a host and returns its exit code.
	Shell func(context.Context, v1alpha1.Host, remote.Shell, remote.Options) (int, error)
	// Dial opens a connection from this machine to an API; nil uses the network.
	Dial kube.DialFunc
	// Now is the clock for saved times.
	Now func() time.Time
	Log *slog.Logger
	// Warn, if not nil, is called with saved items that are skipped because they are
	// damaged.
	Warn func(diag.List)
	// BootID identifies the current boot of this machine, "" if it is not known.
	BootID string
	// Source is the source for building bundles: bundle.Auto if empty.
	Source string
	// Object is the Cluster object of all operations of this service, nil for clusters of files.
	Object *ClusterObject
	// Server is the address of this management server, "" for the command line.
	Server string
}

// A Service manages the lifecycle of clusters. A front end declares small interfaces with
// the methods that it needs. A Service has the methods of its parts too.
type Service struct {
	Config
	parts
	waits waitTimes
}

// New returns the service for the clusters whose state is saved on this machine.
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Object != nil {
		c.Records = filesdir.New(c.Records, c.Object.FilesDir)
	}
	s := &Service{Config: c, waits: usualWaits()}
	s.delegate()
	return s
}

// subject returns the wanted cluster, and sets the saved one. It returns an error if the
// request is not possible for the saved cluster. It sets the names of added or removed
// hosts.
func (p *prepared) subject(ctx context.Context) (wanted *v1alpha1.Cluster, err error) {
	s, r := p.svc, &p.request
	name := r.Name
	if r.Cluster != nil {
		name = r.Cluster.Name
	}
	if p.recorded, err = s.Saved(ctx, name); p.recorded != nil {
		p.seen, err = s.Records.Clusters().LoadNodes(ctx, p.recorded)
	}
	if err = errors.Join(err, refuseUnbounded(r.rollout.MaxUnavailable)); err != nil {
		return nil, err
	}
	recorded := p.recorded
	if recorded == nil && (r.Cluster == nil || p.kind.NeedsCluster()) {
		return nil, fmt.Errorf("cluster %s: %w", name, savedstate.ErrNotFound)
	}
	if p.target != nil {
		return p.target, nil
	}
	if recorded != nil && (p.kind.ChangesCluster() || p.behaviour.writesManifests()) {
		err := cmp.Or(s.past.RefuseDuringEtcdSwap(ctx, recorded), s.past.RefuseDuringUpgrade(ctx, recorded),
			history.RefuseUnbegunUpgrade(p.kind, recorded), s.past.RefuseDuringRuntimeChange(ctx, p.kind, recorded), p.refuseWhileUnfinished())
		if err != nil && !p.behaviour.instead(ctx, p, err) {
			return nil, err
		}
	}
	wanted, saved, err := p.behaviour.wanted(ctx, p)
	if saved || err != nil {
		return wanted, err
	}
	paths := spec.Paths{Dir: r.Dir, Home: s.Home}
	if err := s.valid(ctx, r.Subject, wanted, recorded, paths); err != nil {
		return nil, err
	}
	if err := spec.MakePathsAbsolute(wanted, paths); err != nil {
		return nil, err
	}
	if err := errors.Join(spec.CheckFiles(wanted, paths).Err(), p.behaviour.accepts(recorded, wanted)); err != nil {
		return nil, err
	}
	if p.kind.ChangesCluster() && !p.kind.ChangesVersion() && savedstate.IsCreated(recorded) {
		if err := s.changeable(ctx, recorded, wanted); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// changeable refuses changes that an existing cluster does not support.
func (s *Service) changeable(ctx context.Context, recorded, wanted *v1alpha1.Cluster) (err error) {
	var been []*v1alpha1.Cluster
	is, want := recorded.Spec, wanted.Spec
	if !reflect.DeepEqual(is.ControlPlaneEndpoint, want.ControlPlaneEndpoint) || is.Kubernetes.ProxyMode != want.Kubernetes.ProxyMode {
		if been, err = s.past.DescriptionsSince(ctx, recorded); err != nil {
			return err
		}
	}
	return spec.FindForbiddenChanges(recorded, wanted, been...).Err()
}

// complete fills in defaults. A saved cluster keeps its version, its bundle and the
// addresses of its hosts if the file does not set them.
func (s *Service) complete(c, recorded *v1alpha1.Cluster) *v1alpha1.Cluster {
	c = c.DeepCopy()
	version := s.Catalogue.DefaultVersion()
	if recorded != nil {
		spec.KeepLogin(c, recorded)
		version = recorded.Spec.Kubernetes.Version
		if c.Spec.Bundle == "" && cmp.Or(c.Spec.Kubernetes.Version, version) == version && isThere(recorded.Spec.Bundle) {
			c.Spec.Bundle = recorded.Spec.Bundle // from "create --bundle"
		}
		if ep, was := &c.Spec.ControlPlaneEndpoint, recorded.DeepCopy().Spec.ControlPlaneEndpoint; ep.Mode == "" &&
			was.Mode != v1alpha1.EndpointNone {
			was.Domain, was.Port = ep.Domain, ep.Port
			*ep = was // one control plane fewer does not change the mode
		}
		known := map[string]string{}
		for _, h := range recorded.Spec.Hosts {
			known[h.Name+"@"+h.Address] = h.InternalAddress
		}
		for i := range c.Spec.Hosts {
			h := &c.Spec.Hosts[i]
			h.InternalAddress = cmp.Or(h.InternalAddress, known[h.Name+"@"+h.Address])
		}
	}
	spec.SetDefaults(c, spec.DefaultOptions{KubernetesVersion: version})
	return c
}

// isThere reports whether a bundle is available. If its file was moved away, the cache is
// used instead.
func isThere(bundle string) bool {
	if !spec.IsBundlePath(bundle) {
		return true
	}
	_, err := os.Stat(bundle)
	return err == nil
}

// valid refuses an invalid cluster, and a version for which there is neither a minor in
// the catalogue nor a bundle.
func (s *Service) valid(ctx context.Context, from Subject, c, recorded *v1alpha1.Cluster, p spec.Paths) error {
	named := c.DeepCopy()
	if err := spec.MakePathsAbsolute(named, p); err != nil {
		return err
	}
	supported := func(version string) error {
		_, err := s.bundles.ResolveRelease(ctx, named, version, named.Spec.Bundle)
		return err
	}
	return from.inFile(spec.Validate(c, spec.ValidateOptions{Supported: supported, Recorded: recorded})).Err()
}

// note sends a note about an event before an operation has begun.
func note(to event.Sink, host, message string) { event.SendNote(to, host, message) }

// connecting describes how a host is logged in to, and what determined this. Connect
// reports errors.
func (s *Service) connecting(h v1alpha1.Host, opts remote.Options) string {
	if s.Resolve != nil {
		if l, err := s.Resolve(h, opts); err == nil {
			return "connecting to " + l.String()
		}
	}
	return "connecting"
}

// specBytes returns a cluster without secrets as JSON, for plans.
func specBytes(c *v1alpha1.Cluster) ([]byte, error) {
	red := spec.RedactCluster(c)
	red.Status = v1alpha1.ClusterStatus{}
	return json.Marshal(red)
}
