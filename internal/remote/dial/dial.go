// Package dial selects the connection to a host: SSH, or none if the host is this
// machine.
package dial

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/embedded"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/local"
	"slipway.dev/slipway/internal/remote/ssh"
)

// A Dialer connects to hosts. The zero value works. Use one for the hosts of
// a cluster: they share connections to their bastions.
type Dialer struct {
	SSH   ssh.Dialer
	Local local.Dialer
}

// New returns a Dialer that gets the helper from find; nil means the embedded helper.
func New(find func(arch string) (embedded.Helper, error)) *Dialer {
	return &Dialer{SSH: ssh.Dialer{Helper: find}, Local: local.Dialer{Helper: find}}
}

// Connect returns a connection to host with its helper running; it is also a
// remote.Locker. host.SSH must be merged with the settings of the cluster. Errors are
// *remote.Error, or the error of ctx.
func (d *Dialer) Connect(ctx context.Context, host v1alpha1.Host, opts remote.Options) (remote.Host, error) {
	if IsLocal(host) {
		return d.Local.Connect(ctx, host, opts)
	}
	return d.SSH.Connect(ctx, host, opts)
}

// StartShell starts a login shell on host; for this machine, it returns an error.
func (d *Dialer) StartShell(ctx context.Context, host v1alpha1.Host, sh remote.Shell, opts remote.Options) (int, error) {
	if IsLocal(host) {
		return 0, &remote.Error{
			Host: host.Name, Reason: remote.NoShell,
			Cause: host.Name + " is this machine, so it has no SSH login", Remedy: "run the command directly in this shell",
		}
	}
	return d.SSH.StartShell(ctx, host, sh, opts)
}

// ResolveLogin returns how Connect would log in to host.
func (d *Dialer) ResolveLogin(host v1alpha1.Host, opts remote.Options) (remote.Login, error) {
	if IsLocal(host) {
		return remote.Login{User: host.SSH.User, Address: host.Address, Local: true}, nil
	}
	return d.SSH.ResolveLogin(host, opts)
}

// ListKnownKeys returns the known keys of a host and its jump hosts as lines of a known_hosts file.
func (d *Dialer) ListKnownKeys(host v1alpha1.Host, opts remote.Options) ([]string, error) {
	if IsLocal(host) {
		return nil, nil
	}
	return d.SSH.ListKnownKeys(host, opts)
}

// IsLocal reports whether the host is this machine, reached without SSH: its address is
// localhost, or a loopback address without login settings. A port other than the SSH port
// always means SSH.
func IsLocal(host v1alpha1.Host) bool {
	s := host.SSH
	if s.Port != 0 && s.Port != 22 {
		return false
	}
	switch host.Address {
	case "localhost":
		return true
	case "127.0.0.1", "::1":
		s.Port, s.Sudo = 0, nil
		return s == v1alpha1.SSH{} || s == v1alpha1.SSH{User: "root"}
	}
	return false
}
