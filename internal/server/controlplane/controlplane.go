// Package controlplane runs the API server of Slipway in this process: the generic control
// plane of Kubernetes on an embedded or external etcd, with the kinds of group slipway.dev.
// Only this package knows the libraries of the API server and of etcd.
//
// Feature gates, metrics and the log of these libraries belong to the whole process, so a
// process runs one server.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/admission"
	"slipway.dev/slipway/internal/server/certificates"
	"slipway.dev/slipway/internal/server/datadir"
	"slipway.dev/slipway/internal/server/keys"
)

const (
	// DefaultListen is the default address of the API.
	DefaultListen = "127.0.0.1:7443"
	// DefaultPrefix is the default prefix of all keys in etcd.
	DefaultPrefix = "/registry"
	// DefaultQuota is the default maximum size of the embedded database, in bytes.
	DefaultQuota int64 = 4 << 30
	// MinQuota is the smallest quota: the objects of an empty server and their history.
	MinQuota int64 = 32 << 20

	defaultCompaction = 5 * time.Minute
	defaultDefragment = time.Hour

	// readyTime and stopTime limit the start and the stop of the API server.
	readyTime = 2 * time.Minute
	stopTime  = 70 * time.Second // more than a request may take
	// controllersTime limits the stop of the controllers.
	controllersTime = 65 * time.Second // running operations stop at a safe point
	// abortTime limits each step of the stop of a server that has ended with an error.
	abortTime = 5 * time.Second
)

// A Config configures a server. Dir, Keys, Certificates, Listener and Log are required.
type Config struct {
	Dir          *datadir.Dir
	Keys         *keys.Keys
	Certificates *certificates.Certificates
	// Listener is the TCP port of the API. The server closes it.
	Listener net.Listener
	// Etcd names an external etcd. Without it, the server runs its own in Dir.
	Etcd ExternalEtcd
	// EtcdQuota is the maximum size of the embedded database in bytes.
	EtcdQuota int64
	// AuthenticationConfig is the path of an AuthenticationConfiguration with issuers of
	// tokens. It is read again when it changes.
	AuthenticationConfig string
	// CompactionInterval is the time between two removals of old revisions, and
	// DefragmentInterval between two checks for unused space in the database.
	CompactionInterval, DefragmentInterval time.Duration
	// Controllers, if not nil, runs further controllers while this server holds the Lease of the controllers, or all the
	// time if they share their work with other servers. It returns after the end of ctx.
	Controllers      func(ctx context.Context, client *rest.Config) error
	ShareControllers bool
	// Admission, if not nil, checks changes of Clusters in this process. The server gives it the hosts of all Clusters.
	Admission *admission.Checker
	// Handlers serve paths below /slipway/v1, for example "/server/backup". Requests are
	// authenticated and authorised before.
	Handlers map[string]http.Handler
	// Subresources are parts of objects, by "resource/subresource".
	Subresources map[string]Subresource
	Log          *slog.Logger
}

// An ExternalEtcd is an etcd that another program runs. Without Servers, it is not used.
type ExternalEtcd struct {
	Servers                   []string
	CAFile, CertFile, KeyFile string
	// Prefix is the prefix of all keys.
	Prefix string
}

// A Server is a running server. Stop must be called once it is not needed.
type Server struct {
	config   Config
	etcd     *etcd
	guard    *writeGuard
	metrics  serverMetrics
	loopback *rest.Config
	address  string

	conditions struct {
		sync.Mutex
		list []metav1.Condition
	}
	isComplete  atomic.Bool // /readyz reports this
	stopAPI     context.CancelFunc
	controllers *controllerGroup
	background  sync.WaitGroup
	stopRest    context.CancelFunc // ends background

	ended    chan struct{} // closed when the server has ended
	endOnce  sync.Once
	endError error
}

// withDefaults returns the configuration with default values.
func (c Config) withDefaults() Config {
	if c.Etcd.Prefix == "" {
		c.Etcd.Prefix = DefaultPrefix
	}
	c.Etcd.Prefix = path.Join("/", c.Etcd.Prefix) // as the API server does
	if c.EtcdQuota == 0 {
		c.EtcdQuota = DefaultQuota
	}
	if c.CompactionInterval == 0 {
		c.CompactionInterval = defaultCompaction
	}
	if c.DefragmentInterval == 0 {
		c.DefragmentInterval = defaultDefragment
	}
	return c
}

// Start starts a server and returns when it is ready. The order is: etcd, API server,
// definitions and roles, controllers. Each wait has a deadline, and its error names the part
// that was not ready. ctx limits only the start; Stop ends the server.
func Start(ctx context.Context, c Config) (*Server, error) {
	c = c.withDefaults()
	setReloadPeriod()
	lasting := context.WithoutCancel(ctx)
	s := &Server{config: c, metrics: newServerMetrics(), ended: make(chan struct{})}
	if c.Admission != nil && c.Admission.ListClusters == nil {
		checker := *c.Admission
		checker.ListClusters = s.ListClusters
		s.config.Admission = &checker
	}
	starting, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	if err := s.startAll(starting, lasting, abort); err != nil {
		if cause := context.Cause(starting); ctx.Err() == nil && cause != nil {
			err = cause
		}
		// A running API server closes its listener. Another close would end the process.
		return nil, errors.Join(err, s.Stop(lasting), ignoreClosed(c.Listener.Close()))
	}
	return s, nil
}

// startAll starts the parts in order. abort is called if etcd ends.
func (s *Server) startAll(ctx, lasting context.Context, abort context.CancelCauseFunc) (err error) {
	rest, stopRest := context.WithCancel(lasting)
	s.stopRest = stopRest
	listener := s.config.Listener
	s.address = listener.Addr().String()
	if err := s.config.Dir.UseKubernetes(KubernetesVersion()); err != nil {
		return err
	}
	if s.etcd, err = openEtcd(ctx, s.config); err != nil {
		return err
	}
	s.background.Go(func() { s.watchEtcd(rest, abort) })
	if !s.etcd.isExternal() {
		s.background.Go(func() { s.etcd.keepReserve(rest) })
	}
	s.background.Go(func() { s.renewCertificates(rest) })
	s.guard = newWriteGuard(s.config.Dir.Path(), s.etcd)
	serving, stopAPI := context.WithCancel(lasting)
	s.stopAPI = stopAPI
	if err := s.serveAPI(ctx, serving, listener); err != nil {
		return err
	}
	if err := s.applyDefinitions(ctx); err != nil {
		return err
	}
	if err := s.watchClaims(rest); err != nil {
		return err
	}
	s.controllers = &controllerGroup{config: s.config, client: s.loopback}
	_, held, err := s.config.Dir.Hold()
	if err != nil {
		return err
	}
	condition := metav1.Condition{Type: ControllersHeld, Status: metav1.ConditionFalse, Reason: "Running"}
	if held {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Restored"
		condition.Message = "the controllers are on hold after a restore; run 'slipwayd release' to start them"
		s.config.Log.Warn(condition.Message)
	} else {
		s.controllers.start(lasting)
		if err := s.waitForRoles(ctx); err != nil {
			return err
		}
	}
	if err := s.loadConditions(ctx); err != nil {
		s.config.Log.Warn("the saved conditions of the server cannot be read", "error", err)
	}
	s.SetCondition(ctx, condition)
	usage, err := s.etcd.readUsage(ctx)
	if err != nil {
		return err
	}
	s.reportUsage(ctx, usage)
	s.background.Go(func() { s.maintainDatabase(rest) })
	s.guard.isActive.Store(true)
	s.isComplete.Store(true)
	return nil
}

// renewCertificates renews the certificates until ctx ends.
func (s *Server) renewCertificates(ctx context.Context) {
	if err := s.config.Certificates.Run(ctx); err != nil && ctx.Err() == nil {
		s.config.Log.Error("certificates are not renewed", "error", err)
	}
}

// watchEtcd ends the server if the embedded etcd ends before ctx.
func (s *Server) watchEtcd(ctx context.Context, abort context.CancelCauseFunc) {
	err := s.etcd.waitUntilEnded(ctx)
	if err == nil {
		return
	}
	err = fmt.Errorf("etcd has ended: %w", err)
	s.config.Log.Error(err.Error())
	abort(err)
	s.end(err)
}

// Address returns the address of the API: host:port.
func (s *Server) Address() string { return s.address }

// URL returns the URL of the API.
func (s *Server) URL() string { return "https://" + s.address }

// LoopbackConfig returns the configuration of a client in this process, with all rights. Its
// token is valid as long as the process runs.
func (s *Server) LoopbackConfig() *rest.Config { return rest.CopyConfig(s.loopback) }

// Wait waits until the server has ended and returns the reason, nil after Stop.
func (s *Server) Wait() error {
	<-s.ended
	return s.endError
}

// end marks the server as ended.
func (s *Server) end(err error) {
	s.endOnce.Do(func() {
		s.endError = err
		close(s.ended)
	})
}

// Stop stops the parts in reverse order and waits for them, each with a deadline, at most until
// ctx ends. etcd is always closed. It may be called on a server that has not started completely.
func (s *Server) Stop(ctx context.Context) error {
	limit, etcdLimit := stopTime, etcdStopTime
	select {
	case <-s.ended: // without etcd, requests do not end
		limit, etcdLimit = abortTime, abortTime
	default:
	}
	if s.controllers != nil {
		s.controllers.stopWithin(ctx, min(limit, controllersTime))
	}
	stopping, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.stopRest()
	if s.stopAPI != nil {
		s.stopAPI()
	}
	err := waitFor(stopping, "the background tasks of the server", s.background.Wait)
	if s.etcd != nil {
		err = errors.Join(err, s.etcd.closeWithin(ctx, etcdLimit))
	}
	s.end(err)
	return err
}

// waitFor waits for a function to return, until ctx ends.
func waitFor(ctx context.Context, what string, wait func()) error {
	done := make(chan struct{})
	go func() { // ends with wait, at the latest with the program
		defer close(done)
		wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s have not ended: %w", what, ctx.Err())
	}
}

// Snapshot writes a snapshot of the embedded database.
func (s *Server) Snapshot(ctx context.Context, to io.Writer) (SnapshotInfo, error) {
	return s.etcd.writeSnapshot(ctx, to)
}

// ReleaseHold starts the controllers that a restore has put on hold. It does nothing if they
// are running.
func (s *Server) ReleaseHold(ctx context.Context) error {
	if err := s.config.Dir.Release(); err != nil {
		return err
	}
	s.controllers.start(context.WithoutCancel(ctx))
	s.SetCondition(ctx, metav1.Condition{Type: ControllersHeld, Status: metav1.ConditionFalse, Reason: "Released"})
	return nil
}

// ignoreClosed drops the error of a connection or listener that is already closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
