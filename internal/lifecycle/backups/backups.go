// Package backups makes, lists, tests and opens the backup sets of clusters, and has the keys
// that sign these sets. It changes no cluster.
package backups

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/records"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change. The ids of
// package backup are used unchanged.
const (
	idBackupNotThere   = "backup-not-there"
	idCopyTarget       = "backup-copy-unreachable"
	idEtcdUnhealthy    = op.IDEtcdUnhealthy
	idBackupFailed     = "backup-failed"
	idDrillFailed      = "drill-failed"
	idBackupRoom       = "backup-no-room"
	idBackupKeys       = "backup-without-keys"
	idBackupNoData     = "backup-without-data"
	idBackupOther      = "backup-other-cluster"
	idBackupRenamed    = "backup-renamed"
	idBadSigner        = "bad-signer"
	idWithKeys         = "keys-of-unverified"
	idBackupVersion    = "backup-version"
	idBackupChanged    = "backup-changed"
	idBackupEncryption = "backup-encryption-off"
	idBadRecipient     = "invalid-recipient"
)

// Clusters are the saved clusters.
type Clusters interface {
	// Cluster returns the saved spec with the latest status.
	Cluster(ctx context.Context, name string) (*v1alpha1.Cluster, error)
	// Environment returns the environment of a cluster.
	Environment(ctx context.Context, c *v1alpha1.Cluster) (module.Env, error)
}

// A Config configures Backups.
type Config struct {
	Clusters  Clusters
	Records   records.Backend
	Files     records.Files
	Owner     *fileowner.Owner
	Keys      SigningKeys
	Access    *access.Access
	Inspector *inspect.Inspector
	Executor  *hostexec.Executor
	Dialer    hostconn.Dialer
	// FilesDir has the files of the Cluster object, "" for clusters of files. In an API, users name backup sets in
	// the default directory and files in this one, and no other files of this machine.
	FilesDir string
	Now      func() time.Time
	Log      *slog.Logger
}

// Backups are the backup sets of clusters on this machine.
type Backups struct {
	// StallTime is how long a fetched file may deliver no data: the host reads the whole
	// file first.
	StallTime time.Duration
	c         Config
}

// New returns the backup sets of clusters.
func New(c Config) *Backups { return &Backups{c: c, StallTime: op.AutoCopyTime} }

// MadeBy returns the backup set that an operation made, nil if it made none.
func (b *Backups) MadeBy(ctx context.Context, o *v1alpha1.Operation) *SnapshotInfo {
	if o.Status.StartTime == nil {
		return nil
	}
	sets, err := b.setsOf(ctx, o.Spec.ClusterRef.Name)
	if err != nil {
		return nil
	}
	slices.Reverse(sets) // the operation's set is its first one
	for _, set := range sets {
		if !set.Taken.Before(o.Status.StartTime.Truncate(time.Second)) && (o.Status.EndTime == nil || !set.Taken.After(o.Status.EndTime.Time)) {
			return &set
		}
	}
	return nil
}
