package cli

import (
	"context"
	"io"
	"log/slog"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/cli/movecmd"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/move"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/process"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/dial"
	"slipway.dev/slipway/internal/spec/live"
	"slipway.dev/slipway/internal/store"
)

// Service is the part of package lifecycle that the commands use. Each command gets only
// one or two of its parts, so that a test of a command replaces only these.
type Service interface {
	planner
	clusterReader
	operationReader
	inspector
	backupManager
	hostRunner
	clusterAccess
	describer
	movecmd.Mover
}

// A planner prepares operations.
type planner interface {
	Prepare(ctx context.Context, r lifecycle.Request, progress event.Sink) (lifecycle.Prepared, error)
	PrepareSaved(ctx context.Context, p *plan.Plan, o lifecycle.ApplyOptions, progress event.Sink) (lifecycle.Prepared, error)
	PrepareResume(ctx context.Context, r lifecycle.ResumeRequest, progress event.Sink) (lifecycle.Prepared, error)
	PrepareRollback(ctx context.Context, r lifecycle.RollbackRequest, progress event.Sink) (lifecycle.Prepared, error)
}

// A clusterReader reads the saved clusters.
type clusterReader interface {
	Clusters(ctx context.Context) ([]savedstate.ClusterSummary, error)
	Cluster(ctx context.Context, name string) (*v1alpha1.Cluster, error)
}

// An operationReader reads recorded operations, and stops a running one.
type operationReader interface {
	Operations(ctx context.Context, cluster string) ([]v1alpha1.Operation, error)
	Operation(ctx context.Context, id string) (*v1alpha1.Operation, error)
	Events(ctx context.Context, id string, follow bool, fn func(event.Event) error) error
	Cancel(ctx context.Context, name string, progress event.Sink) error
}

// An inspector reads the state of hosts and clusters, and changes nothing.
type inspector interface {
	Precheck(ctx context.Context, r lifecycle.Request, progress event.Sink) (diag.List, error)
	Info(ctx context.Context, name string, progress event.Sink) (*inspect.Info, error)
	Certificates(ctx context.Context, of lifecycle.Subject, within time.Duration, progress event.Sink) (*inspect.Certificates, error)
	Etcd(ctx context.Context, name string, progress event.Sink) (*inspect.EtcdReport, error)
	Dump(ctx context.Context, name string, w io.Writer, progress event.Sink) (diag.List, error)
}

// A backupManager takes, lists and tests backups of etcd.
type backupManager interface {
	Snapshot(ctx context.Context, name string, o backups.SnapshotOptions, progress event.Sink) (*backups.SnapshotInfo, error)
	Snapshots(ctx context.Context, name string) ([]backups.SnapshotInfo, error)
	Scheduled(ctx context.Context, name string, progress event.Sink) (*inspect.Scheduled, error)
	Copies(ctx context.Context, name string, progress event.Sink) (*inspect.CopyReport, error)
	Drill(ctx context.Context, name string, o backups.DrillOptions, progress event.Sink) (*backups.DrillReport, error)
}

// A hostRunner runs programs on hosts, copies files, and opens login shells.
type hostRunner interface {
	Targets(ctx context.Context, selector, cluster string) (targets []hostexec.Target, warnings diag.List, err error)
	Exec(ctx context.Context, w hostexec.Work, p hostexec.Program) ([]hostexec.HostResult, error)
	Copy(ctx context.Context, w hostexec.Work, c hostexec.Copy) ([]hostexec.HostResult, error)
	Login(ctx context.Context, t hostexec.Target, sh remote.Shell) (int, error)
}

// A clusterAccess gives users access to the API of a cluster.
type clusterAccess interface {
	Kubeconfig(ctx context.Context, name string, live bool) (conf []byte, warnings diag.List, err error)
	AddMerged(name, path string) error
	Merged(name string) ([]string, error)
	Kubectl(ctx context.Context, name string, args []string, in io.Reader, out, errw io.Writer) (int, error)
}

// A describer writes cluster files and bundle manifests for running clusters.
type describer interface {
	Describe(ctx context.Context, kubeconfig []byte, o live.Options) (*live.Description, error)
	Manifest(ctx context.Context, r access.ManifestRequest) (text []byte, warnings diag.List, err error)
}

// Settings configure a service.
type Settings struct {
	Store     *store.Store
	Catalogue *release.Catalogue
	Cache     string
	Home      string // the user's, for SSH keys
	Now       func() time.Time
	Log       *slog.Logger
	Warn      func(diag.List) // is called with problems of damaged state files
}

// NewService creates the service that commands call.
type NewService func(context.Context, Settings) (Service, error)

// lifecycleService is the real service. It knows the kubeconfigs on this machine too.
type lifecycleService struct {
	*lifecycle.Service
	preferences store.Preferences
	mover       *move.Mover
}

// Move moves a cluster to an API with Cluster objects.
func (s lifecycleService) Move(ctx context.Context, name string, to move.Target, progress event.Sink) error {
	return s.mover.Move(ctx, name, to, progress)
}

// AddMerged saves that a cluster's kubeconfig was merged into a file, given by its
// absolute path.
func (s lifecycleService) AddMerged(name, path string) error {
	return s.preferences.AddMergedKubeconfig(name, path)
}

// Merged returns the files into which a cluster's kubeconfig was merged.
func (s lifecycleService) Merged(name string) ([]string, error) {
	return s.preferences.ListMergedKubeconfigs(name)
}

// NewLifecycleService creates the real service.
func NewLifecycleService(ctx context.Context, s Settings) (Service, error) {
	files, err := s.Store.Files(ctx)
	if err != nil {
		return nil, err
	}
	return NewServiceWithRecords(s, s.Store, files), nil
}

// NewServiceWithRecords creates the real service with records that can be elsewhere than on this machine.
func NewServiceWithRecords(s Settings, saved records.Backend, files records.Files) Service {
	dialer := dial.New(nil)
	svc := lifecycle.New(lifecycle.Config{
		Records: saved, Files: files, Owner: s.Store.Owner(), Catalogue: s.Catalogue, Cache: s.Cache, Home: s.Home,
		Connect: dialer.Connect, Resolve: dialer.ResolveLogin, Shell: dialer.StartShell, Now: s.Now, Log: s.Log, Warn: s.Warn,
		BootID: process.BootID(),
	})
	mover := move.New(move.Config{
		View: svc.View, Resolve: dialer.ResolveLogin, KnownKeys: dialer.ListKnownKeys, Log: s.Log,
		Dialer: hostconn.Dialer{Connect: dialer.Connect, KnownHosts: files.KnownHosts(), Home: s.Home, Log: s.Log},
	})
	return lifecycleService{Service: svc, preferences: s.Store.Preferences(), mover: mover}
}

// services creates the service when a command first needs it.
type services struct {
	*workspace
	create  NewService
	service Service
}

// openService returns the service, which it creates once.
func (s *services) openService(ctx context.Context) (Service, error) {
	if s.service != nil {
		return s.service, nil
	}
	saved, err := s.openStore()
	if err != nil {
		return nil, err
	}
	cat, err := s.loadCatalogue()
	if err != nil {
		return nil, err
	}
	level := slog.LevelWarn
	if s.debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: level}))
	s.service, err = s.create(ctx, Settings{
		Store: saved, Catalogue: cat, Cache: s.dirs.Cache, Home: s.dirs.User, Now: s.env.Now, Log: log, Warn: s.newDiagnosticPrinter(),
	})
	return s.service, markRefused(err)
}

// An opener returns a part of the service.
type opener[T any] func(context.Context) (T, error)

func (s *services) openPlanner(ctx context.Context) (planner, error) { return s.openService(ctx) }
func (s *services) openClusters(ctx context.Context) (clusterReader, error) {
	return s.openService(ctx)
}

func (s *services) openOperations(ctx context.Context) (operationReader, error) {
	return s.openService(ctx)
}

func (s *services) openInspector(ctx context.Context) (inspector, error) { return s.openService(ctx) }

func (s *services) openBackups(ctx context.Context) (backupManager, error) { return s.openService(ctx) }

func (s *services) openHosts(ctx context.Context) (hostRunner, error) { return s.openService(ctx) }

func (s *services) openAccess(ctx context.Context) (clusterAccess, error) { return s.openService(ctx) }

func (s *services) openMover(ctx context.Context) (movecmd.Mover, error) { return s.openService(ctx) }

func (s *services) openDescriber(ctx context.Context) (describer, error) { return s.openService(ctx) }

// openForCluster returns a part of the service and the name of the cluster to use.
func openForCluster[T any](ctx context.Context, clusters *clusterChooser, open opener[T], args []string) (svc T, name string, err error) {
	if name, err = clusters.chooseCluster(ctx, args); err != nil {
		return svc, "", err
	}
	svc, err = open(ctx)
	return svc, name, err
}
