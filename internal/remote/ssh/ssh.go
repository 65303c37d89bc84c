// Package ssh reaches hosts over SSH. No other package uses that protocol: logins, host
// keys, bastions, and the commands that start the node helper.
package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/embedded"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/bootstrap"
	"slipway.dev/slipway/internal/secret"
)

// A Dialer connects to hosts. The zero value works. Hosts behind the same bastion share
// one connection to it if they use the same Dialer.
type Dialer struct {
	// Helper returns the node helper for an architecture; nil means the embedded helper.
	Helper func(arch string) (embedded.Helper, error)

	mu       sync.Mutex // guards bastions
	bastions map[string]*bastion
}

// Connect logs in to host, whose SSH settings must be merged with the settings of the
// cluster, and starts its node helper. It can be called concurrently for many hosts.
func (d *Dialer) Connect(ctx context.Context, host v1alpha1.Host, opts remote.Options) (remote.Host, error) {
	opts, err := completeOptions(opts)
	if err != nil {
		return nil, err
	}
	h, err := bootstrap.Open(ctx, host.Name, func(ctx context.Context) (*wire.Client, error) {
		return d.connectHelper(ctx, host, opts)
	}, opts)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// completeOptions fills in defaults for missing options.
func completeOptions(opts remote.Options) (remote.Options, error) {
	opts = opts.WithDefaults()
	if opts.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return opts, fmt.Errorf("finding the home directory: %w", err)
		}
		opts.Home = home
	}
	return opts, nil
}

// openRoute logs in to the last server of a route; after leave, its hops are no longer used.
func (d *Dialer) openRoute(ctx context.Context, r route, opts remote.Options) (client *ssh.Client, leave func(), err error) {
	dial, leave, err := d.dialThrough(ctx, r.hops, opts)
	if err != nil {
		return nil, nil, err
	}
	if client, err = d.loginTo(ctx, r.to, dial, opts); err != nil {
		leave()
		return nil, nil, err
	}
	return client, leave, nil
}

// connectHelper opens one connection: TCP, SSH, helper, handshake.
func (d *Dialer) connectHelper(ctx context.Context, host v1alpha1.Host, opts remote.Options) (*wire.Client, error) {
	r, err := resolveRoute(host, opts)
	if err != nil {
		return nil, err
	}
	client, leave, err := d.openRoute(ctx, r, opts)
	if err != nil {
		return nil, err
	}
	conn := &connection{client: client, leave: leave}
	wc, err := d.startHelper(ctx, host, r.to, conn, opts)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return wc, nil
}

// startHelper runs the helper over a login.
func (d *Dialer) startHelper(ctx context.Context, host v1alpha1.Host, to endpoint, conn *connection,
	opts remote.Options,
) (*wire.Client, error) {
	find := d.Helper
	if find == nil {
		find = embedded.FindHelper
	}
	boot := bootstrap.Boot{Host: host.Name, User: to.user, Login: to.sshArguments(), Arch: host.Arch, Helper: find, Timeout: opts.Timeout}
	if to.user != "root" && (host.SSH.Sudo == nil || *host.SSH.Sudo) {
		boot.Sudo = true
		boot.SudoPassword = sudoPassword(host.SSH)
	}
	running, err := boot.Run(ctx, &starter{client: conn.client})
	if err != nil {
		return nil, err
	}
	conn.running = running
	shake, cancel := context.WithTimeoutCause(ctx, opts.Timeout, errors.New("the node helper does not answer"))
	defer cancel()
	wc, err := wire.NewClient(shake, host.Name, conn, nil, opts.Blobs)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &remote.Error{
			Host: host.Name, Reason: remote.HelperFailed, Err: err,
			Cause: "the node helper does not start: " + err.Error() + detailOf(running.ErrorOutput()), Remedy: "try again with --debug",
		}
	}
	return wc, nil
}

func detailOf(said string) string {
	if said == "" {
		return ""
	}
	return " (" + said + ")"
}

// sudoPassword returns the source of the sudo password: its own source, else the password
// of the login; nil if there is none.
func sudoPassword(s v1alpha1.SSH) func() (string, error) {
	from := s.SudoPasswordFrom
	if from == nil {
		from = s.PasswordFrom
	}
	if from != nil {
		return func() (string, error) { return revealSecret(from) }
	}
	if s.Password != "" {
		return func() (string, error) { return s.Password, nil }
	}
	return nil
}

func revealSecret(from *v1alpha1.SecretSource) (string, error) {
	s, err := secret.ResolveSource(*from)
	return s.Reveal(), err
}

// connection is the standard input and output of the helper over SSH.
type connection struct {
	client  *ssh.Client
	running *bootstrap.Running
	leave   func()
	once    sync.Once
}

var _ io.ReadWriteCloser = (*connection)(nil)

func (c *connection) Read(p []byte) (int, error)  { return c.running.Read(p) }
func (c *connection) Write(p []byte) (int, error) { return c.running.Write(p) }

// Close stops the helper and closes the login. If the network is gone, the helper detects
// it itself.
func (c *connection) Close() error {
	c.once.Do(func() {
		if c.running != nil {
			_ = c.running.Close()
		}
		_ = c.client.Close() // already closed if the network is gone
		c.leave()
	})
	return nil
}

// endpoint is one SSH server and its login settings.
type endpoint struct {
	host    string // its name in the cluster, for errors
	address string
	port    int
	user    string
	usual   string // the default user; "" is root
	hostKey string // pinned by the cluster file, if at all
	login   login

	// Settings from ~/.ssh/config.
	alias      string   // its name in knownHosts; "" is its address
	knownHosts []string // instead of ~/.ssh/known_hosts, if not nil
	knownNote  string   // which of them are ignored, and why
	identities identities
	note       string            // a possible cause if it cannot be reached
	from       []remote.Decision // the source of each setting
}

func (e endpoint) withDefaults() endpoint {
	if e.port == 0 {
		e.port = 22
	}
	e.user = cmp.Or(e.user, e.usual, "root")
	return e
}

func (e endpoint) hostAndPort() string { return net.JoinHostPort(e.address, strconv.Itoa(e.port)) }

// sshArguments returns the arguments for ssh to log in there.
func (e endpoint) sshArguments() string {
	port := ""
	if e.port != 22 {
		port = "-p " + strconv.Itoa(e.port) + " "
	}
	return port + e.user + "@" + e.address
}

func (e endpoint) newError(reason remote.Reason, cause, remedy string, err error) *remote.Error {
	return &remote.Error{Host: e.host, Reason: reason, Cause: cause, Remedy: remedy, Err: err}
}

// dialFunc opens a TCP connection, from this machine or from a bastion.
type dialFunc func(ctx context.Context, address string) (net.Conn, error)

func dialDirect(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}
