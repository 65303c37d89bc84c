// Package move gives the management of a cluster from the command line to the API of a management
// server or of an operator. It copies the records, and makes the hosts refuse the command line. The
// cluster runs on. The records of the command line remain, so that it can read the cluster, and manage
// it again later.
package move

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/clusterlock"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idClusterExists = "move-cluster-exists"
	idNotRunning    = "move-cluster-not-running"
	idSSHConfig     = "move-ssh-configuration"
	idFileTooLarge  = "move-file-too-large"
	idObjectGone    = "move-object-gone"
)

// AnnotationSource is on a Cluster while it is moved. It has the id of the manager that moves it, so
// that this manager can repeat a move that was interrupted.
const AnnotationSource = v1alpha1.Group + "/moved-from"

// Holder is the name of the work in the locks of the cluster.
const Holder = "move"

// Objects are the Cluster objects of an API, in one namespace.
type Objects interface {
	// Load returns the object of a cluster, nil if it does not exist.
	Load(ctx context.Context, name string) (*v1alpha1.Cluster, error)
	// Save creates the object of a cluster, or replaces the version that it was loaded from. It returns the saved one.
	Save(ctx context.Context, c *v1alpha1.Cluster) (*v1alpha1.Cluster, error)
	// SaveFiles creates or replaces a Secret that the API deletes with its Cluster.
	SaveFiles(ctx context.Context, owner *v1alpha1.Cluster, name string, files map[string][]byte) error
	// Patch changes an object with a JSON merge patch.
	Patch(ctx context.Context, name string, patch []byte) error
}

// A Target is the API to which a cluster is moved.
type Target struct {
	Records records.Backend
	Objects Objects
	// Server is its address, which the hosts tell to other managers.
	Server string
	// Bundle replaces the bundle of the cluster, which can be a file of the command line. nil keeps it.
	Bundle *string
	// Confirm asks the user after all checks. nil asks nothing.
	Confirm func(context.Context) error
}

// A Config configures a Mover. All fields are required.
type Config struct {
	View   *savedstate.View // of the command line, with its records
	Dialer hostconn.Dialer
	// Resolve returns how the command line logs in to a host, and KnownKeys the host keys that it
	// trusts, as lines of known_hosts.
	Resolve   func(v1alpha1.Host, remote.Options) (remote.Login, error)
	KnownKeys func(v1alpha1.Host, remote.Options) ([]string, error)
	Log       *slog.Logger
}

// A Mover moves clusters.
type Mover struct{ Config }

// New returns a mover.
func New(c Config) *Mover { return &Mover{c} }

// Move moves a cluster. A move that was interrupted can be repeated. progress can be nil. Until the end,
// the error is a diag.List, a *clusterlock.LockedError or another one if nothing was changed, and an
// *UnfinishedError otherwise.
func (m *Mover) Move(ctx context.Context, name string, to Target, progress event.Sink) (err error) {
	source := m.View.Records
	lock, err := source.Locks().Acquire(ctx, name, records.Holder{Operation: Holder})
	var held *records.HeldError
	switch {
	case errors.As(err, &held):
		return &clusterlock.LockedError{Cluster: name, Operation: held.Holder.Operation, Holder: held.Holder.String()}
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	c, err := m.loadSettled(ctx, name)
	if err != nil {
		return err
	}
	p := &pass{Mover: m, to: to, cluster: c, progress: progress}
	if err := p.convert(); err != nil {
		return err
	}
	if err := p.findEarlier(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.closeHosts()) }()
	if err := p.connect(ctx); err != nil {
		return err
	}
	if to.Confirm != nil {
		if err := to.Confirm(ctx); err != nil {
			return err
		}
	}
	if err := p.handOver(ctx); err != nil {
		return &UnfinishedError{name, err}
	}
	return nil
}

// An UnfinishedError is the error of a move that has begun to change the API.
type UnfinishedError struct {
	Cluster string
	// Err is not unwrapped: it is not true that nothing was changed.
	Err error
}

func (e *UnfinishedError) Error() string {
	return "the move of cluster " + e.Cluster + " is unfinished: " + e.Err.Error() + "; to continue, run the command again"
}

// handOver gives the cluster to the API.
func (p *pass) handOver(ctx context.Context) error {
	if err := p.saveObject(ctx); err != nil {
		return err
	}
	if err := p.waitForControllers(ctx); err != nil {
		return err
	}
	lock, err := p.to.Records.Locks().Acquire(ctx, p.cluster.Name, records.Holder{Operation: Holder})
	if err != nil {
		return err
	}
	defer func() {
		if err := lock.Release(); err != nil {
			p.Log.Warn("the lock of the moved cluster was not released; it expires", "cluster", p.cluster.Name, "error", err)
		}
	}()
	if err := p.copyRecords(ctx); err != nil {
		return fmt.Errorf("copying the records: %w", err)
	}
	if err := errors.Join(lock.Check(ctx), p.takeHosts(ctx)); err != nil {
		return err
	}
	return p.release(ctx)
}

// loadSettled returns a saved cluster that no operation has left unfinished.
func (m *Mover) loadSettled(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	c, err := savedstate.ConvertNotFound(m.View.Records.Clusters().Load(ctx, name))
	if err != nil {
		return nil, err
	}
	past := history.History{View: m.View}
	if err := past.RefuseUnfinished(ctx, c); err != nil {
		return nil, err
	}
	if c.Status.Phase != v1alpha1.PhaseRunning {
		return nil, diag.Refuse(idNotRunning, fmt.Sprintf("cluster %s is %s", name, c.Status.Phase), "repair the cluster first")
	}
	_, err = m.View.Records.Kubeconfigs().Load(ctx, name)
	if errors.Is(err, records.ErrNotFound) {
		return nil, diag.Refuse(idNotRunning, "cluster "+name+" has no saved kubeconfig", "save it: slipway apply -f FILE")
	}
	return c, err
}

// A pass is one attempt to move a cluster.
type pass struct {
	*Mover
	to       Target
	cluster  *v1alpha1.Cluster // as saved by the command line
	progress event.Sink

	object  *v1alpha1.Cluster // for the API
	secrets []secretFiles
	created *v1alpha1.Cluster // the object in the API, nil if it does not exist yet
	hosts   []clusterlock.Host
}

func (p *pass) report(message string) { event.SendNote(p.progress, "", message) }

// findEarlier finds the object of an earlier attempt. It refuses another object.
func (p *pass) findEarlier(ctx context.Context) error {
	id, err := p.View.Records.ManagerID(ctx)
	if err != nil {
		return err
	}
	p.object.Annotations = map[string]string{AnnotationSource: id}
	name := p.cluster.Name
	p.created, err = p.to.Objects.Load(ctx, name)
	switch is := p.created; {
	case err != nil || is == nil:
		return err
	case is.Annotations[AnnotationSource] != id:
		return diag.Refuse(idClusterExists, "the API "+p.to.Server+" has a Cluster "+name+" already",
			"if it is this cluster, nothing is left to do; otherwise select another namespace")
	case is.DeletionTimestamp != nil:
		return diag.Refuse(idClusterExists, "Cluster "+name+" of an earlier attempt is being deleted",
			"wait until it is gone, then run the command again")
	case !is.Spec.Paused || is.Status.AppliedIntent != "":
		return diag.Refuse(idClusterExists, "Cluster "+name+" of an earlier attempt was resumed",
			"if the API manages the cluster now, remove the annotation "+AnnotationSource+" from the object")
	}
	return nil
}

// connect connects to the hosts, and returns an error unless this command line manages the cluster.
func (p *pass) connect(ctx context.Context) error {
	conns := make([]remote.Host, len(p.cluster.Spec.Hosts))
	failed := make([]error, len(conns))
	p.report(fmt.Sprintf("connecting to %d hosts", len(conns)))
	indexes := make([]int, len(conns))
	for i := range indexes {
		indexes[i] = i
	}
	hostconn.ForEach(indexes, func(i int) { conns[i], failed[i] = p.Dialer.Dial(ctx, p.cluster, p.cluster.Spec.Hosts[i]) })
	for i, conn := range conns {
		host := p.cluster.Spec.Hosts[i].Name
		if conn == nil {
			event.SendNote(p.progress, host, "not connected: "+failed[i].Error())
			continue
		}
		p.hosts = append(p.hosts, clusterlock.Host{Name: host, Conn: conn})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r := p.newRequest(p.View.Records)
	if len(r.Keepers) <= r.AllKeepers/2 {
		return clusterlock.RefuseMinority("make more control planes reachable") // the notes have the causes
	}
	err := clusterlock.CheckManager(ctx, r)
	if err == nil || clusterlock.CheckManager(ctx, p.newRequest(p.to.Records)) != nil {
		return err
	}
	if p.created != nil { // of an earlier attempt, which has got as far as the hosts
		return nil
	}
	return diag.Refuse(idObjectGone, "the hosts accept changes only from "+p.to.Server+", which has no Cluster "+p.cluster.Name,
		"run slipway apply --take-over, and move the cluster again")
}

// newRequest returns the request of a manager for the lock on the hosts.
func (p *pass) newRequest(manager records.Backend) clusterlock.Request {
	r := clusterlock.Request{Cluster: p.cluster.Name, Operation: Holder, Records: manager, Hosts: p.hosts, Log: p.Log}
	for _, h := range p.cluster.Spec.Hosts {
		if !spec.HasRole(h, v1alpha1.RoleControlPlane) {
			continue
		}
		r.AllKeepers++
		i := slices.IndexFunc(p.hosts, func(is clusterlock.Host) bool { return is.Name == h.Name })
		if i < 0 {
			continue
		}
		if conn, ok := p.hosts[i].Conn.(remote.Locker); ok {
			r.Keepers = append(r.Keepers, clusterlock.Keeper{Name: h.Name, Conn: conn})
		}
	}
	return r
}

func (p *pass) closeHosts() error {
	var errs []error
	for _, h := range p.hosts {
		errs = append(errs, h.Conn.Close())
	}
	return errors.Join(errs...)
}

// saveObject saves the Cluster, and the Secrets with its files. Until the move has ended, the Cluster
// is paused, and its deletion does not touch the hosts.
func (p *pass) saveObject(ctx context.Context) error {
	object := p.object.DeepCopy()
	if p.created != nil { // the description can have changed since the earlier attempt
		object.ObjectMeta = *p.created.ObjectMeta.DeepCopy()
	}
	object.Spec.Paused, object.Spec.DeletionPolicy = true, v1alpha1.DeletionRetain
	saved, err := p.to.Objects.Save(ctx, object)
	if err != nil {
		return fmt.Errorf("saving Cluster %s: %w", p.cluster.Name, err)
	}
	p.created = saved
	p.report("saved Cluster " + p.cluster.Name)
	for _, s := range p.secrets {
		if err := p.to.Objects.SaveFiles(ctx, p.created, s.name, s.files); err != nil {
			return fmt.Errorf("saving Secret %s: %w", s.name, err)
		}
		p.report("saved Secret " + s.name)
	}
	return nil
}

// copyRecords copies the records of the cluster. The caller holds the lock of the target.
func (p *pass) copyRecords(ctx context.Context) error {
	name, from, to := p.cluster.Name, p.View.Records, p.to.Records
	saved := p.object.DeepCopy()
	saved.Annotations = nil
	if err := to.Clusters().Save(ctx, saved, nil); err != nil {
		return err
	}
	nodes, err := from.Clusters().LoadNodes(ctx, p.cluster)
	if err == nil {
		err = to.Clusters().SaveNodes(ctx, name, nodes)
	}
	if err == nil {
		err = to.Clusters().SaveStatus(ctx, name, p.cluster.Status)
	}
	if err != nil {
		return err
	}
	for _, file := range records.ClusterFileNames() {
		text, err := from.ClusterFiles().Load(ctx, name, file)
		if err == nil {
			err = to.ClusterFiles().Save(ctx, name, file, text)
		}
		if err != nil {
			return err
		}
	}
	if err := p.saveBase(ctx, saved); err != nil {
		return err
	}
	admin, err := from.Kubeconfigs().Load(ctx, name)
	if err == nil {
		err = to.Kubeconfigs().Save(ctx, name, admin)
	}
	if err = errors.Join(err, p.copyHostKeys(ctx)); err != nil {
		return err
	}
	p.report("copied the records")
	return nil
}

// saveBase saves what the history of the command line tells about the cluster, and the API needs.
func (p *pass) saveBase(ctx context.Context, saved *v1alpha1.Cluster) error {
	past := history.History{View: p.View}
	replacements, err := past.CountEtcdReplacements(ctx, saved.Name, nil)
	if err != nil {
		return err
	}
	return history.SaveBase(ctx, p.to.Records.ClusterFiles(), history.Base{Cluster: saved, EtcdReplacements: replacements})
}

// copyHostKeys copies the trusted keys of the hosts and their bastions.
func (p *pass) copyHostKeys(ctx context.Context) (err error) {
	var lines []string
	for _, h := range p.cluster.Spec.Hosts {
		found, err := p.KnownKeys(hostconn.WithSSH(p.cluster, h), p.Dialer.QueryOptions())
		if err != nil {
			return err
		}
		lines = append(lines, found...)
	}
	files, err := p.to.Records.Files(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	was, err := bounded.ReadFile(files.KnownHosts(), bounded.Argument)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	have := strings.Split(string(was), "\n")
	slices.Sort(lines)
	lines = slices.DeleteFunc(slices.Compact(lines), func(line string) bool { return slices.Contains(have, line) })
	if len(lines) == 0 {
		return nil
	}
	f, err := os.OpenFile(files.KnownHosts(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// takeHosts makes the API the manager of the cluster on its control planes: they refuse this command line.
func (p *pass) takeHosts(ctx context.Context) error {
	r := p.newRequest(p.to.Records)
	r.Server, r.TakeOver = p.to.Server, true
	lock, err := clusterlock.Take(ctx, r)
	if err != nil {
		return err
	}
	defer lock.Release(context.WithoutCancel(ctx))
	if err := lock.SaveManager(ctx); err != nil {
		return fmt.Errorf("saving the manager on the control planes: %w", err)
	}
	p.report("the control planes accept changes only from " + p.to.Server)
	return nil
}

// release lets the controllers work on the Cluster.
func (p *pass) release(ctx context.Context) error {
	patch, err := mergePatch(p.object)
	if err == nil {
		err = p.to.Objects.Patch(ctx, p.cluster.Name, patch)
	}
	if err != nil {
		return fmt.Errorf("resuming Cluster %s: %w", p.cluster.Name, err)
	}
	return nil
}

// newObject returns the metadata of an object.
func newObject(name string) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}
