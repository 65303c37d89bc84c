//go:build linux

package run

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
	"slipway.dev/slipway/internal/node/durable"
	"slipway.dev/slipway/internal/node/op"
)

// stepUpkeep is whose changes those are that a host makes by itself.
const stepUpkeep = "certs.by-itself"

// AutoRenew renews what is due of the host's own certificates, with nobody
// connected to it, and keeps what came of it. The error is why that could not be
// kept.
func (r *Runner) AutoRenew(ctx context.Context, job op.AutoRenewal) (op.AutoOutcome, error) {
	s, err := r.session(Batch{}, nil)
	if err != nil {
		return op.AutoOutcome{}, err
	}
	u := upkeep{session: s, job: job}
	if raw, err := bounded.ReadFile(u.outcomeFile(), bounded.Record); err == nil {
		_ = json.Unmarshal(raw, &u.before) // a damaged one says nothing
	}
	if u.before.Result == op.AutoBegun {
		u.job.Ops = startingUnits(u.job.Ops)
	}
	out, err := u.run(ctx)
	if err != nil {
		return out, err
	}
	return u.keepOutcome(out)
}

// upkeep is one look of a host at its own certificates.
type upkeep struct {
	*session
	job    op.AutoRenewal
	before op.AutoOutcome // of the look before
}

func (u upkeep) outcomeFile() string { return u.state(filepath.Base(op.AutoOutcomeFile)) }

// keepOutcome writes down what came of it, with what was renewed last.
func (u upkeep) keepOutcome(out op.AutoOutcome) (op.AutoOutcome, error) {
	out.At = time.Now().UTC().Truncate(time.Second)
	if u.before.Result == op.AutoBegun && out.Result == op.AutoPostponed {
		out.Result = op.AutoBegun // what was stopped is still to be started
	}
	if len(out.Renewed) > 0 {
		out.RenewedAt = out.At
	} else {
		out.Renewed, out.RenewedAt = u.before.Renewed, u.before.RenewedAt
	}
	raw, err := json.Marshal(out)
	if err == nil {
		err = u.disk.Replace(u.outcomeFile(), bytes.NewReader(raw), durable.Meta{Mode: 0o600})
	}
	if errors.Is(err, fs.ErrNotExist) { // the host has just been given back
		err = nil
	}
	return out, err
}

// startingUnits has units be started that do not run: who was cut off may have
// stopped them.
func startingUnits(ops op.List) op.List {
	return changed(ops, func(r *op.Renewal) { r.LeaveStopped = false })
}

// late has what is due be renewed at the last.
func late(ops op.List) op.List {
	return changed(ops, func(r *op.Renewal) {
		if r.Due == "" {
			r.Due = op.DueLate
		}
	})
}

func changed(ops op.List, change func(*op.Renewal)) op.List {
	var out op.List
	for _, o := range ops {
		if r, ok := o.(op.Renewal); ok {
			change(&r)
			o = r
		}
		out = append(out, o)
	}
	return out
}

func (u upkeep) run(ctx context.Context) (op.AutoOutcome, error) {
	due, problems := u.due(ctx, u.job.Ops)
	if due == 0 {
		return concluded(op.AutoNothing, "", problems), nil
	}
	// A change that a manager makes may be about the same files.
	held, err := u.ReadLock(ctx)
	if err != nil {
		return op.AutoOutcome{}, err
	}
	if held.Held && !held.Stale {
		return concluded(op.AutoPostponed, "operation "+held.Holder.Operation+" is running on the cluster", nil), nil
	}
	own, up, silent := u.neighbours(ctx)
	todo := u.job.Ops
	if up && len(silent) > 0 {
		todo = late(todo)
		if due, problems = u.due(ctx, todo); due == 0 {
			return concluded(op.AutoPostponed, "not every API server responds, and renewal can wait: "+strings.Join(silent, "; "), problems), nil
		}
	}
	if _, err := u.keepOutcome(op.AutoOutcome{Result: op.AutoBegun}); err != nil {
		return op.AutoOutcome{}, err
	}
	renewed, problems := u.renewDue(ctx, todo)
	if own {
		problems = append(problems, u.each(ctx, u.job.Serves, nil)...)
	}
	out := concluded(op.AutoRenewed, "", problems)
	out.Renewed = renewed
	return out, nil
}

// concluded is the outcome, which is a failure if there are problems.
func concluded(result op.AutoResult, why string, problems []string) op.AutoOutcome {
	if len(problems) > 0 {
		return op.AutoOutcome{Result: op.AutoFailed, Message: strings.Join(problems, "; ")}
	}
	return op.AutoOutcome{Result: result, Message: why}
}

// due is how many operations would change something, and why others cannot.
func (u upkeep) due(ctx context.Context, ops op.List) (due int, problems []string) {
	for _, res := range u.Check(ctx, ops) {
		switch res.Status {
		case op.Changed:
			due++
		case op.Failed:
			problems = append(problems, res.Error.Message)
		}
	}
	return due, problems
}

// neighbours asks this host's API server and those of the others whether they
// are well: own says that this host serves, up that any does, and silent are
// those that do not. A host without an API server serves when any does.
func (u upkeep) neighbours(ctx context.Context) (own, up bool, silent []string) {
	ready := func(url string) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		return probeHTTP(ctx, url, "")
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

// renewDue does what is due, one after the other: one that cannot be renewed does
// not keep the others.
func (u upkeep) renewDue(ctx context.Context, ops op.List) (renewed, problems []string) {
	problems = u.each(ctx, ops, func(res op.Result) {
		if res.Kind == op.KindRenewal && res.Status == op.Changed {
			renewed = append(renewed, res.Target)
		}
	})
	return renewed, problems
}

func (u upkeep) each(ctx context.Context, ops op.List, did func(op.Result)) (problems []string) {
	for _, o := range ops {
		for _, res := range u.Apply(ctx, Batch{Step: stepUpkeep, Cluster: u.job.Cluster, Ops: op.List{o}}, nil) {
			if res.Error != nil {
				problems = append(problems, res.Error.Message)
			} else if did != nil {
				did(res)
			}
		}
	}
	return problems
}
