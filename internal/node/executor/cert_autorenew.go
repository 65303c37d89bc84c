//go:build linux

package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// stepUpkeep is the step of automatic changes on a host.
const stepUpkeep = "certs.by-itself"

// AutoRenew renews the host's own certificates that are due, without a manager, and saves
// the result. The error is the reason why the result could not be saved.
func (r *Runner) AutoRenew(ctx context.Context, job op.AutoRenewal) (op.AutoOutcome, error) {
	s, err := r.session(host.Batch{}, nil)
	if err != nil {
		return op.AutoOutcome{}, err
	}
	u := upkeep{Host: s.Host, r: r, job: job}
	if raw, err := bounded.ReadFile(u.outcomeFile(), bounded.Record); err == nil {
		_ = json.Unmarshal(raw, &u.before) // a damaged one is ignored
	}
	if u.before.Result == op.AutoBegun {
		u.job.Ops = startingUnits(u.job.Ops)
	}
	out, err := u.renewIfSafe(ctx)
	if err != nil {
		return out, err
	}
	return u.keepOutcome(out)
}

// upkeep is one check of the host's own certificates.
type upkeep struct {
	*host.Host
	r      *Runner
	job    op.AutoRenewal
	before op.AutoOutcome // of the previous check
}

func (u upkeep) outcomeFile() string { return u.StatePath(filepath.Base(op.AutoOutcomeFile)) }

// keepOutcome writes the result, with the last renewed files.
func (u upkeep) keepOutcome(out op.AutoOutcome) (op.AutoOutcome, error) {
	out.At = time.Now().UTC().Truncate(time.Second)
	if u.before.Result == op.AutoBegun && out.Result == op.AutoPostponed {
		out.Result = op.AutoBegun // stopped units must still be started
	}
	if len(out.Renewed) > 0 {
		out.RenewedAt = out.At
	} else {
		out.Renewed, out.RenewedAt = u.before.Renewed, u.before.RenewedAt
	}
	raw, err := json.Marshal(out)
	if err == nil {
		err = u.Disk.ReplaceFile(u.outcomeFile(), bytes.NewReader(raw), atomicfile.Meta{Mode: 0o600})
	}
	if errors.Is(err, fs.ErrNotExist) { // the host has just been reset
		err = nil
	}
	return out, err
}

// startingUnits also starts units that are not running: an interrupted run may have
// stopped them.
func startingUnits(ops op.List) op.List {
	return changeRenewals(ops, func(r *op.RenewCertificate) { r.LeaveStopped = false })
}

// dueLateOnly makes certificates due only in the last part of their validity.
func dueLateOnly(ops op.List) op.List {
	return changeRenewals(ops, func(r *op.RenewCertificate) {
		if r.Due == "" {
			r.Due = op.DueLate
		}
	})
}

func changeRenewals(ops op.List, change func(*op.RenewCertificate)) op.List {
	var out op.List
	for _, o := range ops {
		if r, ok := o.(op.RenewCertificate); ok {
			change(&r)
			o = r
		}
		out = append(out, o)
	}
	return out
}

func (u upkeep) renewIfSafe(ctx context.Context) (op.AutoOutcome, error) {
	due, problems := u.countDue(ctx, u.job.Ops)
	if due == 0 {
		return outcomeOf(op.AutoNothing, "", problems), nil
	}
	// A change by a manager can concern the same files.
	held, err := u.r.ReadLock(ctx)
	if err != nil {
		return op.AutoOutcome{}, err
	}
	if held.Held && !held.Stale {
		return outcomeOf(op.AutoPostponed, "operation "+held.Holder.Operation+" is running on the cluster", nil), nil
	}
	own, up, silent := u.servingNeighbours(ctx)
	todo := u.job.Ops
	if up && len(silent) > 0 {
		todo = dueLateOnly(todo)
		if due, problems = u.countDue(ctx, todo); due == 0 {
			return outcomeOf(op.AutoPostponed, "not every API server responds, and renewal can wait: "+strings.Join(silent, "; "), problems), nil
		}
	}
	if _, err := u.keepOutcome(op.AutoOutcome{Result: op.AutoBegun}); err != nil {
		return op.AutoOutcome{}, err
	}
	renewed, problems := u.renewDue(ctx, todo)
	if own {
		problems = append(problems, u.applyEach(ctx, u.job.Serves, nil)...)
	}
	out := outcomeOf(op.AutoRenewed, "", problems)
	out.Renewed = renewed
	return out, nil
}

// outcomeOf returns the result, which is a failure if there are problems.
func outcomeOf(result op.AutoResult, why string, problems []string) op.AutoOutcome {
	if len(problems) > 0 {
		return op.AutoOutcome{Result: op.AutoFailed, Message: strings.Join(problems, "; ")}
	}
	return op.AutoOutcome{Result: result, Message: why}
}

// countDue returns how many operations would change something, and why others cannot.
func (u upkeep) countDue(ctx context.Context, ops op.List) (due int, problems []string) {
	for _, res := range u.r.Check(ctx, ops) {
		switch res.Status {
		case op.Changed:
			due++
		case op.Failed:
			problems = append(problems, res.Error.Message)
		}
	}
	return due, problems
}

// servingNeighbours queries the health of this host's API server and of the others: own
// reports whether this host serves, up whether any serves, and silent lists the servers
// that do not respond. A host without an API server counts as serving if any serves.
func (u upkeep) servingNeighbours(ctx context.Context) (own, up bool, silent []string) {
	ready := func(url string) error {
		ctx, cancel := context.WithTimeout(ctx, health.ProbeTimeout)
		defer cancel()
		return health.ProbeHTTP(ctx, url, "")
	}
	own = u.job.Own != "" && ready(u.job.Own) == nil
	up = own
	for _, url := range u.job.Peers {
		if err := ready(url); err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", url, err))
			continue
		}
		up = true
	}
	if u.job.Own == "" {
		own = up
	} else if !own {
		silent = append(silent, u.job.Own)
	}
	return own, up, silent
}

// renewDue renews what is due, one after the other: one failure does not prevent the
// others.
func (u upkeep) renewDue(ctx context.Context, ops op.List) (renewed, problems []string) {
	problems = u.applyEach(ctx, ops, func(res op.Result) {
		if res.Kind == op.KindRenewCertificate && res.Status == op.Changed {
			renewed = append(renewed, res.Target)
		}
	})
	return renewed, problems
}

func (u upkeep) applyEach(ctx context.Context, ops op.List, did func(op.Result)) (problems []string) {
	for _, o := range ops {
		for _, res := range u.r.Apply(ctx, host.Batch{Step: stepUpkeep, Cluster: u.job.Cluster, Ops: op.List{o}}, nil) {
			if res.Error != nil {
				problems = append(problems, res.Error.Message)
			} else if did != nil {
				did(res)
			}
		}
	}
	return problems
}
