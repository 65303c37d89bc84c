package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/internal/remote"
)

// dialAttempts limits how often a server can close the connection before it identifies
// itself: sshd does so when many clients log in at once.
const dialAttempts = 4

// loginTo dials an SSH server, checks its key and logs in. Errors are *remote.Error, or the
// error of ctx.
func (d *Dialer) loginTo(ctx context.Context, to endpoint, dial dialFunc, opts remote.Options) (*ssh.Client, error) {
	keys, err := newHostKeys(to, opts)
	if err != nil {
		return nil, err
	}
	who, err := to.login.loadIdentity(ctx, to, opts)
	if err != nil {
		return nil, err
	}
	defer who.closeAgent()
	pause := 250 * time.Millisecond
	for attempt := 1; ; attempt++ {
		client, err := d.attemptLogin(ctx, to, dial, keys, who, opts)
		switch {
		case err == nil:
			return client, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errOtherKey):
			continue // of a type that was not tried yet
		case !errors.Is(err, errHungUp) || attempt == dialAttempts:
			return nil, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
		pause *= 2
	}
}

// errHungUp reports a server that closed the connection before it sent its key.
var errHungUp = errors.New("the server closed the connection")

func (d *Dialer) attemptLogin(ctx context.Context, to endpoint, dial dialFunc, keys *hostKeys, who *identity,
	opts remote.Options,
) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Timeout, errTimeout)
	defer cancel()
	raw, err := dial(ctx, to.hostAndPort())
	if err != nil {
		return nil, to.explainUnreachable(ctx, err, opts)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	config := &ssh.ClientConfig{
		User: to.user, Auth: who.loginMethods(), ClientVersion: "SSH-2.0-Slipway",
		HostKeyCallback: keys.checkKey, HostKeyAlgorithms: keys.keyAlgorithms(),
	}
	keys.beginLogin()
	who.resetMethods()
	conn, channels, requests, err := ssh.NewClientConn(raw, to.hostAndPort(), config)
	if err == nil && !stop() {
		err = context.Cause(ctx)
		_ = conn.Close()
	}
	if err != nil {
		_ = raw.Close()
		return nil, to.explainRefusal(ctx, err, keys, who, opts)
	}
	return ssh.NewClient(conn, channels, requests), nil
}

var errTimeout = errors.New("no answer in time")

// explainUnreachable explains why there is no TCP connection.
func (e endpoint) explainUnreachable(ctx context.Context, err error, opts remote.Options) error {
	err = e.whyUnreachable(ctx, err, opts)
	var failed *remote.Error
	if errors.As(err, &failed) && failed.Reason == remote.Unreachable {
		failed.Remedy += e.note
	}
	return err
}

func (e endpoint) whyUnreachable(ctx context.Context, err error, opts remote.Options) error {
	var done *remote.Error
	if errors.As(err, &done) {
		return done
	}
	var dns *net.DNSError
	var channel *ssh.OpenChannelError
	at := e.hostAndPort()
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return e.newError(remote.Unreachable, fmt.Sprintf("the name %s does not exist", e.address),
			"correct the address, or the name server's entries", err)
	case errors.As(err, &dns):
		return e.newError(remote.Unreachable, fmt.Sprintf("the name %s cannot be resolved", e.address),
			"check the DNS servers of this machine", err)
	case errors.As(err, &channel) && channel.Reason == ssh.Prohibited:
		return e.newError(remote.Unreachable, "the bastion refuses to forward to "+at, "set AllowTcpForwarding yes in its sshd_config", err)
	case errors.As(err, &channel):
		return e.newError(remote.Unreachable, "the bastion cannot reach "+at+": "+channel.Message,
			"check that the host is running, and that sshd listens on that port", err)
	case errors.Is(context.Cause(ctx), errTimeout), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return e.newError(remote.Unreachable, fmt.Sprintf("%s did not answer within %s", at, opts.Timeout),
			"check the address, that the host is running, and that no firewall drops port "+fmt.Sprint(e.port), err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return e.newError(remote.Unreachable, at+" refuses the connection", "check that sshd is running, and that it listens on that port", err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return e.newError(remote.Unreachable, "there is no route to "+at,
			"check that the host is running, and check the network of this machine", err)
	}
	return e.newError(remote.Unreachable, at+" cannot be reached: "+innermostMessage(err), "check the address, the port and the network", err)
}

// explainRefusal explains why the SSH handshake or the login failed.
func (e endpoint) explainRefusal(ctx context.Context, err error, keys *hostKeys, who *identity, opts remote.Options) error {
	var algorithms *ssh.AlgorithmNegotiationError
	at := e.hostAndPort()
	switch {
	case keys.refusal != nil:
		return keys.refusal
	case errors.As(err, &algorithms) && len(keys.wanted)+len(keys.shown) > 0:
		return keys.changedKeyError()
	case errors.As(err, &algorithms):
		return e.newError(remote.Unreachable, at+" has no SSH algorithm in common with Slipway", "update the SSH server on the host", err)
	case errors.Is(context.Cause(ctx), errTimeout):
		return e.newError(remote.Unreachable, fmt.Sprintf("the SSH server at %s did not answer within %s", at, opts.Timeout),
			"check the load of the host, and that sshd uses that port", err)
	case keys.accepted != nil:
		return who.explainRefusal(e, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return e.newError(remote.Unreachable, at+" closed the connection before it identified itself",
			"check that it is an SSH server; sshd can limit logins (MaxStartups) or refuse this address", errors.Join(errHungUp, err))
	}
	return e.newError(remote.Unreachable, "the SSH handshake with "+at+" failed: "+innermostMessage(err),
		"check that it is an SSH server", err)
}

// innermostMessage returns the innermost error of a chain.
func innermostMessage(err error) string {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return strings.TrimPrefix(err.Error(), "ssh: ")
}
