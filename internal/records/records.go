// Package records defines how Slipway keeps clusters, operations and their journals. A backend
// implements Backend: package store keeps records in files.
package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

// ErrNotFound is returned for a cluster, operation or file that is not saved.
var ErrNotFound = errors.New("not found")

// ErrInvalidName is returned for an invalid name of a cluster or operation.
var ErrInvalidName = errors.New("invalid name: use at most 63 lower-case letters, digits and hyphens")

// ErrNoEnd is the error for an operation without an end whose process was killed.
var ErrNoEnd = errors.New("the operation was interrupted: its process no longer runs")

var nameRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// CheckName returns ErrInvalidName unless name can name a cluster or an operation.
func CheckName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%q: %w", name, ErrInvalidName)
	}
	return nil
}

// A Backend keeps records. It has a method for each subject, which returns a smaller interface:
// b.Clusters().Load(…). All methods may be called from several goroutines and processes at the
// same time. Changes of a cluster are made under that cluster's lock. Saved data is durable when
// the method returns. A backend limits the time of its requests also if the context has no
// deadline.
type Backend interface {
	Clusters() Clusters
	ClusterFiles() ClusterFiles
	Kubeconfigs() Kubeconfigs
	Locks() Locks
	Operations() Operations
	Journals() Journals
	Backups() Backups

	// ManagerID returns the id of this manager for hosts: 32 hexadecimal digits. Hosts let a
	// manager take over its own lock immediately, so no two managers have the same id.
	ManagerID(ctx context.Context) (string, error)
	// Files returns the records that programs and libraries need as files. The caller closes
	// them.
	Files(ctx context.Context) (Files, error)
}

// A Retainer is a Backend that limits the records of finished operations.
type Retainer interface {
	// Retain shortens or removes the records of operations of a cluster that no later operation
	// needs. It is called after an operation has succeeded, also without the cluster's lock. After
	// an error, the next call continues.
	Retain(ctx context.Context, cluster string) error
}

// A Source is a cluster file as the user wrote it.
type Source struct {
	Text []byte
	// Path is its absolute path, "" if it was not a file.
	Path string
}

// Clusters keeps specs, their cluster files and the latest status.
type Clusters interface {
	// List returns the names of the saved clusters, sorted.
	List(ctx context.Context) ([]string, error)
	// Load returns the saved spec of a cluster with its latest status, or ErrNotFound.
	Load(ctx context.Context, name string) (*v1alpha1.Cluster, error)
	// Save saves a spec and its cluster file. A nil source keeps the saved file, and a
	// source without text removes it. The status is not saved.
	Save(ctx context.Context, c *v1alpha1.Cluster, source *Source) error
	// LoadSource returns the cluster file that a cluster was made from, or ErrNotFound if it
	// was made without one.
	LoadSource(ctx context.Context, name string) (*Source, error)
	// KeepSource keeps the current cluster file for a rollback.
	KeepSource(ctx context.Context, name string) error
	// LoadKeptSource returns the file that KeepSource kept, or ErrNotFound.
	LoadKeptSource(ctx context.Context, name string) ([]byte, error)
	// SaveStatus saves the latest status of a cluster.
	SaveStatus(ctx context.Context, name string, status v1alpha1.ClusterStatus) error
	// SaveNodes saves all nodes of a cluster whose status lists only some. The list is saved
	// before that status.
	SaveNodes(ctx context.Context, name string, nodes []v1alpha1.NodeStatus) error
	// LoadNodes returns all nodes of a saved cluster when they were last seen. It uses the
	// saved list only if the status is not complete: an earlier list can exist.
	LoadNodes(ctx context.Context, c *v1alpha1.Cluster) ([]v1alpha1.NodeStatus, error)
	// Remove removes a cluster. Its operations are kept. The caller holds the cluster's lock,
	// which is valid until it is released.
	Remove(ctx context.Context, name string) error
}

// The files of a cluster's registry: its generated password, the hashes of passwords, and
// its CA.
const (
	RegistryPassword = "registry.password"
	RegistryHashes   = "registry.hashes"
	RegistryCA       = "registry-ca.crt"
	RegistryCAKey    = "registry-ca.key"
)

// BackupKey is the file of the key that signs a cluster's backup sets.
const BackupKey = "backup-signing.key"

// FormerSigners is the file of the public keys of former signing keys for a cluster's
// backup sets, one per line.
const FormerSigners = "backup-signers.pub"

// BaseFile is the file with what an earlier manager of a cluster knew: see package history.
const BaseFile = "base.json"

// ClusterFileNames returns the names of all files of ClusterFiles that another manager needs.
func ClusterFileNames() []string {
	return []string{RegistryPassword, RegistryHashes, RegistryCA, RegistryCAKey, BackupKey, FormerSigners}
}

// ClusterFiles keeps generated passwords and keys of clusters.
type ClusterFiles interface {
	// Load returns a file of a cluster, nil if it does not exist.
	Load(ctx context.Context, name, file string) ([]byte, error)
	// LoadOrCreate returns a file of a cluster, and creates it if it does not exist. It is
	// created once: concurrent callers all get the first content.
	LoadOrCreate(ctx context.Context, name, file string, content func() ([]byte, error)) ([]byte, error)
	// Save writes a file of a cluster. Without content it removes the file.
	Save(ctx context.Context, name, file string, content []byte) error
	// Location returns the place of a file of a cluster, for messages.
	Location(name, file string) string
}

// Kubeconfigs keeps admin kubeconfigs.
type Kubeconfigs interface {
	// Load returns the saved admin kubeconfig, or ErrNotFound.
	Load(ctx context.Context, name string) ([]byte, error)
	// Save saves the admin kubeconfig of a cluster. It refuses a kubeconfig that can
	// run programs, names files or skips verification: only the fields of kubeconfig.Admin
	// are allowed.
	Save(ctx context.Context, name string, content []byte) error
	// Location returns the place of the admin kubeconfig of a cluster, for messages. For a
	// backend in files it is the path, which may not exist.
	Location(name string) string
}

// Backups keeps backup sets and the keys that sign them. Sets are files, which can have many
// gigabytes. They outlive their cluster.
type Backups interface {
	// Dir returns the directory of a cluster's backup sets, which may not exist.
	Dir(cluster string) (string, error)
	// MakeDir creates the directory of a cluster's backup sets and returns its path.
	MakeDir(cluster string) (string, error)
	// ListClusters returns the names of the clusters that have backups, sorted. Some of them
	// may no longer be saved.
	ListClusters(ctx context.Context) ([]string, error)
	// AdoptKey replaces the key that signs a cluster's backup sets, and keeps the public
	// key of the former one.
	AdoptKey(ctx context.Context, name string, key []byte, former string) error
	// LoadFormerSigners returns the public keys of FormerSigners.
	LoadFormerSigners(ctx context.Context, name string) ([]string, error)
}

// An AmbiguousError is returned for a prefix of several operation ids.
type AmbiguousError struct {
	Prefix string
	IDs    []string // newest first
}

// fewIDs limits the number of ids in an error.
const fewIDs = 5

func (e *AmbiguousError) Error() string {
	few, more := e.IDs, ""
	if len(few) > fewIDs {
		few, more = few[:fewIDs], fmt.Sprintf(" and %d more", len(e.IDs)-fewIDs)
	}
	return fmt.Sprintf("%q matches several operations: %s%s", e.Prefix, strings.Join(few, ", "), more)
}

// Operations keeps operations, their plans and the requests of users about them.
type Operations interface {
	// Create saves an operation that is about to begin, with its plan, in state
	// Pending. Its id begins with the time, so that ids sort by age:
	// "20261120-181502-create-x7k2". If that time is not after the time of the latest id, for
	// example because the clock was set back, the id is one second after the latest one.
	Create(ctx context.Context, now time.Time, spec v1alpha1.OperationSpec, p *plan.Plan) (*v1alpha1.Operation, error)
	// SavePlan saves the plan of an operation that has not begun, and the operation with its
	// parameters. A later plan replaces it.
	SavePlan(ctx context.Context, o *v1alpha1.Operation, p *plan.Plan) error
	// Save saves the state of an operation.
	Save(ctx context.Context, o *v1alpha1.Operation) error
	// Update changes the state of an operation from its current one, in one step: another process can change it at the same
	// time. An error of change is returned, and nothing is saved.
	Update(ctx context.Context, id string, change func(now *v1alpha1.Operation) error) error
	// Load returns the operation with that id, or ErrNotFound.
	Load(ctx context.Context, id string) (*v1alpha1.Operation, error)
	// Find returns the operation whose id begins with prefix, ErrNotFound if there
	// is none, or *AmbiguousError if there are several.
	Find(ctx context.Context, prefix string) (*v1alpha1.Operation, error)
	// List returns the operations of a cluster, or of all clusters if it is "", newest
	// first. A damaged operation that may belong to the cluster is an error: a caller must
	// not take an earlier operation for the latest one.
	List(ctx context.Context, cluster string) ([]v1alpha1.Operation, error)
	// ListReadable returns the operations that can be read, and the problems of the others.
	ListReadable(ctx context.Context, cluster string) (out []v1alpha1.Operation, damaged diag.List, err error)
	// LoadPlan returns the plan of an operation.
	LoadPlan(ctx context.Context, id string) (*plan.Plan, error)
	// LoadPlannedCluster returns the cluster description in the plan of an operation.
	LoadPlannedCluster(ctx context.Context, id string) (*v1alpha1.Cluster, error)

	// RequestCancel saves a request to cancel an operation. A later request replaces it.
	RequestCancel(ctx context.Context, id string, r CancelRequest) error
	// LoadCancelRequest returns the last request to cancel an operation, or ErrNotFound.
	LoadCancelRequest(ctx context.Context, id string) (CancelRequest, error)
	// WaitForCancel waits for a request to the holder of a lock, and returns it. It returns
	// the cause if ctx ends before. warn is called once if a request cannot be read; the next
	// look can succeed.
	WaitForCancel(ctx context.Context, id string, holder Holder, warn func(error)) (CancelRequest, error)
}

// A CancelRequest asks the process that runs an operation to stop at the next safe point.
type CancelRequest struct {
	By   Holder    `json:"by"` // the process that has written the request
	Time time.Time `json:"time"`
	// Holder is the process that shall stop. Another process, which resumes the operation
	// later, does not stop.
	Holder Holder `json:"holder"`
}

// ClusterOfPlan returns the cluster description in a plan, which must be for the plan's
// cluster.
func ClusterOfPlan(p *plan.Plan) (*v1alpha1.Cluster, error) {
	c := new(v1alpha1.Cluster)
	if err := json.Unmarshal(p.Spec, c); err != nil {
		return nil, fmt.Errorf("its cluster description cannot be read: %w", err)
	}
	if c.Name != p.Cluster {
		return nil, fmt.Errorf("it is for cluster %q, but describes cluster %q", p.Cluster, c.Name)
	}
	return c, nil
}

// Journals keeps the events of operations.
type Journals interface {
	// Open opens the journal of an operation for appending. It first removes an incomplete
	// last event, which a crash may have left. The caller holds the cluster's lock. The
	// context limits only the opening.
	Open(ctx context.Context, id string) (Journal, error)
	// ReadEvents calls fn for each event of an operation, in order, and stops at the
	// first error of fn. An operation that has not begun has none.
	ReadEvents(ctx context.Context, id string, fn func(event.Event) error) error
	// FollowEvents is ReadEvents that continues with new events until the operation has
	// finished (nil), its process no longer runs (ErrNoEnd), or ctx is done.
	FollowEvents(ctx context.Context, id string, fn func(event.Event) error) error
}

// A Journal is the append-only log of one operation. Its methods may be called from several
// goroutines. Each backend limits the time of its writes.
type Journal interface {
	// LastSeq returns the highest event number in the journal, 0 if it is empty.
	LastSeq() int64
	// Append adds an event, without waiting until it is durable. An event without a number
	// gets the next one. After an error every further Append fails: a journal with a gap is
	// worse than a short one.
	Append(e event.Event) error
	// Sync returns when all events that were appended before are durable, and other processes
	// see them. Callers at the same time share one write. Without Sync, this takes at most
	// 200 ms.
	Sync() error
	// Close syncs and closes the journal. It does not repeat an error that Append or Sync
	// has returned.
	Close() error
}

// Files are records as files in a private directory, for programs and libraries that need
// paths.
type Files interface {
	// KnownHosts returns the path of the file with host keys, to read and to append to.
	KnownHosts() string
	// Kubeconfig returns the path of a file with an admin kubeconfig of a cluster. The rules of
	// Kubeconfigs.Save apply. release removes the file if it was made for the caller.
	Kubeconfig(ctx context.Context, cluster string, content []byte) (path string, release func(), err error)
	// ClusterFile returns the path of a saved file of a cluster, which may not exist.
	ClusterFile(ctx context.Context, cluster, file string) (path string, err error)
	// TempDir returns a directory on disk for temporary files, which can be large. The caller
	// removes its files.
	TempDir() string
	// Close removes the files that were made for the caller. After a crash, a later process
	// removes them.
	Close() error
}
