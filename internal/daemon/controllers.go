package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"slipway.dev/slipway/internal/admission"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/controller"
	"slipway.dev/slipway/internal/controller/metrics"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/operator/manifests"
	"slipway.dev/slipway/internal/process"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote/dial"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/store/kube/archive"
	"slipway.dev/slipway/internal/version"
)

// controllerSettings configure the controllers of a server or an operator.
type controllerSettings struct {
	// backupDir has the backup sets, tempDir temporary files, cacheDir the bundles. url is the address of the API.
	backupDir, tempDir, cacheDir, url string
	// cacheLimit limits the bundles, in bytes; 0 for no limit.
	cacheLimit int64

	files   archive.Files       // the archive; it can be nil
	process *controller.Process // of an operator; nil for a server
	sharing *controller.Sharing // with other processes; nil for none
	log     *slog.Logger
}

// newControllers returns the controllers of a server or an operator, for controlplane.Config.
func newControllers(c controllerSettings) (func(context.Context, *rest.Config) error, error) {
	config, err := c.newConfig(nil)
	if err != nil {
		return nil, err
	}
	config.Metrics, config.Process, config.Sharing = metrics.New(), c.process, c.sharing
	if c.process == nil {
		_ = legacyregistry.Registerer().Register(config.Metrics) // a second server of a test binary keeps the first one's
	}
	return func(ctx context.Context, client *rest.Config) error {
		config := config
		c.setClient(&config, client)
		ctx, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		work.Go(func() { cacheLimit{c.cacheDir, c.cacheLimit, c.log}.keep(ctx) })
		err := controller.Run(ctx, config)
		stop()
		work.Wait()
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}, nil
}

// newSharing returns how this process shares clusters with the others that have a Lease in a namespace.
func newSharing(namespace string) (*controller.Sharing, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the name of this machine: %w", err)
	}
	return &controller.Sharing{
		Namespace: namespace, Group: manifests.MembersGroup, Identity: manifests.NewIdentity(host), Release: version.Get().Version,
	}, nil
}

// newConfig returns the configuration of controllers, or of one operation.
func (c *controllerSettings) newConfig(client *rest.Config) (out controller.Config, err error) {
	catalogue, err := release.Load("")
	if err != nil {
		return out, err
	}
	// An agent belongs to the user that has started the server, and not to the users of the API.
	if err := os.Unsetenv("SSH_AUTH_SOCK"); err != nil {
		return out, err
	}
	dialer := dial.New(nil)
	out = controller.Config{Log: c.log, Lifecycle: lifecycle.Config{
		Catalogue: catalogue, Cache: c.cacheDir, Source: bundle.Upstream, BootID: process.BootID(), Now: time.Now, Log: c.log,
		Server:  c.url,
		Connect: dialer.SSH.Connect, Resolve: dialer.SSH.ResolveLogin, // never this machine itself
	}}
	c.setClient(&out, client)
	return out, nil
}

// recordsConfig returns the configuration of the records of a namespace that is not named yet.
func (c *controllerSettings) recordsConfig(client *rest.Config) kube.Config {
	return kube.Config{
		Client: client, BackupDir: c.backupDir, TempDir: c.tempDir, Archive: c.files, WithoutArchive: c.files == nil, Log: c.log,
	}
}

// setClient sets the client of the API.
func (c *controllerSettings) setClient(to *controller.Config, client *rest.Config) {
	settings := c.recordsConfig(client)
	to.Client, to.OpenRecords = client, openRecords(settings)
	to.OpenCached = func(read controller.ReadSecret) func(string) (records.Backend, error) {
		cached := settings
		cached.ReadSecret = read
		return openRecords(cached)
	}
}

// newAdmission returns the rules for changes of Clusters, for controlplane.Config.
func newAdmission() (*admission.Checker, error) {
	catalogue, err := release.Load("")
	if err != nil {
		return nil, err
	}
	return &admission.Checker{
		Supported: catalogue.CheckVersion, DefaultVersion: catalogue.DefaultVersion(), Claims: hostclaims.NewIndex(time.Now),
	}, nil
}

// openRecords returns a function that opens the records of a namespace, each once. c has everything but the namespace.
func openRecords(c kube.Config) func(namespace string) (records.Backend, error) {
	var mu sync.Mutex
	open := map[string]records.Backend{}
	return func(namespace string) (records.Backend, error) {
		mu.Lock()
		defer mu.Unlock()
		if is := open[namespace]; is != nil {
			return is, nil
		}
		c := c
		c.Namespace = namespace
		made, err := kube.New(c)
		if err != nil {
			return nil, err
		}
		open[namespace] = made
		return made, nil
	}
}
