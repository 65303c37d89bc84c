// Package hostexec runs programs on the hosts of clusters, copies files to and from them,
// and opens login shells.
package hostexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idNoSuchClusters = "no-such-clusters"
	idInputForMany   = "input-for-many"
	idNoCopy         = "copy-unreadable"
)

// Clusters are the saved clusters.
type Clusters interface {
	// List returns their names.
	List(ctx context.Context) ([]string, error)
	// Load returns a cluster. The error is records.ErrNotFound if there is none, and a
	// diag.List if its saved state is damaged.
	Load(ctx context.Context, name string) (*v1alpha1.Cluster, error)
}

// A Config configures an Executor.
type Config struct {
	Clusters Clusters
	Dialer   hostconn.Dialer
	// Resolve returns how a host is logged in to; nil uses the cluster's settings.
	Resolve func(v1alpha1.Host, remote.Options) (remote.Login, error)
	// Shell runs a login shell on a host and returns its exit code.
	Shell func(context.Context, v1alpha1.Host, remote.Shell, remote.Options) (int, error)
	// Warn, if not nil, is called with saved clusters that are skipped because they are
	// damaged.
	Warn func(diag.List)
}

// An Executor works on the hosts of saved clusters.
type Executor struct{ c Config }

// New returns an executor.
func New(c Config) *Executor { return &Executor{c} }

// A Target is a selected host. Its SSH settings include the settings of its cluster.
type Target struct {
	Cluster string
	Host    v1alpha1.Host
}

// A HostResult is the result of work on one host.
type HostResult struct {
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
	// ExitCode is the exit code of the program, as in a shell; -1 means that there is
	// none and Error has the reason.
	ExitCode int              `json:"exitCode"`
	Error    *diag.Diagnostic `json:"error,omitempty"`
	Seconds  float64          `json:"seconds"`
	// Copied is the result of a copy. Files of a directory that could not be read are
	// left out.
	Copied *transfer.Summary `json:"copied,omitempty"`
}

// Failed reports whether the work failed.
func (r HostResult) Failed() bool { return r.ExitCode != 0 }

// Skipped returns the number of files that a copy left out.
func (r HostResult) Skipped() int {
	if r.Copied == nil {
		return 0
	}
	return r.Copied.Skipped
}

// Work configures work on hosts.
type Work struct {
	Targets []Target
	// Root does the work as root instead of the login user.
	Root bool
	// Parallel limits the number of hosts at the same time; 0 means 50.
	Parallel int
	// Done, if not nil, is called with the result of each host, not concurrently.
	Done func(HostResult)
}

// A Program is a program for Exec.
type Program struct {
	Argv []string
	// In is allowed for one host only.
	In io.Reader
	// Output returns the writers for a host's output.
	Output func(Target) (out, errw io.Writer)
}

// A Copy configures Copy.
type Copy struct {
	Here, There string // paths
	// Fetch copies from the hosts; with several hosts, into one directory for each.
	Fetch bool
	// Most, if not 0, limits the bytes to fetch from a host: nothing is fetched of a
	// larger file.
	Most int64
	// Progress, if not nil, is called with the progress, concurrently for several hosts.
	Progress func(Target, transfer.Progress)
	// Read, if not nil, is called with the number of bytes of Here that have been read,
	// before anything is sent.
	Read func(int64)
}

const (
	// defaultParallel is the number of hosts at the same time if a Work sets no limit.
	defaultParallel = 50
	// copyAttempts is the number of attempts for a copy whose connection breaks.
	copyAttempts = 5
)

// hostWork is the work on one target.
type hostWork func(context.Context, Target, remote.Worker) (HostResult, error)

// runOnTargets calls do for every target. A target that fails does not affect the others.
func (e *Executor) runOnTargets(ctx context.Context, w Work, opts remote.Options, do hostWork) []HostResult {
	results := make([]HostResult, len(w.Targets))
	done := make(chan int)
	var g errgroup.Group
	g.SetLimit(cmp.Or(w.Parallel, defaultParallel))
	go func() {
		for i, t := range w.Targets {
			g.Go(func() error {
				start := time.Now()
				r, err := e.runOnTarget(ctx, t, opts, do)
				r.Cluster, r.Host, r.Seconds = t.Cluster, t.Host.Name, time.Since(start).Seconds()
				if err != nil {
					r.ExitCode, r.Error = -1, hostconn.Diagnose(err)
				}
				results[i] = r
				done <- i
				return nil
			})
		}
		_ = g.Wait() // errors are in the results
		close(done)
	}()
	for i := range done {
		if w.Done != nil {
			w.Done(results[i])
		}
	}
	return results
}

// runOnTarget connects to one target.
func (e *Executor) runOnTarget(ctx context.Context, t Target, opts remote.Options, do hostWork) (HostResult, error) {
	if err := ctx.Err(); err != nil {
		return HostResult{}, context.Cause(ctx)
	}
	conn, err := e.c.Dialer.Connect(ctx, t.Host, opts)
	if err != nil {
		return HostResult{}, err
	}
	defer func() { _ = conn.Close() }()
	if e.c.Resolve != nil { // the user whose permissions the work has
		l, err := e.c.Resolve(t.Host, opts)
		if err != nil {
			return HostResult{}, err
		}
		t.Host.SSH.User = l.User
	}
	worker, ok := conn.(remote.Worker)
	if !ok {
		return HostResult{}, fmt.Errorf("host %s cannot run programs", t.Host.Name)
	}
	return do(ctx, t, worker)
}

// userOn returns the user whose permissions the work has: "" means root.
func (w Work) userOn(t Target) string {
	if w.Root {
		return ""
	}
	return t.Host.SSH.User
}

// Exec runs a program on every target. It returns an error only if nothing was run; the
// results of hosts have the order of the targets.
func (e *Executor) Exec(ctx context.Context, w Work, p Program) ([]HostResult, error) {
	if p.In != nil && len(w.Targets) > 1 {
		return nil, diag.Refuse(idInputForMany, fmt.Sprintf("input can go to one host only, but the selector names %d", len(w.Targets)),
			"choose one host, or copy a file to the hosts first: slipway cp")
	}
	return e.runOnTargets(ctx, w, e.c.Dialer.QueryOptions(), func(ctx context.Context, t Target, on remote.Worker) (HostResult, error) {
		out, errw := p.Output(t)
		code, err := on.Run(ctx, remote.Command{Argv: p.Argv, User: w.userOn(t)}, p.In, out, errw)
		return HostResult{ExitCode: code}, err
	}), nil
}

// Copy copies to or from every target. If the connection breaks, the copy continues where
// it stopped, for a limited number of attempts.
func (e *Executor) Copy(ctx context.Context, w Work, c Copy) ([]HostResult, error) {
	opts := e.c.Dialer.QueryOptions()
	opts.Reconnect = 30 * time.Second
	once := newFetch(c, w)
	if !c.Fetch {
		tree, err := transfer.ReadTree(ctx, c.Here, c.Read)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, diag.Refuse(idNoCopy, asMissingFile(err).Error(), "use a readable file or directory")
		}
		once = func(_ context.Context, t Target, conn net.Conn, _ string) (transfer.Summary, error) {
			return tree.Send(conn, c.progressOf(t))
		}
	}
	return e.runOnTargets(ctx, w, opts, func(ctx context.Context, t Target, on remote.Worker) (HostResult, error) {
		var broken *transfer.BrokenError
		at := "" // the destination, which may be a directory after the first attempt
		for attempt := 1; ; attempt++ {
			there := remote.Copy{Path: c.There, User: w.userOn(t), Send: c.Fetch}
			if at != "" && !c.Fetch {
				there.Path, there.Exact = at, true
			}
			conn, err := on.OpenCopy(ctx, there)
			if err != nil {
				return HostResult{}, withKeptPart(broken, err)
			}
			line := &watchedConn{Conn: conn}
			sum, err := once(ctx, t, line, at)
			err = asMissingFile(err)
			// An error of the host would occur again. And a connection that we close
			// is not broken.
			again := line.failed.Load() && !errors.As(err, new(*transfer.Error))
			_ = conn.Close()
			at = cmp.Or(sum.To, at)
			if !errors.As(err, &broken) {
				broken = nil
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err == nil || ctx.Err() != nil || !again || attempt == copyAttempts {
				return HostResult{Copied: &sum}, withKeptPart(broken, err)
			}
		}
	}), nil
}

// asMissingFile returns a plain error for a missing file or directory, instead of the failed
// system call. A host reports it as text.
func asMissingFile(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) && at.Op == "lstat" && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no such file or directory: %s", at.Path)
	}
	var theirs *transfer.Error
	if errors.As(err, &theirs) {
		path, of := strings.CutPrefix(theirs.Message, "lstat ")
		if path, missing := strings.CutSuffix(path, ": "+syscall.ENOENT.Error()); of && missing {
			return &transfer.Error{Message: "no such file or directory: " + path}
		}
	}
	return err
}

// withKeptPart adds to an error the part that is kept for the next copy, if there is one.
func withKeptPart(broken *transfer.BrokenError, err error) error {
	if broken == nil || err == nil || errors.As(err, new(*transfer.BrokenError)) {
		return err
	}
	return &transfer.BrokenError{Part: broken.Part, Err: err}
}

func (c Copy) progressOf(t Target) func(transfer.Progress) {
	if c.Progress == nil {
		return nil
	}
	return func(p transfer.Progress) { c.Progress(t, p) }
}

// newFetch returns the function that receives from one host. With several hosts, each gets
// its directory, because the names would be equal. A later attempt continues at the
// destination of the first one.
func newFetch(c Copy, w Work) func(context.Context, Target, net.Conn, string) (transfer.Summary, error) {
	clusters := map[string]bool{}
	for _, t := range w.Targets {
		clusters[t.Cluster] = true
	}
	return func(ctx context.Context, t Target, conn net.Conn, at string) (transfer.Summary, error) {
		if at != "" {
			return transfer.FetchTree(ctx, conn, transfer.Place{Path: at, Exact: true, Most: c.Most}, "", c.progressOf(t))
		}
		dir := c.Here
		if len(w.Targets) > 1 {
			dir = filepath.Join(dir, t.Host.Name)
			if len(clusters) > 1 {
				dir = filepath.Join(c.Here, t.Cluster, t.Host.Name)
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return transfer.Summary{}, err
			}
		}
		return transfer.FetchTree(ctx, conn, transfer.Place{Path: dir, Most: c.Most}, localName(c.There, t.Host.Name), c.progressOf(t))
	}
}

// localName returns the local name of a fetched file: the requested name, never one from the
// host. If the request has no name, such as a home directory or "/", it is the host name.
func localName(asked, host string) string {
	name := path.Base(path.Clean(asked))
	if name == "." || name == ".." || name == "/" {
		return host
	}
	return name
}

// A watchedConn is a connection that records whether it failed.
type watchedConn struct {
	net.Conn
	failed atomic.Bool
}

func (l *watchedConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil {
		l.failed.Store(true)
	}
	return n, err
}

func (l *watchedConn) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if err != nil {
		l.failed.Store(true)
	}
	return n, err
}

// Login runs a login shell on a host and returns its exit code.
func (e *Executor) Login(ctx context.Context, t Target, sh remote.Shell) (int, error) {
	return e.c.Shell(ctx, t.Host, sh, e.c.Dialer.QueryOptions())
}
