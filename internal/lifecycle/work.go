package lifecycle

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
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
)

// A Target is a host that a selector chose; its SSH settings are merged with
// its cluster's.
type Target struct {
	Cluster string
	Host    v1alpha1.Host
}

// A HostResult is how work on one host ended.
type HostResult struct {
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
	// ExitCode is the program's, as a shell says it; -1 is none: Error says
	// why.
	ExitCode int              `json:"exitCode"`
	Error    *diag.Diagnostic `json:"error,omitempty"`
	Seconds  float64          `json:"seconds"`
	// Copied is what came of a copy, of a directory perhaps without what could
	// not be read.
	Copied *transfer.Summary `json:"copied,omitempty"`
}

// Failed says that the host did not do what it was asked to.
func (r HostResult) Failed() bool { return r.ExitCode != 0 }

// Skipped is how many files of a copy were left out.
func (r HostResult) Skipped() int {
	if r.Copied == nil {
		return 0
	}
	return r.Copied.Skipped
}

// Work is what to do on hosts.
type Work struct {
	Targets []Target
	// Root does it as root; else it is done as the user who logs in.
	Root bool
	// Parallel bounds how many hosts work at a time; 0 is 50.
	Parallel int
	// Done, if not nil, hears of each host that has ended; not concurrently.
	Done func(HostResult)
}

// A Program is what Exec runs.
type Program struct {
	Argv []string
	// In is for one host alone.
	In io.Reader
	// Output is where a host's output goes.
	Output func(Target) (out, errw io.Writer)
}

// A Copy is what Copy does.
type Copy struct {
	Here, There string // paths
	// Fetch copies from the hosts: of several, into a directory for each.
	Fetch bool
	// Most, if not 0, is how many bytes are fetched from a host: of what is more,
	// nothing is.
	Most int64
	// Progress, if not nil, hears of bytes; concurrently for several hosts.
	Progress func(Target, transfer.Progress)
	// Read, if not nil, hears how much of Here is read, in bytes, before any of
	// it is sent.
	Read func(int64)
}

const (
	atOnce = 50
	// answerTime is how long a host that is only asked something may take for
	// each step of connecting.
	answerTime = 10 * time.Second
	// copyAttempts is how often a copy whose connection breaks goes on.
	copyAttempts = 5
)

// looking are the options for work beside the cluster's business: a host that
// does not answer is not waited for.
func (s *service) looking() remote.Options {
	return remote.Options{
		KnownHosts: filepath.Join(s.Store.Home(), "known_hosts"), Home: s.Home, Log: s.Log,
		Timeout: answerTime, Reconnect: -1,
	}
}

// each does something on every target; one that fails keeps no other from it.
func (s *service) each(ctx context.Context, w Work, opts remote.Options, do func(ctx context.Context, t Target, on remote.Worker) (HostResult, error)) []HostResult {
	results := make([]HostResult, len(w.Targets))
	done := make(chan int)
	var g errgroup.Group
	g.SetLimit(cmp.Or(w.Parallel, atOnce))
	go func() {
		for i, t := range w.Targets {
			g.Go(func() error {
				start := time.Now()
				r, err := s.on(ctx, t, opts, do)
				r.Cluster, r.Host, r.Seconds = t.Cluster, t.Host.Name, time.Since(start).Seconds()
				if err != nil {
					r.ExitCode, r.Error = -1, why(err)
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

// on connects to one target.
func (s *service) on(ctx context.Context, t Target, opts remote.Options, do func(context.Context, Target, remote.Worker) (HostResult, error)) (HostResult, error) {
	if err := ctx.Err(); err != nil {
		return HostResult{}, context.Cause(ctx)
	}
	conn, err := s.Connect(ctx, t.Host, opts)
	if err != nil {
		return HostResult{}, err
	}
	defer func() { _ = conn.Close() }()
	if s.Resolve != nil { // whose rights the work has
		l, err := s.Resolve(t.Host, opts)
		if err != nil {
			return HostResult{}, err
		}
		t.Host.SSH.User = l.User
	}
	worker, ok := conn.(remote.Worker)
	if !ok {
		return HostResult{}, fmt.Errorf("host %s runs no programs", t.Host.Name)
	}
	return do(ctx, t, worker)
}

// why puts an error into words for people and programs.
func why(err error) *diag.Diagnostic {
	d := &diag.Diagnostic{Severity: diag.Error, Message: err.Error()}
	var broken *transfer.BrokenError
	if errors.As(err, &broken) {
		d.Message = broken.Err.Error()
	}
	var e *remote.Error
	if errors.As(err, &e) {
		d.ID, d.Message, d.Hint = string(e.Reason), e.Cause, e.Remedy
	}
	if broken != nil {
		d.Message += "; what came is kept in " + broken.Part + ", for a copy to the same place"
	}
	return d
}

// login is the user whose rights work has: "" is root's.
func (w Work) login(t Target) string {
	if w.Root {
		return ""
	}
	return t.Host.SSH.User
}

// Exec runs a program on every target. The error is a refusal; what happened
// on hosts is in the results, in the order of the targets.
func (s *service) Exec(ctx context.Context, w Work, p Program) ([]HostResult, error) {
	if p.In != nil && len(w.Targets) > 1 {
		return nil, refused(idInputForMany, fmt.Sprintf("input can go to one host, and the selector names %d", len(w.Targets)),
			"choose one host, or copy a file to them first: slipway cp")
	}
	return s.each(ctx, w, s.looking(), func(ctx context.Context, t Target, on remote.Worker) (HostResult, error) {
		out, errw := p.Output(t)
		code, err := on.Run(ctx, remote.Command{Argv: p.Argv, User: w.login(t)}, p.In, out, errw)
		return HostResult{ExitCode: code}, err
	}), nil
}

// Copy copies to or from every target. A copy whose connection breaks goes on
// where it stopped, for a while.
func (s *service) Copy(ctx context.Context, w Work, c Copy) ([]HostResult, error) {
	opts := s.looking()
	opts.Reconnect = 30 * time.Second
	once := fetch(c, w)
	if !c.Fetch {
		tree, err := transfer.Look(ctx, c.Here, c.Read)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, refused(idNoCopy, unfound(err).Error(), "name a file or a directory that can be read")
		}
		once = func(_ context.Context, t Target, conn net.Conn, _ string) (transfer.Summary, error) {
			return tree.Send(conn, c.heard(t))
		}
	}
	return s.each(ctx, w, opts, func(ctx context.Context, t Target, on remote.Worker) (HostResult, error) {
		var broken *transfer.BrokenError
		at := "" // where it goes, which is a directory since, perhaps
		for attempt := 1; ; attempt++ {
			there := remote.Copy{Path: c.There, User: w.login(t), Send: c.Fetch}
			if at != "" && !c.Fetch {
				there.Path, there.Exact = at, true
			}
			conn, err := on.OpenCopy(ctx, there)
			if err != nil {
				return HostResult{}, keeping(broken, err)
			}
			line := &line{Conn: conn}
			sum, err := once(ctx, t, line, at)
			err = unfound(err)
			// What the host says would be said again; and that we close the
			// connection does not break it.
			again := line.broke.Load() && !errors.As(err, new(*transfer.Error))
			_ = conn.Close()
			at = cmp.Or(sum.To, at)
			if !errors.As(err, &broken) {
				broken = nil
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err == nil || ctx.Err() != nil || !again || attempt == copyAttempts {
				return HostResult{Copied: &sum}, keeping(broken, err)
			}
		}
	}), nil
}

// unfound says in plain words that a file or a directory is not there to be copied. A
// host says so as the system call that has failed.
func unfound(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) && at.Op == "lstat" && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file or directory %s", at.Path)
	}
	var theirs *transfer.Error
	if errors.As(err, &theirs) {
		path, of := strings.CutPrefix(theirs.Message, "lstat ")
		if path, missing := strings.CutSuffix(path, ": "+syscall.ENOENT.Error()); of && missing {
			return &transfer.Error{Message: "there is no file or directory " + path}
		}
	}
	return err
}

// keeping is an error that says what is kept for the next copy, if anything is.
func keeping(broken *transfer.BrokenError, err error) error {
	if broken == nil || err == nil || errors.As(err, new(*transfer.BrokenError)) {
		return err
	}
	return &transfer.BrokenError{Part: broken.Part, Err: err}
}

func (c Copy) heard(t Target) func(transfer.Progress) {
	if c.Progress == nil {
		return nil
	}
	return func(p transfer.Progress) { c.Progress(t, p) }
}

// fetch receives from one host: what comes from several would have one name. It
// goes on at a place where an attempt before has begun, if there is one.
func fetch(c Copy, w Work) func(context.Context, Target, net.Conn, string) (transfer.Summary, error) {
	clusters := map[string]bool{}
	for _, t := range w.Targets {
		clusters[t.Cluster] = true
	}
	return func(ctx context.Context, t Target, conn net.Conn, at string) (transfer.Summary, error) {
		if at != "" {
			return transfer.Fetch(ctx, conn, transfer.Place{Path: at, Exact: true, Most: c.Most}, "", c.heard(t))
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
		return transfer.Fetch(ctx, conn, transfer.Place{Path: dir, Most: c.Most}, called(c.There, t.Host.Name), c.heard(t))
	}
}

// called is what something that is fetched is called in a directory: as it was
// asked for, never as the host says. What was asked for without a name, such as
// a home or "/", is called like its host.
func called(asked, host string) string {
	name := path.Base(path.Clean(asked))
	if name == "." || name == ".." || name == "/" {
		return host
	}
	return name
}

// A line is a connection that knows whether it was it that failed.
type line struct {
	net.Conn
	broke atomic.Bool
}

func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil {
		l.broke.Store(true)
	}
	return n, err
}

func (l *line) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if err != nil {
		l.broke.Store(true)
	}
	return n, err
}

// Login talks to a login shell on a host, and answers its exit code.
func (s *service) Login(ctx context.Context, t Target, sh remote.Shell) (int, error) {
	return s.Shell(ctx, t.Host, sh, s.looking())
}
