package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/certificates"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/datadir"
	"slipway.dev/slipway/internal/server/keys"
	"slipway.dev/slipway/internal/server/serverbackup"
	"slipway.dev/slipway/internal/store/kube/archive"
	"slipway.dev/slipway/internal/version"
)

const (
	idNoName = "server-tls-san-required"
	idFlag   = "server-flag-invalid"

	// gcPercent is the growth of memory between two collections. Most of the memory is caches, which live long.
	gcPercent = 40
	// stopTime limits an orderly stop: of operations, of the API server, and of etcd. The unit of systemd waits longer.
	stopTime = 3 * time.Minute
)

// A serverCommand has the flags of `slipwayd server`.
type serverCommand struct {
	*program
	systemd   notifier
	config    controlplane.Config
	listen    string
	names     []string
	quota     int64 // MiB
	lifetime  time.Duration
	logFormat string
	backups   string // path of the configuration of backups
	cacheDir  string
	maxCache  uint32 // GiB
	archive   string // directory, or withoutArchive
}

func newServerCommand(p *program) *cobra.Command {
	s := &serverCommand{program: p}
	cmd := &cobra.Command{
		Use: "server", Short: "Start the management server", Args: cobra.NoArgs,
		Long: `Starts the management server and runs until it gets SIGTERM or SIGINT. The first
start makes the data directory, a CA, the keys, and a kubeconfig for the
administrator: pki/admin.kubeconfig in the data directory.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.listen, "listen", controlplane.DefaultListen, "`address` of the API")
	f.StringSliceVar(&s.names, "tls-san", nil, "`name` or address in the serving certificate; required if others than this machine connect")
	f.StringSliceVar(&s.config.Etcd.Servers, "etcd-servers", nil, "`URL`s of an external etcd; without them, the server runs its own")
	f.StringVar(&s.config.Etcd.CAFile, "etcd-ca-file", "", "CA `file` of the external etcd")
	f.StringVar(&s.config.Etcd.CertFile, "etcd-cert-file", "", "client certificate `file` for the external etcd")
	f.StringVar(&s.config.Etcd.KeyFile, "etcd-key-file", "", "client key `file` for the external etcd")
	f.StringVar(&s.config.Etcd.Prefix, "etcd-prefix", controlplane.DefaultPrefix, "`prefix` of all keys in etcd")
	f.Int64Var(&s.quota, "etcd-quota", controlplane.DefaultQuota>>20, "maximum size of the database in `MiB`")
	f.StringVar(&s.config.AuthenticationConfig, "authentication-config", "",
		"AuthenticationConfiguration `file` with issuers of tokens (OIDC)")
	f.StringVar(&s.cacheDir, "cache-dir", "", "`directory` of bundles (default \"cache\" in the data directory)")
	addCacheLimitFlag(cmd, &s.maxCache, 0)
	f.StringVar(&s.archive, "archive-dir", "",
		"`directory` of finished operations, or none to delete them (default \"archive\" in the data directory)")
	f.StringVar(&s.backups, "backup-config", "", "`file` with the schedule and the targets of backups")
	f.DurationVar(&s.config.CompactionInterval, "compaction-interval", 5*time.Minute, "`time` between two removals of old revisions")
	f.DurationVar(&s.config.DefragmentInterval, "defragment-interval", time.Hour, "`time` between two checks for unused space")
	f.DurationVar(&s.lifetime, "certificate-lifetime", certificates.DefaultLifetime,
		"lifetime of the serving and the administrator's certificate")
	f.StringVar(&s.logFormat, "log-format", "text", "`format` of the log: text or json")
	return cmd
}

// newLog returns the log of the server.
func newLog(w io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	}
	return nil, diag.Refuse(idFlag, fmt.Sprintf("--log-format %q is not a format", format), "use text or json")
}

// check refuses flags that do not fit together.
func (s *serverCommand) check() error {
	host, _, err := net.SplitHostPort(s.listen)
	if err != nil {
		return diag.Refuse(idFlag, fmt.Sprintf("--listen %q is not an address: %v", s.listen, err),
			"use HOST:PORT, for example "+controlplane.DefaultListen)
	}
	address, err := netip.ParseAddr(host)
	if local := host == "localhost" || err == nil && address.IsLoopback(); !local && len(s.names) == 0 {
		return diag.Refuse(idNoName,
			fmt.Sprintf("--listen %s accepts connections from other machines, but the serving certificate has no name for them", s.listen),
			"set --tls-san to the name or address by which others reach this server")
	}
	etcd := s.config.Etcd
	if path.Join("/", etcd.Prefix) == "/" {
		return diag.Refuse(idFlag, fmt.Sprintf("--etcd-prefix %q is not a prefix", etcd.Prefix), "set a path, for example /slipway")
	}
	if len(etcd.Servers) == 0 && path.Join("/", etcd.Prefix) != controlplane.DefaultPrefix {
		return diag.Refuse(idFlag, "--etcd-prefix is for an external etcd", "set --etcd-servers too, or omit --etcd-prefix")
	}
	for _, server := range etcd.Servers {
		if at, err := url.Parse(server); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
			return diag.Refuse(idFlag, fmt.Sprintf("--etcd-servers %q is not a URL", server), "use a URL such as https://10.0.0.1:2379")
		}
	}
	if len(etcd.Servers) == 0 && (etcd.CAFile != "" || etcd.CertFile != "" || etcd.KeyFile != "") {
		return diag.Refuse(idFlag, "--etcd-ca-file, --etcd-cert-file and --etcd-key-file are for an external etcd", "set --etcd-servers too")
	}
	if (etcd.CertFile == "") != (etcd.KeyFile == "") {
		return diag.Refuse(idFlag, "--etcd-cert-file and --etcd-key-file belong together", "set both flags")
	}
	if s.archive != "" && s.archive != withoutArchive && !filepath.IsAbs(s.archive) {
		return diag.Refuse(idFlag, fmt.Sprintf("--archive-dir %q is not an absolute path", s.archive),
			"use a path such as /mnt/nas/slipwayd, or none")
	}
	if s.quota < controlplane.MinQuota>>20 {
		return diag.Refuse(idFlag, fmt.Sprintf("--etcd-quota %d is too small", s.quota),
			fmt.Sprintf("set at least %d MiB", controlplane.MinQuota>>20))
	}
	for _, d := range []struct {
		flag         string
		value, least time.Duration
	}{
		{"--compaction-interval", s.config.CompactionInterval, time.Minute},
		{"--defragment-interval", s.config.DefragmentInterval, time.Minute},
		{"--certificate-lifetime", s.lifetime, certificates.MinLifetime},
	} {
		if d.value < d.least {
			return diag.Refuse(idFlag, fmt.Sprintf("%s %s is too short", d.flag, d.value), fmt.Sprintf("set at least %s", d.least))
		}
	}
	return nil
}

// run starts the server and waits until it has ended or ctx is cancelled.
func (s *serverCommand) run(ctx context.Context) (err error) {
	if err := s.check(); err != nil {
		return err
	}
	log, err := newLog(s.Err, s.logFormat)
	if err != nil {
		return err
	}
	s.systemd = newNotifier()
	dir, err := datadir.Open(s.dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	schedule, err := s.loadSchedule()
	if err != nil {
		return err
	}
	files := openArchive(ctx, s.archive, dir.Path(datadir.ArchiveDir), log)
	if files != nil {
		defer func() { err = errors.Join(err, files.Close()) }()
	}
	server, endpoints, err := s.start(ctx, dir, files, log)
	if err != nil {
		return err
	}
	working, stopBackups := context.WithCancel(ctx)
	defer stopBackups()
	var background sync.WaitGroup
	if schedule != nil {
		background.Go(func() { runBackups(working, endpoints.backups, *schedule, server, log) })
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }() // ends with the server
	select {
	case err = <-ended:
		log.Error("the server has ended", "error", err)
	case <-ctx.Done():
		log.Info("stopping")
		s.notify(ctx, log, "STOPPING=1")
	}
	stopBackups()
	background.Wait() // each step of a backup ends with its context
	return errors.Join(err, stopServer(ctx, server))
}

// start starts the server and reports that it is ready.
func (s *serverCommand) start(
	ctx context.Context, dir *datadir.Dir, files archive.Files, log *slog.Logger,
) (*controlplane.Server, *endpoints, error) {
	begun := time.Now()
	if was := debug.SetGCPercent(gcPercent); was < gcPercent { // of the variable GOGC
		debug.SetGCPercent(was)
	}
	defer debug.FreeOSMemory() // a start makes much garbage once
	listener, err := controlplane.Listen(ctx, s.listen)
	if err != nil {
		return nil, nil, err
	}
	keep := false
	defer func() {
		if !keep {
			_ = listener.Close() // the server has closed it already, or nothing was accepted
		}
	}()
	controlplane.RedirectLogs(log)
	fresh := dir.IsFresh()
	c := s.config
	c.Dir, c.Log, c.Listener, c.EtcdQuota = dir, log, listener, s.quota<<20
	if c.Keys, err = keys.Open(dir.Path("keys"), fresh); err != nil {
		return nil, nil, err
	}
	c.Certificates, err = certificates.Open(certificates.Options{
		Dir: dir.Path("pki"), Names: s.certificateNames(listener.Addr()), Server: s.publicURL(listener.Addr()), Fresh: fresh, Log: log,
		Lifetimes: certificates.Lifetimes{Serving: s.lifetime, Admin: s.lifetime},
	})
	if err != nil {
		return nil, nil, err
	}
	endpoints, err := s.newEndpoints(c, fresh)
	if err != nil {
		return nil, nil, err
	}
	c.Handlers = endpoints.handlers()
	if c.Admission, err = newAdmission(); err != nil {
		return nil, nil, err
	}
	settings := controllerSettings{
		backupDir: dir.Path(datadir.SnapshotsDir), tempDir: dir.Path("tmp"), cacheDir: cmp.Or(s.cacheDir, dir.Path(datadir.CacheDir)),
		cacheLimit: int64(s.maxCache) << 30,
		url:        s.publicURL(listener.Addr()), files: files, log: log,
	}
	if c.ShareControllers = len(c.Etcd.Servers) > 0; c.ShareControllers {
		if settings.sharing, err = newSharing(controlplane.SystemNamespace); err != nil {
			return nil, nil, err
		}
	}
	c.Subresources = endpoints.subresources(&settings)
	if c.Controllers, err = newControllers(settings); err != nil {
		return nil, nil, err
	}
	server, err := controlplane.Start(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	keep = true
	endpoints.setServer(server)
	if err := errors.Join(dir.MarkStarted(), dir.WriteHolder(reachableAddress(listener.Addr()))); err != nil {
		return nil, nil, errors.Join(err, stopServer(ctx, server))
	}
	log.Info("the server is ready", "url", s.publicURL(listener.Addr()), "kubeconfig", c.Certificates.AdminKubeconfig(),
		"version", version.Get().Version, "took", time.Since(begun).Round(10*time.Millisecond).String())
	s.notify(ctx, log, "READY=1")
	return server, endpoints, nil
}

// notify reports a state of the server to systemd.
func (s *serverCommand) notify(ctx context.Context, log *slog.Logger, state string) {
	if err := s.systemd.send(ctx, state); err != nil {
		log.Warn("systemd does not receive the state of the server", "state", state, "error", err)
	}
}

// newEndpoints returns the endpoints of a server.
func (s *serverCommand) newEndpoints(c controlplane.Config, fresh bool) (*endpoints, error) {
	signer, err := serverbackup.OpenSigningKey(c.Dir.Path("keys"), fresh)
	if err != nil {
		return nil, err
	}
	e := &endpoints{keys: c.Keys, external: len(c.Etcd.Servers) > 0, log: c.Log}
	o := serverbackup.Options{
		Dir: c.Dir, Signer: signer, Program: version.Get().Version, Kubernetes: controlplane.KubernetesVersion(), Log: c.Log,
	}
	if !e.external {
		o.Snapshots = e
	}
	e.backups = serverbackup.New(o)
	return e, nil
}

// stopServer stops a server in order, also after ctx has ended.
func stopServer(ctx context.Context, server *controlplane.Server) error {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return server.Stop(stopping)
}

// certificateNames returns the names of the serving certificate: the given ones, the host of
// --listen, and the address of the listener, at which commands on this machine connect.
func (s *serverCommand) certificateNames(address net.Addr) []string {
	names := slices.Clone(s.names)
	for _, at := range []string{s.listen, address.String()} {
		host, _, err := net.SplitHostPort(at)
		if ip, other := netip.ParseAddr(host); err != nil || host == "" || other == nil && ip.IsUnspecified() {
			continue
		}
		names = append(names, host)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// publicURL returns the URL for clients: with the first name of --tls-san, or the address.
func (s *serverCommand) publicURL(address net.Addr) string {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return "https://" + address.String()
	}
	if len(s.names) > 0 {
		host = s.names[0]
	}
	return "https://" + net.JoinHostPort(host, port)
}

// reachableAddress returns the address at which a command on this machine reaches the server.
func reachableAddress(address net.Addr) string {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1"
		}
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
}
