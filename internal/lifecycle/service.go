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
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

// A Config configures a service. All fields except Resolve, Dial, Log, Warn and Source
// are required.
type Config struct {
	Store     *store.Store
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
	// Source is the source for building bundles: bundle.Auto if empty.
	Source string
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
	s := &Service{Config: c, waits: usualWaits()}
	s.delegate()
	return s
}

// warn reports saved items that are skipped.
func (s *Service) warn(damaged diag.List) {
	if s.Warn == nil || len(damaged) == 0 {
		return
	}
	for i := range damaged {
		damaged[i].Severity = diag.Warning
	}
	s.Warn(damaged)
}

// refused returns the error for input that is refused for one reason.
func refused(id, message, hint string) diag.List {
	return diag.List{{ID: id, Severity: diag.Error, Message: message, Hint: hint}}
}

// record returns the saved cluster, nil if there is none.
func (s *Service) record(name string) (*v1alpha1.Cluster, error) {
	c, err := s.Store.Clusters().Load(name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return c, err
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
	p.recorded, err = s.record(name)
	if err = errors.Join(err, refuseUnbounded(r.rollout.MaxUnavailable)); err != nil {
		return nil, err
	}
	recorded := p.recorded
	if recorded == nil && (r.Cluster == nil || p.kind.NeedsCluster()) {
		return nil, fmt.Errorf("cluster %s: %w", name, ErrNotFound)
	}
	if p.target != nil {
		return p.target, nil
	}
	if recorded != nil && (p.kind.ChangesCluster() || p.behaviour.writesManifests()) {
		if err := cmp.Or(s.refuseDuringEtcdSwap(recorded), s.refuseDuringUpgrade(recorded), refuseUnbegunUpgrade(p.kind, recorded),
			s.refuseDuringRuntimeChange(p.kind, recorded), p.refuseWhileUnfinished()); err != nil && !p.behaviour.instead(p, err) {
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
	if p.kind.ChangesCluster() && !p.kind.ChangesVersion() && created(recorded) {
		if err := s.changeable(recorded, wanted); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// changeable refuses changes that an existing cluster does not support.
func (s *Service) changeable(recorded, wanted *v1alpha1.Cluster) (err error) {
	var been []*v1alpha1.Cluster
	is, want := recorded.Spec, wanted.Spec
	if !reflect.DeepEqual(is.ControlPlaneEndpoint, want.ControlPlaneEndpoint) || is.Kubernetes.ProxyMode != want.Kubernetes.ProxyMode {
		if been, err = s.descriptionsSince(recorded); err != nil {
			return err
		}
	}
	return spec.FindForbiddenChanges(recorded, wanted, been...).Err()
}

// descriptionsSince returns the descriptions of a cluster that hosts may have applied, oldest first.
// The first one is from the latest successful operation, or from the creation if none succeeded
// after it. The others are from all operations that have begun since. Hosts that were
// force-removed since then are left out.
func (s *Service) descriptionsSince(recorded *v1alpha1.Cluster) (out []*v1alpha1.Cluster, err error) {
	ops, err := s.Store.Operations().List(recorded.Name)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, o := range ops {
		kind := operation.Kind(o.Spec.Type)
		if !kind.CreatesCluster() && !kind.ChangesCluster() || o.Status.StartTime == nil {
			continue
		}
		if hasForgottenNodes(o) {
			lost = append(lost, o.Spec.Nodes...)
			continue
		}
		was, err := s.plannedClusterWithout(o.Name, lost)
		if err != nil {
			return nil, err
		}
		out = append(out, was)
		if kind.CreatesCluster() || o.Status.Phase == v1alpha1.OperationSucceeded {
			slices.Reverse(out)
			return out, nil
		}
	}
	return nil, nil // only the saved description is known
}

// hasUnfinishedEndpointChange reports whether a change of the control plane endpoint is unfinished. The next
// operation continues that change on all hosts.
func (s *Service) hasUnfinishedEndpointChange(recorded *v1alpha1.Cluster) (bool, error) {
	if !created(recorded) || recorded.Status.Phase == v1alpha1.PhaseRunning {
		return false, nil
	}
	been, err := s.descriptionsSince(recorded)
	return slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool {
		return !reflect.DeepEqual(c.Spec.ControlPlaneEndpoint, recorded.Spec.ControlPlaneEndpoint)
	}), err
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
		_, err := s.resolve(ctx, named, version, named.Spec.Bundle)
		return err
	}
	return from.inFile(spec.Validate(c, spec.ValidateOptions{Supported: supported, Recorded: recorded})).Err()
}

// releases returns the catalogue. If it does not have the version, later minors of
// bundles are added: of bundles in the cache and of the named ones, "" for none.
func (s *Service) releases(ctx context.Context, c *v1alpha1.Cluster, version string, named ...string) (*release.Catalogue, error) {
	if _, err := s.Catalogue.ResolveVersion(version); err == nil {
		return s.Catalogue, nil
	}
	env := module.Env{Cluster: c}
	var err error
	if env.Passwords, err = passwords(c); err != nil {
		return nil, err
	}
	named = slices.DeleteFunc(named, func(name string) bool { return name == "" })
	return bundle.ExtendCatalogue(ctx, s.Catalogue, s.Cache, speaking(env), named...)
}

// resolve returns the release for a version of a cluster.
func (s *Service) resolve(ctx context.Context, c *v1alpha1.Cluster, version string, named ...string) (release.Release, error) {
	known, err := s.releases(ctx, c, version, named...)
	if err != nil {
		return release.Release{}, err
	}
	return known.ResolveVersion(version)
}

// release returns the release of a cluster. A running cluster can be maintained even if
// its bundle, the only source of its component versions, no longer exists.
func (s *Service) release(ctx context.Context, c *v1alpha1.Cluster) (release.Release, error) {
	version := c.Spec.Kubernetes.Version
	r, err := s.resolve(ctx, c, version, c.Spec.Bundle)
	if err != nil && c.Status.Version == version {
		return s.Catalogue.WithVersion(version, release.Components{}).ResolveVersion(version)
	}
	return r, err
}

// environment returns the environment for pipelines of a cluster.
func (s *Service) environment(ctx context.Context, c *v1alpha1.Cluster) (module.Env, error) {
	rel, err := s.release(ctx, c)
	if err != nil {
		return module.Env{}, err
	}
	return module.Env{Cluster: c, Release: rel}, nil
}

// source finds or builds the bundle of a cluster.
type source struct {
	svc    *Service
	env    module.Env
	arches []string
	opened atomic.Pointer[bundle.Bundle] // set by a task, read while blobs are served
}

func newSource(s *Service, env module.Env, hosts []*engine.Host) *source {
	var arches []string
	for _, h := range hosts {
		if a := module.HostArch(h); a != "" && !slices.Contains(arches, a) {
			arches = append(arches, a)
		}
	}
	if len(arches) == 0 {
		arches = []string{runtime.GOARCH}
	}
	slices.Sort(arches)
	return &source{svc: s, env: env, arches: arches}
}

// architectures returns the architectures of the bundle, nil if it is not open yet.
func (b *source) architectures() []string {
	if opened := b.opened.Load(); opened != nil {
		return opened.Manifest().Arches
	}
	return nil
}

// path returns the path of the bundle, "" if it has to be built.
func (b *source) path() string {
	if named := b.env.Cluster.Spec.Bundle; named != "" {
		return named
	}
	keys, _ := b.keys() // Have reports invalid keys
	path, _ := bundle.FindCached(b.svc.Cache, b.env.Release.Kubernetes, b.arches, keys...)
	return path
}

// keys returns the keys of which one must have signed the bundle.
func (b *source) keys() ([]bundle.Key, error) {
	var keys []bundle.Key
	for _, text := range b.env.Cluster.Spec.BundleKeys {
		k, err := bundle.ReadKey(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// Have opens the bundle if it exists.
func (b *source) Have(ctx context.Context) (module.Content, error) {
	if opened := b.opened.Load(); opened != nil {
		return opened, nil
	}
	keys, err := b.keys()
	if err != nil {
		return nil, err
	}
	path := b.path()
	if path == "" {
		return nil, b.mayMake(keys)
	}
	opened, err := bundle.Open(ctx, path, b.svc.Cache, speaking(b.env), keys...)
	if err != nil {
		return nil, err
	}
	if v := opened.Manifest().Kubernetes; v != b.env.Release.Kubernetes {
		return nil, refused(idBundleVersion, fmt.Sprintf("the bundle has Kubernetes %s, but the cluster needs %s", v, b.env.Release.Kubernetes),
			"use another bundle, or set spec.kubernetes.version to "+v)
	}
	if err := errors.Join(opened.CheckSigned(keys), b.checkDocker(opened)); err != nil {
		return nil, err
	}
	b.opened.Store(opened)
	return opened, nil
}

// mayMake returns an error if the bundle cannot be built during the operation, because
// such a bundle has no signature and no Docker.
func (b *source) mayMake(keys []bundle.Key) error {
	if b.env.UsesDocker() { // Docker releases need a checksum that the user provides
		return bundle.WithoutDocker(b.env.Release.Kubernetes, b.arches,
			"the cache has no bundle of "+b.env.Release.Kubernetes+", and bundles for runtime docker are not built automatically")
	}
	if len(keys) == 0 {
		return nil
	}
	return refused(bundle.IDUnsigned,
		"the cache has no bundle of "+b.env.Release.Kubernetes+" for "+strings.Join(b.arches, ", ")+
			" with a signature of a key of spec.bundleKeys",
		"add a signed bundle with 'slipway bundle import' or 'slipway bundle pull'")
}

// checkDocker refuses, for a cluster with Docker, a bundle without Docker or with images
// that Docker cannot load.
func (b *source) checkDocker(opened *bundle.Bundle) error {
	if !b.env.UsesDocker() {
		return nil
	}
	return errors.Join(opened.CheckDocker(b.arches), opened.CheckTags())
}

// Make builds the bundle.
func (b *source) Make(ctx context.Context, tell func(event.Event)) (module.Content, error) {
	o := b.options()
	o.Progress = (&building{now: b.svc.Now, tell: tell}).hear
	opened, err := bundle.Build(ctx, o)
	if err != nil {
		return nil, err
	}
	b.opened.Store(opened)
	return opened, nil
}

// Describe returns what Make would do.
func (b *source) Describe() string { return "build for Kubernetes " + b.env.Release.Kubernetes }

func (b *source) options() bundle.BuildOptions {
	return bundle.BuildOptions{
		Kubernetes: b.env.Release.Kubernetes, Arches: b.arches, Source: b.svc.Source,
		Cache: b.svc.Cache, Owner: b.svc.Store.Owner(), Releases: b.svc.Catalogue,
	}
}

// records adapts the store to the interface of the record module.
type records struct{ *store.Store }

func (r records) Kubeconfig(name string) ([]byte, error) {
	text, err := r.Store.Kubeconfigs().Load(name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return text, err
}

func (r records) SaveKubeconfig(name string, content []byte) error {
	return r.Store.Kubeconfigs().Save(name, content)
}

func (r records) TakeOff(cluster, host string) (left []string, err error) {
	c, err := r.Store.Clusters().Load(cluster)
	if err != nil {
		return nil, err
	}
	spec.RemoveHosts(c, host)
	for _, h := range c.Spec.Hosts {
		left = append(left, h.Name)
	}
	return left, r.Store.Clusters().Save(c, nil)
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
