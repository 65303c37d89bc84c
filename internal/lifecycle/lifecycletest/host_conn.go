package lifecycletest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// A Conn is a connection to a host.
type Conn struct {
	*Host
	OnClose func()
}

// Name returns the name of the host.
func (c *Conn) Name() string { return c.Host.Name }

// Close ends the connection.
func (c *Conn) Close() error {
	c.OnClose()
	return nil
}

// DialContext connects to the kubelet or the API server from the host.
func (c *Conn) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c.Mu.Lock()
	silent := c.APISilent || c.APIRefused || c.hasExpiredCert()
	c.Mu.Unlock()
	if address == c.Address+":10250" {
		return c.dialKubelet()
	}
	if silent || !slices.Contains([]string{"127.0.0.1:6443", "example.com:6443"}, address) || !c.API.IsRunning() ||
		strings.HasPrefix(address, "example.") && c.CutOff {
		return nil, fmt.Errorf("nothing listens on %s of %s", address, c.Host.Name)
	}
	return (&net.Dialer{}).DialContext(ctx, network, c.API.ListenAddress())
}

// Check checks operations and changes nothing.
func (c *Conn) Check(ctx context.Context, ops op.List) ([]op.Result, error) {
	if c.Hangs || slices.ContainsFunc(ops, func(o op.Op) bool { return c.StalledDir != "" && o.Target() == c.StalledDir }) {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.Mu.Lock()
	defer c.Mu.Unlock()
	var out []op.Result
	c.batch = ops
	for _, o := range ops {
		out = append(out, c.checkOp(o))
	}
	return out, c.Down
}

// Apply checks and applies operations until one fails.
func (c *Conn) Apply(ctx context.Context, b remote.Batch, _ func(remote.Progress)) ([]op.Result, error) {
	var out []op.Result
	for _, o := range b.Ops {
		if gated, ok := o.(op.Block); ok && gated.Gate != nil {
			c.awaitGate(ctx, *gated.Gate)
		}
		if c.OnChange != nil {
			c.OnChange(b.Step + " " + o.Target())
		}
		if err := ctx.Err(); err != nil {
			return out, err
		}
		if w, ok := o.(op.Wait); ok && w.Name == "etcd" && !c.API.allRestored() {
			c.API.ManagedEtcd.awaitMajority() // the other hosts continue meanwhile
		}
		r := c.applyOne(b, o)
		if out = append(out, r); r.Status == op.Failed {
			break
		}
	}
	return out, nil
}

// awaitGate gives the other hosts time to reach the awaited state.
func (c *Conn) awaitGate(ctx context.Context, w op.Wait) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		c.Mu.Lock()
		there := c.waitDone(w)
		c.Mu.Unlock()
		if there {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Conn) applyOne(b remote.Batch, o op.Op) op.Result {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.batch = b.Ops
	r := c.checkOp(o)
	if r.Status != op.Changed {
		return r
	}
	c.Cluster = b.Cluster
	switch {
	case b.Operation == "" || b.Step == "" || b.Cluster == "":
		r.Error = &op.Error{Reason: "Internal", Message: "a batch must say for whom it is"}
	case b.Fence > 0 && b.Fence < c.Lock.Highest: // an operation without a fence is never refused
		r.Error = &op.Error{Reason: "Fenced", Message: "another manager has taken the cluster over"}
	case c.Refuse != nil && c.Refuse(b.Step, o) != nil:
		r.Error = c.Refuse(b.Step, o)
	default:
		for _, path := range filesOf(o) {
			c.writtenBy[path] = b.Step
		}
		for _, what := range stateOf(o) {
			c.madeBy[what] = b.Step
		}
		c.noteChange(b.Ops, o)
		if r.Error = c.applyOp(o); r.Error == nil && c.Spoil != nil {
			r.Error = c.Spoil(c.Host, b.Step, o)
		}
		if r.Error == nil {
			r.Output = c.outputOf(o)
		}
	}
	if r.Error != nil {
		r.Status = op.Failed
	}
	return r
}

// ReadLock returns the state of the cluster lock.
func (c *Conn) ReadLock(context.Context) (remote.LockState, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.Lock, c.Down
}

// TakeLock takes the cluster lock if it is free or stale, or with breaking.
func (c *Conn) TakeLock(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	if c.OnChange != nil {
		c.OnChange("lock")
	}
	if ctx.Err() != nil {
		return remote.LockState{}, false, context.Cause(ctx)
	}
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.Down != nil {
		return c.Lock, false, c.Down
	}
	free := !c.Lock.Held || c.Lock.Stale || breaking || c.Lock.Holder.Manager == l.Manager && c.Lock.Holder.Process == l.Over
	l.Over = ""
	if l.Fence <= c.Lock.Highest || !free {
		return c.Lock, false, nil
	}
	c.Lock = remote.LockState{Held: true, Holder: l, Highest: l.Fence, Manager: c.Lock.Manager}
	return c.Lock, true, nil
}

// Beat reports whether the lock is still held.
func (c *Conn) Beat(_ context.Context, l remote.Lock) (bool, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	is := c.Lock.Held && c.Lock.Holder == l
	if m := c.Lock.Manager; is && c.Down == nil && (l.Server != "" || m.ID != "") && (m.ID != l.Manager || m.Server != l.Server) {
		c.Lock.Manager = remote.Manager{ID: l.Manager, Server: l.Server, Fence: l.Fence}
	}
	return is, c.Down
}

// ReleaseLock releases the lock if its holder is the same.
func (c *Conn) ReleaseLock(_ context.Context, l remote.Lock) error {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.Down != nil {
		return c.Down
	}
	if c.Lock.Holder == l {
		c.Lock.Held = false
	}
	return nil
}
