package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
)

// bastion is a login through which connections to hosts are forwarded.
type bastion struct {
	ready  chan struct{} // closed when client or err is set
	client *ssh.Client
	leave  func() // leaves the bastions before it
	err    error
	users  int // guarded by Dialer.mu
}

// dialThrough returns a dial function from behind the last of the hops. It logs in to them
// unless they are already connected; after release they are no longer used.
func (d *Dialer) dialThrough(ctx context.Context, hops []endpoint, opts remote.Options) (dial dialFunc, release func(), err error) {
	if len(hops) == 0 {
		return dialDirect, func() {}, nil
	}
	before, to := hops[:len(hops)-1], hops[len(hops)-1]
	key := bastionKey(hops)
	for {
		d.mu.Lock()
		b := d.bastions[key]
		first := b == nil
		if first {
			b = &bastion{ready: make(chan struct{})}
			if d.bastions == nil {
				d.bastions = map[string]*bastion{}
			}
			d.bastions[key] = b
		}
		b.users++
		d.mu.Unlock()
		release := func() { d.releaseBastion(key, b) }
		if first {
			b.client, b.leave, b.err = d.openRoute(ctx, route{hops: before, to: to}, opts)
			d.setOpened(key, b)
		}
		select {
		case <-b.ready:
		case <-ctx.Done():
			release()
			return nil, nil, context.Cause(ctx)
		}
		if b.err == nil {
			return b.dialAddress, release, nil
		}
		release()
		if !first && ctx.Err() == nil && (errors.Is(b.err, context.Canceled) || errors.Is(b.err, context.DeadlineExceeded)) {
			continue // the dial of another caller was cancelled
		}
		return nil, nil, bastionError(b.err, to.host)
	}
}

// setOpened lets waiting callers continue. After a failure, now or later, the next caller
// dials the bastion again.
func (d *Dialer) setOpened(key string, b *bastion) {
	if b.err != nil {
		d.forgetBastion(key, b)
	} else {
		go func() {
			_ = b.client.Wait() // ends with the last release at the latest
			d.forgetBastion(key, b)
		}()
	}
	close(b.ready)
}

func (d *Dialer) forgetBastion(key string, b *bastion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bastions[key] == b {
		delete(d.bastions, key)
	}
}

func (d *Dialer) releaseBastion(key string, b *bastion) {
	d.mu.Lock()
	b.users--
	last := b.users == 0
	if last && d.bastions[key] == b {
		delete(d.bastions, key)
	}
	d.mu.Unlock()
	if last && b.client != nil {
		_ = b.client.Close() // already closed if the network is gone
		b.leave()
	}
}

func (b *bastion) dialAddress(ctx context.Context, address string) (net.Conn, error) {
	return b.client.DialContext(ctx, "tcp", address)
}

// bastionError names the bastion as the cause, and the host for which it failed.
func bastionError(err error, host string) error {
	var e *remote.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Host = host
	named.Cause = "the bastion: " + e.Cause
	return &named
}

// bastionKey returns equal keys for bastions with the same login.
func bastionKey(hops []endpoint) string {
	source := func(s *v1alpha1.SecretSource) v1alpha1.SecretSource {
		if s == nil {
			return v1alpha1.SecretSource{}
		}
		return *s
	}
	key := ""
	for _, to := range hops {
		key += fmt.Sprintf("%q %q %q %q %q %q %q %q %v\n", to.hostAndPort(), to.user, to.hostKey, to.login.keyFile,
			source(to.login.passphrase), source(to.login.passwordFrom), to.alias, to.knownHosts, to.identities)
	}
	return key
}
