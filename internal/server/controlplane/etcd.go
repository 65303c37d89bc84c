package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"slipway.dev/slipway/internal/diag"
)

const (
	etcdReadyTime = time.Minute      // includes reading a large log
	etcdStopTime  = 20 * time.Second // after that, the next start reads the log again
	// externalTime is the time in which an external etcd must respond.
	externalTime = 15 * time.Second
	requestTime  = 10 * time.Second
	// segmentBytes is the size of a segment of etcd's log, which is reserved on disk
	// before it is used. etcd's default of 64 MB is meant for larger databases.
	segmentBytes = 8 << 20
	memberName   = "slipwayd"
	markerPrefix = "/slipway.dev/server"
)

// An etcd is the database: embedded, or a connection to an external one.
type etcd struct {
	embedded *embed.Etcd // nil with an external etcd
	client   *clientv3.Client
	servers  []string
	tls      transport.TLSInfo
	prefix   string
	dir      string // of the embedded etcd
	quota    int64
	log      *slog.Logger
	failed   chan error     // receives the reason if the embedded etcd ends
	starting sync.WaitGroup // the start of the embedded etcd
}

// A startedEtcd is the result of a start of the embedded etcd.
type startedEtcd struct {
	embedded *embed.Etcd
	err      error
}

// openEtcd starts the embedded etcd or connects to the external one, and checks that its
// data belongs to this server.
func openEtcd(ctx context.Context, c Config) (*etcd, error) {
	e := &etcd{
		prefix: c.Etcd.Prefix, dir: c.Dir.Path("etcd"), quota: c.EtcdQuota, log: c.Log, failed: make(chan error, 1),
	}
	lg := newEtcdLog(c.Log, e.failed)
	if len(c.Etcd.Servers) == 0 {
		if err := e.startEmbedded(ctx, lg); err != nil {
			return nil, errors.Join(err, e.closeWithin(ctx, etcdStopTime))
		}
	} else {
		e.servers = c.Etcd.Servers
		e.tls = transport.TLSInfo{TrustedCAFile: c.Etcd.CAFile, CertFile: c.Etcd.CertFile, KeyFile: c.Etcd.KeyFile}
	}
	if err := e.connect(ctx, c, lg); err != nil {
		return nil, errors.Join(err, e.closeWithin(ctx, etcdStopTime))
	}
	return e, nil
}

// databaseFile returns the path of the database in a directory of etcd.
func databaseFile(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// isExternal reports whether another program runs the etcd.
func (e *etcd) isExternal() bool { return e.embedded == nil }

// embeddedConfig returns the configuration of the embedded etcd. It serves only this process,
// over sockets in its directory.
func embeddedConfig(dir string, quota int64, lg *zap.Logger) *embed.Config {
	client, peer := socketURL(dir, "client.sock"), socketURL(dir, "peer.sock")
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	// It has no peers. For the URL of a socket, etcd would listen on an abstract socket, which
	// each user of the machine can open, and which it cannot close in a directory that is
	// read-only. The advertised URL is only part of the identity of the member.
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(memberName)
	c.QuotaBackendBytes = quota
	c.EnableGRPCGateway = false
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(lg)
	// Files of the log are removed after a snapshot. Objects can be large, so that etcd's
	// default of 10,000 entries would keep GiB. There are no followers that need old entries.
	c.SnapshotCount, c.SnapshotCatchUpEntries, c.MaxWalFiles = 1_000, 100, 2
	return c
}

// socketURL returns the URL of a socket in the directory of etcd.
func socketURL(dir, name string) url.URL {
	return url.URL{Scheme: "unix", Path: filepath.Join(dir, name)}
}

// setSegmentSize sets the size of a segment of etcd's log, which belongs to the process.
func setSegmentSize() {
	if wal.SegmentSizeBytes != segmentBytes { // a server that is running already reads it
		wal.SegmentSizeBytes = segmentBytes
	}
}

// startEmbedded starts the embedded etcd and waits until it can be used.
func (e *etcd) startEmbedded(ctx context.Context, lg *zap.Logger) error {
	setSegmentSize()
	if err := checkRoom(e.dir); err != nil {
		return err
	}
	if err := checkDatabase(e.dir); err != nil {
		return explainEtcdFailure(e.dir, err)
	}
	if err := reuseSegment(e.dir); err != nil {
		return err
	}
	started := make(chan startedEtcd)
	abandoned := make(chan struct{})
	defer close(abandoned)
	e.starting.Go(func() { // ends with StartEtcd; the fatal hook of the log ends it too
		embedded, err := embed.StartEtcd(embeddedConfig(e.dir, e.quota, lg))
		passOn(startedEtcd{embedded, err}, started, abandoned)
	})
	limit := time.NewTimer(etcdReadyTime)
	defer limit.Stop()
	select {
	case r := <-started:
		if r.err != nil {
			return explainEtcdFailure(e.dir, r.err)
		}
		e.embedded = r.embedded
	case err := <-e.failed:
		return explainEtcdFailure(e.dir, err)
	case <-limit.C:
		return fmt.Errorf("etcd in %s has not started within %s", e.dir, etcdReadyTime)
	case <-ctx.Done():
		return fmt.Errorf("starting etcd in %s: %w", e.dir, ctx.Err())
	}
	select {
	case <-e.embedded.Server.ReadyNotify():
	case err := <-e.embedded.Err():
		return explainEtcdFailure(e.dir, err)
	case err := <-e.failed:
		return explainEtcdFailure(e.dir, err)
	case <-limit.C:
		return fmt.Errorf("etcd in %s has no leader after %s", e.dir, etcdReadyTime)
	case <-ctx.Done():
		return fmt.Errorf("starting etcd in %s: %w", e.dir, ctx.Err())
	}
	socket := socketURL(e.dir, "client.sock")
	e.servers = []string{socket.String()}
	return nil
}

// passOn passes a started etcd to its receiver. If the receiver has given up, it closes the etcd.
func passOn(r startedEtcd, to chan<- startedEtcd, abandoned <-chan struct{}) {
	select {
	case to <- r:
	case <-abandoned:
		if r.embedded != nil {
			r.embedded.Close()
		}
	}
}

// explainEtcdFailure returns the refusal for a database that cannot be opened.
func explainEtcdFailure(dir string, err error) error {
	text := err.Error()
	if strings.Contains(text, "no space left") {
		return diag.Refuse(idDiskFull, fmt.Sprintf("the disk of %s is full: %v", dir, err),
			"make room on that disk, then start the server again")
	}
	return diag.Refuse(idEtcdDamaged, fmt.Sprintf("cannot open the database in %s: %v", dir, err),
		"restore a backup: slipwayd restore FILE --replace")
}

// connect connects a client and checks whose data the etcd has.
func (e *etcd) connect(ctx context.Context, c Config, lg *zap.Logger) error {
	config := clientv3.Config{Endpoints: e.servers, DialTimeout: externalTime, Logger: lg.WithOptions(zap.IncreaseLevel(zap.FatalLevel))}
	if e.tls.TrustedCAFile != "" || e.tls.CertFile != "" {
		tls, err := e.tls.ClientConfig()
		if err != nil {
			return diag.Refuse(idEtcdSilent, fmt.Sprintf("the certificate files of the external etcd cannot be used: %v", err),
				"correct --etcd-ca-file, --etcd-cert-file and --etcd-key-file")
		}
		config.TLS = tls
	}
	client, err := clientv3.New(config)
	if err != nil {
		return e.explainSilence(ctx, err)
	}
	e.client = client
	reading, cancel := context.WithTimeout(ctx, externalTime)
	defer cancel()
	return e.checkOwner(reading, c.Dir.ServerID())
}

// checkOwner compares the owner of the data with this server, and claims an empty prefix.
func (e *etcd) checkOwner(ctx context.Context, id string) error {
	marker := markerPrefix + e.prefix
	found, err := e.client.Get(ctx, marker)
	if err != nil {
		return e.explainSilence(ctx, err)
	}
	if len(found.Kvs) == 1 {
		if owner := string(found.Kvs[0].Value); owner != id {
			return diag.Refuse(idEtcdOther,
				fmt.Sprintf("the data with prefix %s in etcd belongs to server %.40q, but the data directory to server %s", e.prefix, owner, id),
				"use the data directory of that server, or select another prefix with --etcd-prefix")
		}
		return nil
	}
	keys, err := e.client.Get(ctx, e.prefix+"/", clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return e.explainSilence(ctx, err)
	}
	if len(keys.Kvs) > 0 && e.isExternal() {
		return diag.Refuse(idEtcdKubernetes,
			fmt.Sprintf("etcd at %s has data of another API server with prefix %s, for example of a Kubernetes cluster",
				strings.Join(e.servers, ", "), e.prefix),
			"select another prefix with --etcd-prefix, for example /slipway")
	}
	claim, err := e.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(marker), "=", 0)).
		Then(clientv3.OpPut(marker, id)).Commit()
	if err != nil {
		return fmt.Errorf("claiming the prefix %s in etcd: %w", e.prefix, err)
	}
	if !claim.Succeeded {
		return e.checkOwner(ctx, id) // another server was faster
	}
	return nil
}

// waitUntilEnded waits until the embedded etcd has ended, and returns the reason. It returns nil
// if ctx ends before. An external etcd does not end.
func (e *etcd) waitUntilEnded(ctx context.Context) error {
	var serving <-chan error
	var stopped <-chan struct{}
	if e.embedded != nil {
		serving, stopped = e.embedded.Err(), e.embedded.Server.StopNotify()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.failed:
		return err
	case err := <-serving:
		return fmt.Errorf("serving its clients: %w", err)
	case <-stopped:
	}
	select {
	case err := <-e.failed: // it comes first
		return err
	default:
		return errors.New("it has stopped")
	}
}

// closeWithin closes etcd, with a deadline that does not depend on the end of ctx.
func (e *etcd) closeWithin(ctx context.Context, limit time.Duration) error {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return e.close(stopping)
}

// close closes the client and stops the embedded etcd.
func (e *etcd) close(ctx context.Context) error {
	var err error
	if e.client != nil {
		err = e.client.Close()
	}
	if e.embedded != nil {
		err = errors.Join(err, waitFor(ctx, "the tasks of etcd", e.embedded.Close))
	}
	if err = errors.Join(err, waitFor(ctx, "the first tasks of etcd", e.starting.Wait)); err != nil || e.embedded == nil {
		return err
	}
	return keepSegment(e.dir)
}
