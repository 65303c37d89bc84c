//go:build linux

package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

// WaitOp executes op.Wait.
type WaitOp struct{ Op op.Wait }

func (x *WaitOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	return AwaitCondition(ctx, h, x.Op)
}

func (*WaitOp) LedgerEntries() ([]host.Subject, bool) {
	return nil, true
}

const (
	// ProbeTimeout limits one request.
	ProbeTimeout = 3 * time.Second
	// ProgramTimeout limits a program, which may have to query others.
	ProgramTimeout = 10 * time.Second
	// ProbeEvery is the time between two requests.
	ProbeEvery = 500 * time.Millisecond
)

// ProbeCondition returns why the condition of a wait is not true yet, or nil.
func ProbeCondition(ctx context.Context, h *host.Host, o op.Wait) error {
	limit := ProbeTimeout
	if len(o.Program) > 0 || o.Container != "" {
		limit = ProgramTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if o.Manifest != "" {
		if err := runsManifest(h, o.Manifest); err != nil {
			return err
		}
	}
	if o.SteadySeconds > 0 {
		if err := hasRunFor(h, o.Manifest, time.Duration(o.SteadySeconds)*time.Second); err != nil {
			return err
		}
	}
	if o.Since != "" {
		if err := hasRun(ctx, h, o.Since, time.Duration(o.SinceSeconds)*time.Second); err != nil {
			return err
		}
	}
	switch {
	case len(o.Trusts) > 0:
		return trustsCAs(ctx, h, o.TCP, o.Trusts)
	case o.TCP != "":
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.TCP)
		if err != nil {
			return err
		}
		return conn.Close()
	case o.HTTP != "":
		return ProbeHTTP(ctx, o.HTTP, o.Says)
	case o.Ended != "":
		return hasEnded(h, o.Ended)
	case o.Certificate != "":
		return CheckCertificateFile(h, o.Certificate)
	case len(o.Program) > 0:
		return h.Run(ctx, host.Command{Argv: o.Program, Stdout: io.Discard})
	case o.Container != "":
		return containerRuns(ctx, h, o.Container, o.Image)
	case host.Exists(h.DiskPath(o.Path)):
		return nil
	}
	return fmt.Errorf("%s does not exist", o.Path)
}

// hasRun returns why a unit has not been running for a time, or nil.
func hasRun(ctx context.Context, h *host.Host, unit string, least time.Duration) error {
	u, err := systemctl.ShowUnit(ctx, h, unit)
	if err != nil {
		return err
	}
	if u.Started == 0 {
		return fmt.Errorf("%s is not running", unit)
	}
	at, err := systemctl.TimeOfMonotonic(u.Started)
	if err == nil && time.Since(at) < least {
		err = fmt.Errorf("%s has only just started", unit)
	}
	return err
}

// ProbeHTTP returns why a URL does not return 200 with the wanted body, or nil.
func ProbeHTTP(ctx context.Context, url, says string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a liveness probe: it sends and trusts nothing
	}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := bounded.ReadAll(res.Body, 200) // else only evidence
	if res.StatusCode == http.StatusOK && (says == "" || err == nil && string(body) == says) {
		return nil
	}
	return fmt.Errorf("%s returned %s: %q", url, res.Status, body)
}

// RequireOneCondition rejects a wait with several conditions, or none.
func RequireOneCondition(o op.Wait) error {
	one := 0
	for _, v := range []string{o.TCP, o.HTTP, o.Path, o.Ended, o.Certificate, o.Name, o.Container} {
		if v != "" {
			one++
		}
	}
	if len(o.Trusts) > 0 && o.TCP == "" {
		return host.Invalid("the wait does not name who must trust %q", o.Trusts)
	}
	if o.Says != "" && o.HTTP == "" {
		return host.Invalid("the wait does not name who must return %q", o.Says)
	}
	if o.Manifest != "" && o.HTTP == "" && len(o.Program) == 0 {
		return host.Invalid("the wait for the pod of %s does not name a check", o.Manifest)
	}
	if o.Crashes != 0 && (o.Manifest == "" || o.Crashes < 0) {
		return host.Invalid("the wait does not name the container that can exit %d times", o.Crashes)
	}
	if o.SteadySeconds != 0 && (o.Manifest == "" || o.SteadySeconds < 0) {
		return host.Invalid("the wait does not name the program that must run for %d seconds", o.SteadySeconds)
	}
	if (o.Since == "") != (o.SinceSeconds <= 0) || o.Since != "" && o.HTTP == "" && len(o.Program) == 0 {
		return host.Invalid("the wait does not name the check after %d seconds of %q", o.SinceSeconds, o.Since)
	}
	if one != 1 || (o.Name == "") != (len(o.Program) == 0) || (o.Container == "") != (o.Image == "") {
		return host.Invalid("a wait must name exactly one of: tcp %q, http %q, path %q, ended %q, certificate %q, program "+
			"%q, container %q with its image",
			o.TCP, o.HTTP, o.Path, o.Ended, o.Certificate, o.Name, o.Container)
	}
	return nil
}

func (x *WaitOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if err := RequireOneCondition(o); err != nil {
		return host.CheckResult{}, err
	}
	if err := ProbeCondition(ctx, h, o); err != nil {
		return host.CheckResult{Change: "wait"}, ctx.Err()
	}
	return host.CheckResult{}, nil
}

// AwaitCondition waits until the condition is true, at most for its timeout.
func AwaitCondition(ctx context.Context, h *host.Host, o op.Wait) error {
	limit := time.Duration(o.TimeoutSeconds) * time.Second
	if limit <= 0 {
		limit = DefaultTimeout
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(ProbeEvery)
	defer tick.Stop()
	before := LatestExits(h, o.Manifest)
	restart := time.After(h.KubeletTime)
	var why error
	for {
		err := ProbeCondition(bounded, h, o)
		if err == nil {
			return nil
		}
		if bounded.Err() == nil || why == nil { // else it only reports that time is up
			why = err
		}
		if ExitedOften(h, o, before) {
			return CrashError(h, o)
		}
		select {
		case <-tick.C:
		case <-restart:
			if err := restartKubelet(bounded, h, o.Manifest); err != nil {
				return err
			}
		case <-bounded.Done():
			if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			e := &op.Error{Reason: "Timeout", Message: fmt.Sprintf("%s did not answer within %s: %v", o.Target(), limit, why)}
			if o.Manifest != "" {
				e.Reason, e.Detail = op.ReasonNotServing, LastPodOutput(h, o.Manifest)
			}
			return e
		}
	}
}

// StartTime is how long a kubelet can take to start a changed static pod. On a busy host, the end of the previous pod
// takes half a minute.
const StartTime = time.Minute

// restartKubelet restarts a kubelet that has not started the static pod of a manifest that is newer than the kubelet. A
// kubelet that has not reached an API server since its start does not end the previous pod of the same name.
func restartKubelet(ctx context.Context, h *host.Host, manifest string) error {
	if manifest == "" || runsManifest(h, manifest) == nil {
		return nil
	}
	const unit = "kubelet.service"
	kubelet, err := systemctl.ShowUnit(ctx, h, unit)
	if err != nil || !kubelet.IsRunning() {
		return err
	}
	written, err := os.Stat(h.DiskPath(manifest))
	if err != nil {
		return err
	}
	if at, err := systemctl.TimeOfMonotonic(kubelet.Started); err != nil || at.After(written.ModTime()) {
		return err
	}
	return systemctl.RunSystemctl(ctx, h, "restart", unit)
}

// ElectionTime limits the wait for a change of the member list: until another member is
// added, because etcd adds one at a time, or until this one votes.
const ElectionTime = 20 * time.Second

// RetryEvery is the time between two attempts to change etcd.
const RetryEvery = 500 * time.Millisecond

// IsOnlyFull reports whether etcdctl calls an etcd member unhealthy only because a
// database is full: it does so for every member, although each of them serves.
func IsOnlyFull(err error) bool {
	var e *op.Error
	return errors.As(err, &e) && strings.Contains(e.Detail, "Active Alarm(s): NOSPACE") &&
		!strings.Contains(e.Detail, "CORRUPT") && !strings.Contains(e.Detail, "UNKNOWN")
}

// TryAgain waits until the next query of etcd; it returns false when the time is over.
func TryAgain(ctx context.Context, deadline time.Time) bool {
	if time.Now().After(deadline) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(RetryEvery):
		return true
	}
}

// DefaultTimeout limits a program without its own timeout.
const DefaultTimeout = 10 * time.Minute

// IsServing reports whether the condition after a change is already true, whatever the
// program was started with. A program that does not respond at once may be electing a
// leader.
func IsServing(ctx context.Context, h *host.Host, w op.Wait) bool {
	w.Manifest, w.Crashes, w.SteadySeconds = "", 0, 0
	for deadline := time.Now().Add(h.EtcdTime); RequireOneCondition(w) == nil; {
		if err := ProbeCondition(ctx, h, w); err == nil || IsOnlyFull(err) {
			return true
		}
		if !TryAgain(ctx, deadline) {
			break
		}
	}
	return false
}

// UnlessServes returns the result of a check, without changes if Serves responds.
func UnlessServes(ctx context.Context, h *host.Host, answers *op.Wait, v host.CheckResult, err error) (host.CheckResult, error) {
	if err == nil && v.Change != "" && answers != nil && IsServing(ctx, h, *answers) {
		return host.CheckResult{}, nil
	}
	return v, err
}

// AwaitGate waits for the gate of a change, if there is one.
func AwaitGate(ctx context.Context, h *host.Host, gate *op.Wait) error {
	if gate == nil {
		return nil
	}
	if err := RequireOneCondition(*gate); err != nil {
		return err
	}
	return AwaitCondition(ctx, h, *gate)
}
