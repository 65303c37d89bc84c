package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
)

// ErrExternalEtcd is returned for a snapshot of an external etcd, whose owner backs it up.
var ErrExternalEtcd = errors.New("the server uses an external etcd, which its owner backs up")

// revisionBump is the increase of the revision at a restore. Clients that have seen later
// revisions than the snapshot's must list again; it is far more than a server writes between
// two backups.
const revisionBump = 1_000_000_000

// A SnapshotInfo describes a snapshot of the database.
type SnapshotInfo struct {
	Bytes  int64
	SHA256 string
	// Revision is the revision of the database when the snapshot began: the snapshot has
	// at least this revision.
	Revision int64
	// Version is the storage version of etcd.
	Version string
}

// writeSnapshot writes a snapshot to a stream.
func (e *etcd) writeSnapshot(ctx context.Context, to io.Writer) (info SnapshotInfo, err error) {
	if e.isExternal() {
		return info, ErrExternalEtcd
	}
	// The stream does not have the revision of the snapshot.
	status, err := e.client.Status(ctx, e.servers[0])
	if err != nil {
		return info, fmt.Errorf("reading the revision of the database: %w", err)
	}
	stream, err := e.client.SnapshotWithVersion(ctx)
	if err != nil {
		return info, fmt.Errorf("taking a snapshot of the database: %w", err)
	}
	defer func() { err = errors.Join(err, stream.Snapshot.Close()) }()
	sum := &countedHash{Hash: sha256.New()}
	if _, err := io.Copy(io.MultiWriter(to, sum), stream.Snapshot); err != nil {
		return info, fmt.Errorf("reading the snapshot of the database: %w", err)
	}
	return SnapshotInfo{
		Bytes: sum.bytes, SHA256: hex.EncodeToString(sum.Sum(nil)), Revision: status.Header.Revision, Version: stream.Version,
	}, nil
}

// A countedHash is a hash that counts its bytes.
type countedHash struct {
	hash.Hash
	bytes int64
}

// Write adds bytes to the hash.
func (c *countedHash) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return c.Hash.Write(p)
}

// RestoreSnapshot makes the directory of an embedded etcd from a snapshot file. The directory
// must not exist. Revisions continue far above the snapshot, and all older ones are
// marked as compacted, so that no client mistakes restored objects for newer ones.
func RestoreSnapshot(ctx context.Context, file, dir string) error {
	setSegmentSize()
	peer := socketURL(dir, "peer.sock")
	done := make(chan error, 1)
	go func() { // ends with Restore, which cannot be cancelled, or with the fatal hook of the log
		done <- snapshot.NewV3(newEtcdLog(slog.New(slog.DiscardHandler), done)).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, Name: memberName, OutputDataDir: dir, OutputWALDir: filepath.Join(dir, "member", "wal"),
			PeerURLs: []string{peer.String()}, InitialCluster: memberName + "=" + peer.String(), InitialClusterToken: "etcd-cluster",
			RevisionBump: revisionBump, MarkCompacted: true,
		})
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("restoring the database: %w", err)
		}
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), <-done)
	}
}
