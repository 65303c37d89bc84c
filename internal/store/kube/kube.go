// Package kube keeps records as objects of a Kubernetes API with the definitions of Slipway, in one
// namespace:
//
//	Operation ID                     the request and its status
//	OperationLog ID-…                the events, see package operationlog
//	Secret slipway-plan.ID           the plan
//	Secret slipway.CLUSTER.spec      the saved spec
//	                       source    the file as the user wrote it
//	                       kept      the file that a rollback restores
//	                       status    the latest status, copied to the status of the Cluster
//	                       nodes     all nodes, if the status lists only some
//	                       kubeconfig  the admin kubeconfig
//	                       file.…    passwords, keys and CA of its registry, the signing key of backups
//	                       holds     processes that may hold the cluster's lock on hosts
//	Secret slipway.known-hosts       host keys
//	Lease slipway.CLUSTER            the lock
//
// A large content is compressed, and continues in further Secrets. Secrets of a cluster belong to
// the Cluster object if it exists. Backup sets are files: they are too large for an API. Operations
// that are finished for good are files too, in an archive: see Retain.
package kube

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube/archive"
)

// A Config configures a Store. Client, Namespace and the directories are required.
type Config struct {
	// Client is the configuration of the client.
	Client *rest.Config
	// Namespace has all records.
	Namespace string
	// SystemNamespace identifies this manager: its UID becomes the manager id. It is created if
	// it does not exist. Default: DefaultSystemNamespace.
	SystemNamespace string
	// BackupDir is the directory of backup sets. TempDir is for large temporary files.
	BackupDir, TempDir string
	// LeaseTime is how long a lock is valid after its last renewal. Default: 30 s.
	LeaseTime time.Duration
	// Archive has the files of operations that are finished for good, with their complete journals.
	// nil: there is no archive.
	Archive archive.Files
	// ArchiveLimits limit the archived operations of each cluster. Default: 100 operations, 180 days,
	// 1 GiB.
	ArchiveLimits archive.Limits
	// DeletedLimits limit the archived operations of all deleted clusters together. Default: 1,000
	// operations, 180 days, 1 GiB. DeletedObjects limits how many of them remain objects. Default: 100.
	DeletedLimits  archive.Limits
	DeletedObjects int
	// WithoutArchive makes Retain shorten journals and delete old operations although there is no
	// Archive. Otherwise they remain.
	WithoutArchive bool
	// ReadSecret reads Secrets for readers that can use an earlier version. Its result can be from memory.
	// nil: a request for each read.
	ReadSecret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// PartsPerSecond is the average rate of the parts of a journal. PartsBurst parts do not wait. Each part is two writes
	// of etcd: its creation, and its deletion after a merge. Default: 4.
	PartsPerSecond float64
	// Patience is how long a request is repeated that fails for a reason that can end. Default:
	// 60 s.
	Patience time.Duration
	Log      *slog.Logger
}

// DefaultSystemNamespace is the namespace that identifies a manager.
const DefaultSystemNamespace = "slipway-system"

// defaultLimits limit the archived operations of a cluster.
var defaultLimits = archive.Limits{Operations: 100, Age: 180 * 24 * time.Hour, Bytes: 1 << 30}

// defaultDeletedLimits limit the archived operations of all deleted clusters.
var defaultDeletedLimits = archive.Limits{Operations: 1000, Age: 180 * 24 * time.Hour, Bytes: 1 << 30}

const (
	// PartsBurst is the number of parts of a journal that do not wait for the rate of parts.
	PartsBurst = 64

	defaultPartsPerSecond = 4
	defaultDeletedObjects = 100

	defaultLeaseTime = 30 * time.Second
	defaultPatience  = 60 * time.Second
)

// A Store keeps records in an API. See records.Backend.
type Store struct{ *connection }

var _ records.Backend = (*Store)(nil)

// New returns a store. It sends no request before the first call.
func New(c Config) (*Store, error) {
	if c.Client == nil || c.Namespace == "" || c.BackupDir == "" || c.TempDir == "" {
		return nil, errors.New("opening the records: the configuration of the client, the namespace or a directory is missing")
	}
	c.setDefaults()
	client := rest.CopyConfig(c.Client)
	client.QPS = -1 // the API server limits its clients
	core, err1 := kubernetes.NewForConfig(client)
	own, err2 := newOwnClient(client)
	leases, err3 := newLeaseClient(client)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("opening the records: %w", err)
	}
	out := &connection{Config: c, core: core, own: own, leases: leases}
	if c.Archive != nil {
		var err error
		if out.archive.files, err = archive.New(c.Archive, c.Namespace); err != nil {
			return nil, fmt.Errorf("opening the records: %w", err)
		}
	}
	return &Store{out}, nil
}

func (c *Config) setDefaults() {
	c.SystemNamespace = cmp.Or(c.SystemNamespace, DefaultSystemNamespace)
	c.LeaseTime = cmp.Or(c.LeaseTime, defaultLeaseTime)
	c.Patience = cmp.Or(c.Patience, defaultPatience)
	c.ArchiveLimits = cmp.Or(c.ArchiveLimits, defaultLimits)
	c.DeletedLimits = cmp.Or(c.DeletedLimits, defaultDeletedLimits)
	c.PartsPerSecond = cmp.Or(c.PartsPerSecond, defaultPartsPerSecond)
	c.DeletedObjects = cmp.Or(c.DeletedObjects, defaultDeletedObjects)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// newLeaseClient returns a client for Leases, with separate connections: a connection without
// answers must not stop the renewal of a lock. With HTTP/1.1, a request that times out closes its
// connection.
func newLeaseClient(c *rest.Config) (coordinationv1.LeasesGetter, error) {
	c = rest.CopyConfig(c)
	c.NextProtos = []string{"http/1.1"}
	return coordinationv1.NewForConfig(c)
}

// newOwnClient returns a client for the kinds of Slipway.
func newOwnClient(c *rest.Config) (rest.Interface, error) {
	group := schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(group, &v1alpha1.Cluster{}, &v1alpha1.ClusterList{}, &v1alpha1.Operation{}, &v1alpha1.OperationList{},
		&v1alpha1.OperationLog{}, &v1alpha1.OperationLogList{})
	metav1.AddToGroupVersion(scheme, group)
	own := rest.CopyConfig(c)
	own.GroupVersion, own.APIPath = &group, "/apis"
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(own)
}

// Clusters returns the store of specs, their cluster files and the latest status.
func (s *Store) Clusters() records.Clusters { return clusters{s.connection} }

// ClusterFiles returns the store of generated passwords and keys of clusters.
func (s *Store) ClusterFiles() records.ClusterFiles { return clusterFiles{s.connection} }

// Kubeconfigs returns the store of admin kubeconfigs.
func (s *Store) Kubeconfigs() records.Kubeconfigs { return kubeconfigs{s.connection} }

// Locks returns the locks of clusters.
func (s *Store) Locks() records.Locks { return locks{s.connection} }

// Operations returns the store of operations and their plans.
func (s *Store) Operations() records.Operations { return operations{s.connection} }

// Journals returns the store of the events of operations.
func (s *Store) Journals() records.Journals { return journals{s.connection} }

// Backups returns the store of backup sets and the keys that sign them.
func (s *Store) Backups() records.Backups { return backups{s.connection} }

// idBytes is the length of a manager id.
const idBytes = 16

// ManagerID returns the id of this manager for hosts, from the UID of the system namespace: all
// processes that use this API are one manager.
func (s *Store) ManagerID(ctx context.Context) (string, error) {
	var uid string
	err := s.repeat(ctx, func(ctx context.Context) error {
		namespaces := s.core.CoreV1().Namespaces()
		is, err := namespaces.Get(ctx, s.SystemNamespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			is, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.SystemNamespace}}, metav1.CreateOptions{})
		}
		if err == nil {
			uid = string(is.UID)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the manager id: %w", err)
	}
	sum := sha256.Sum256([]byte("slipway.dev/manager\x00" + uid))
	return hex.EncodeToString(sum[:idBytes]), nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}
