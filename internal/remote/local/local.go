// Package local runs the node helper on this machine, without SSH.
package local

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/embedded"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/bootstrap"
)

// A Dialer starts helpers on this machine. The zero value works.
type Dialer struct {
	// Helper returns the node helper for an architecture; nil means the embedded helper.
	Helper func(arch string) (embedded.Helper, error)
	// Dirs lists directories for the start of the helper; nil means /run, /var/tmp, /tmp
	// and /root.
	Dirs []string
}

// Connect starts the node helper for host, which is this machine. It needs root.
func (d *Dialer) Connect(ctx context.Context, host v1alpha1.Host, opts remote.Options) (remote.Host, error) {
	opts = opts.WithDefaults()
	fail := func(reason remote.Reason, cause, remedy string) error {
		return &remote.Error{Host: host.Name, Reason: reason, Cause: cause, Remedy: remedy}
	}
	switch {
	case runtime.GOOS != "linux":
		return nil, fail(remote.WrongArch, "this machine runs "+runtime.GOOS+", not Linux", "use a Linux host")
	case host.Arch != "" && host.Arch != runtime.GOARCH:
		return nil, fail(remote.WrongArch,
			fmt.Sprintf("this machine's architecture is %s, but the cluster file has %s", runtime.GOARCH, host.Arch),
			"write arch: "+runtime.GOARCH+", or leave arch out")
	case os.Geteuid() != 0:
		return nil, fail(remote.SudoFailed, "changing this machine needs root", "run slipway with sudo")
	}
	h, err := bootstrap.Open(ctx, host.Name, func(ctx context.Context) (*wire.Client, error) {
		return d.connectHelper(ctx, host.Name, opts)
	}, opts)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (d *Dialer) connectHelper(ctx context.Context, name string, opts remote.Options) (*wire.Client, error) {
	find := d.Helper
	if find == nil {
		find = embedded.FindHelper
	}
	helper, err := find(runtime.GOARCH)
	if err != nil {
		return nil, &remote.Error{Host: name, Reason: remote.HelperFailed, Cause: err.Error(), Err: err}
	}
	c, err := d.startHelper(ctx, helper)
	if err != nil {
		return nil, &remote.Error{
			Host: name, Reason: remote.NoExec, Cause: "the node helper cannot run on this machine: " + err.Error(),
			Remedy: "free 20 MB in one of the directories, or remount it with the option exec", Err: err,
		}
	}
	shake, cancel := context.WithTimeoutCause(ctx, opts.Timeout, errors.New("the node helper does not answer"))
	defer cancel()
	client, err := wire.NewClient(shake, name, c, nil, opts.Blobs)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &remote.Error{
			Host: name, Reason: remote.HelperFailed,
			Cause: "the node helper does not start: " + err.Error() + c.lastOutput(), Err: err,
		}
	}
	return client, nil
}

// startHelper runs the helper from the first directory that allows it. The helper
// removes its file and the directory once it runs.
func (d *Dialer) startHelper(ctx context.Context, h embedded.Helper) (*child, error) {
	dirs := d.Dirs
	if dirs == nil {
		dirs = []string{"/run", "/var/tmp", "/tmp", "/root"}
	}
	var errs []error
	for _, dir := range dirs {
		c, err := startIn(ctx, dir, h)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func startIn(ctx context.Context, parent string, h embedded.Helper) (*child, error) {
	var word [6]byte
	_, _ = rand.Read(word[:]) // never fails: crypto/rand guarantees it
	dir := filepath.Join(parent, ".slipway-"+hex.EncodeToString(word[:]))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, h.FileName())
	err := unpackHelper(path, h)
	if err == nil {
		var says []byte
		says, err = exec.CommandContext(ctx, path, "digest").Output()
		if err == nil && string(says) != h.SHA256+"\n" {
			err = errors.New("the embedded node helper is damaged")
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", parent, err), os.RemoveAll(dir))
	}
	c, err := spawnHelper(context.WithoutCancel(ctx), path, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func unpackHelper(path string, h embedded.Helper) error {
	zr, err := gzip.NewReader(h.PackedReader())
	if err != nil {
		return fmt.Errorf("unpacking the node helper: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, zr)
	return errors.Join(err, f.Close())
}

// child is a running helper, connected through pipes.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	stderr *head
	dir    string
	once   sync.Once
}

// spawnHelper starts the helper in a separate session, so that Ctrl-C in the terminal reaches
// only the manager. The helper gets no environment. When ctx ends, it is killed at once;
// Close gives it time.
func spawnHelper(ctx context.Context, path, dir string) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, path, "serve", dir), stderr: &head{}, dir: dir}
	c.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	c.cmd.Stderr = c.stderr
	startDetached(c.cmd)
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting the node helper: %w", err)
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, fmt.Errorf("starting the node helper: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the node helper: %w", err)
	}
	return c, nil
}

func (c *child) Read(p []byte) (int, error)  { return c.out.Read(p) }
func (c *child) Write(p []byte) (int, error) { return c.in.Write(p) }

// endGrace is the time for a helper to exit after its input has ended: it gives its own
// work ten seconds.
const endGrace = 15 * time.Second

// Close closes the helper's input, which makes it exit, and waits for it.
func (c *child) Close() error {
	c.once.Do(func() {
		_ = c.in.Close()
		_ = c.out.Close()
		t := time.AfterFunc(endGrace, func() { _ = c.cmd.Process.Kill() })
		defer t.Stop()
		_ = c.cmd.Wait() // its exit status is not needed
		if _, err := os.Stat(c.dir); !errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(c.dir) // for a helper that did not remove it
		}
	})
	return nil
}

func (c *child) lastOutput() string {
	if s := strings.TrimSpace(c.stderr.String()); s != "" {
		return " (" + s + ")"
	}
	return ""
}

// head keeps the start of the data written to it.
type head struct {
	mu sync.Mutex
	b  []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b = append(h.b, p[:min(len(p), 4096-len(h.b))]...)
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.b)
}
