//go:build linux

package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// UnitOp executes op.Unit.
type UnitOp struct{ Op op.Unit }

func (x *UnitOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	return ApplyUnit(ctx, h, x.Op)
}

func (x *UnitOp) Paths() []string {
	return slices.Concat(x.Op.RestartOn, x.Op.Declares)
}

func (x *UnitOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindUnit, Key: x.Op.Name}}, true
}

// StaleFiles returns the files that have changed since the start of the unit. Without a
// record, the clock decides: for files that were not requested then, and for all of them
// if other software has started the unit since, such as with a file that is restored now.
func StaleFiles(h *host.Host, o op.Unit, now systemctl.UnitState) ([]string, error) {
	rec, err := systemctl.ReadUnitRecord(h, o.Name)
	if err != nil {
		return nil, err
	}
	if rec.Files == nil {
		return changedSince(h, o.RestartOn, now.Started)
	}
	// Between the record and the removal, a reboot may have started the unit with the
	// files that must be removed.
	forgets := len(o.Forgets) > 0 && rec.Started == 0
	if forgets || rec.Before != 0 && rec.Before == now.Started {
		return o.RestartOn, nil
	}
	others := rec.Started != 0 && rec.Started != now.Started
	var changed []string
	for _, path := range o.RestartOn {
		was, known := rec.Files[path]
		state, err := h.StateOf(path)
		if err != nil {
			return nil, err
		}
		differs := known && (state == "" || state != was)
		if !differs && (others || !known) {
			later, err := changedSince(h, []string{path}, now.Started)
			if err != nil {
				return nil, err
			}
			differs = len(later) > 0
		}
		if differs {
			changed = append(changed, path)
		}
	}
	return changed, nil
}

// unitPlan has the changes of a unit, for people and for the program.
type unitPlan struct {
	Now                            systemctl.UnitState
	unmask, mask, enable, disable  bool
	Start, stop, restart, reloaded bool
	record                         bool // the ledger does not have it yet
	await                          bool // a restarted unit must still be checked
	Why                            []string
}

func (p *unitPlan) add(flag *bool, why string) {
	*flag = true
	p.Why = append(p.Why, why)
}

// PlanUnit returns what must change for a unit. A unit that something else starts, such as a
// timer, is recorded in any case: it may run, or have failed, when its files are removed.
func PlanUnit(ctx context.Context, h *host.Host, o op.Unit) (unitPlan, error) {
	p, err := planUnitState(ctx, h, o)
	if err != nil || len(p.Why) > 0 || o.Enabled != nil || o.Running != nil || o.Masked {
		return p, err
	}
	l := h.Ledger
	if l == nil { // a check
		if l, err = ledger.Open(h.State, h.Root, h.Disk, ledger.Owner{}); err != nil {
			return p, err
		}
	}
	if l.FindEntry(ledger.KindUnit, o.Name) == nil {
		p.add(&p.record, "record its state")
	}
	return p, nil
}

// planUnitState returns what must change in systemd.
func planUnitState(ctx context.Context, h *host.Host, o op.Unit) (unitPlan, error) {
	var p unitPlan
	if err := systemctl.CheckUnitName(o.Name); err != nil {
		return p, err
	}
	now, err := systemctl.ShowUnit(ctx, h, o.Name)
	if err != nil {
		return p, err
	}
	p.Now = now
	if o.Masked {
		if now.IsRunning() {
			p.add(&p.stop, "stop")
		}
		if !now.IsMasked() {
			p.add(&p.mask, "mask")
		}
		return p, nil
	}
	wantUp := o.Running != nil && *o.Running
	wantEnabled := o.Enabled != nil && *o.Enabled
	if now.IsMasked() && (wantUp || wantEnabled) {
		p.add(&p.unmask, "unmask")
	}
	if now.Reload {
		p.add(&p.reloaded, "daemon-reload")
	}
	switch {
	case wantEnabled && !now.IsEnabled():
		p.add(&p.enable, "enable")
	case o.Enabled != nil && !wantEnabled && strings.HasPrefix(now.Enablement, "enabled"):
		p.add(&p.disable, "disable")
	}
	switch {
	case wantUp && !now.IsRunning():
		p.add(&p.Start, "start")
		return p, nil
	case o.Running != nil && !wantUp:
		if now.IsRunning() {
			p.add(&p.stop, "stop")
		}
		return p, nil
	case !now.IsRunning() || o.KeepRunning && now.Sub != "auto-restart":
		return p, nil
	}
	switch changed, err := StaleFiles(h, o, now); {
	case len(changed) == 0:
		return p, errors.Join(err, planRestartChecks(h, o, &p))
	case o.UnlessServes == nil || !health.IsServing(ctx, h, *o.UnlessServes):
		p.add(&p.restart, "restart: "+strings.Join(changed, ", ")+" changed")
	}
	return p, nil
}

func (x *UnitOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	p, err := PlanUnit(ctx, h, o)
	return host.CheckResult{Change: strings.Join(p.Why, ", ")}, err
}

// ApplyUnit changes a unit as planned, and waits until it is healthy.
func ApplyUnit(ctx context.Context, h *host.Host, o op.Unit) error {
	p, err := PlanUnit(ctx, h, o)
	if err != nil {
		return err
	}
	was := p.Now
	if p.record { // a job that runs now was started by Slipway's timer
		was.Active = "inactive"
	}
	if err := saveUnitBaseline(ctx, h, o.Name, was); err != nil {
		return err
	}
	for _, pattern := range o.Declares {
		if err := h.Ledger.SaveGlob(pattern, false); err != nil {
			return err
		}
	}
	if p.Now.Load == "not-found" || p.Now.Reload {
		if err := systemctl.RunSystemctl(ctx, h, "daemon-reload"); err != nil {
			return err
		}
	}
	if !o.Masked {
		if err := requireLoadable(ctx, h, o, p); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		do   bool
		verb string
	}{
		{p.unmask, "unmask"}, {p.enable, "enable"}, {p.disable, "disable"}, {p.stop, "stop"}, {p.mask, "mask"},
	} {
		if !step.do {
			continue
		}
		if err := systemctl.RunSystemctl(ctx, h, step.verb, "--", o.Name); err != nil {
			return err
		}
	}
	if p.Start || p.restart {
		return startUnit(ctx, h, o, p)
	}
	if p.await {
		return awaitRestarted(ctx, h, o)
	}
	return nil
}

// requireLoadable rejects a unit that systemd cannot load, before anything is done.
func requireLoadable(ctx context.Context, h *host.Host, o op.Unit, p unitPlan) error {
	if p.unmask {
		return nil
	}
	now, err := systemctl.ShowUnit(ctx, h, o.Name)
	if err != nil {
		return err
	}
	wanted := p.enable || p.Start || p.restart
	switch {
	case now.Load == "not-found" && wanted:
		return &op.Error{Reason: "NoSuchUnit", Message: fmt.Sprintf("systemd has no unit %s", o.Name)}
	case (now.Load == "bad-setting" || now.Load == "error") && wanted:
		return &op.Error{Reason: "BadUnit", Message: fmt.Sprintf("systemd cannot load %s", o.Name), Detail: now.LoadError}
	}
	return nil
}

func startUnit(ctx context.Context, h *host.Host, o op.Unit, p unitPlan) error {
	verb := "start"
	if p.restart {
		verb = "restart"
		if err := health.AwaitGate(ctx, h, o.Gate); err != nil {
			return err
		}
	}
	rec, err := systemctl.ReadUnitRecord(h, o.Name)
	if err != nil {
		return err
	}
	awaits, err := respondingWaits(ctx, h, o.Again, rec.Awaits, p.restart)
	if err != nil {
		return err
	}
	// The files are read before the start: a change in between then causes another
	// restart, and is not lost.
	if rec, err = recordUnitFiles(h, o); err != nil {
		return err
	}
	rec.Before, rec.Awaits = p.Now.Started, awaits
	if err := h.WriteRecord(h.StatePath("units", o.Name+".json"), rec); err != nil {
		return err
	}
	if len(o.Forgets) > 0 {
		if err := stopAndForget(ctx, h, o); err != nil {
			return err
		}
		verb = "start"
	}
	if err := systemctl.RunSystemctl(ctx, h, verb, "--", o.Name); err != nil {
		return systemctl.WithJournal(ctx, h, o.Name, err)
	}
	now, err := systemctl.ShowUnit(ctx, h, o.Name)
	if err != nil {
		return err
	}
	if now.Active == "failed" {
		return systemctl.WithJournal(ctx, h, o.Name,
			&op.Error{Reason: "UnitFailed", Message: fmt.Sprintf("%s failed right after its start (%s)", o.Name, now.Result)})
	}
	rec.Started = now.Started
	if err := h.WriteRecord(h.StatePath("units", o.Name+".json"), rec); err != nil {
		return err
	}
	return awaitRestarted(ctx, h, o)
}

// unitWas is the original state of a unit: the data of its ledger entry.
type unitWas struct {
	Enablement string `json:"enablement"`
	Active     bool   `json:"active"`
	Masked     bool   `json:"masked,omitempty"`
}

// QuietUnit is the first part of restoring a unit, before its files are restored: a unit
// that was not running is stopped, and one that was not enabled is disabled.
func QuietUnit(ctx context.Context, h *host.Host, e *ledger.Entry) (string, error) {
	var was unitWas
	if err := e.DecodeData(&was); err != nil {
		return "", err
	}
	now, err := systemctl.ShowUnit(ctx, h, e.Key)
	if err != nil {
		return "", err
	}
	var did []string
	do := func(verb string) error {
		did = append(did, verb)
		return systemctl.RunSystemctl(ctx, h, verb, "--", e.Key)
	}
	if !was.Active && (now.IsRunning() || now.Active == "deactivating") {
		if err = do("stop"); err == nil {
			now, err = systemctl.ShowUnit(ctx, h, e.Key) // a job that was stopped while it ran counts as failed
		}
	}
	if err == nil && !was.Active && now.Active == "failed" {
		err = systemctl.RunSystemctl(ctx, h, "reset-failed", "--", e.Key)
	}
	if err == nil && strings.HasPrefix(now.Enablement, "enabled") && !strings.HasPrefix(was.Enablement, "enabled") {
		err = do("disable")
	}
	if err == nil && now.IsMasked() && !was.Masked {
		err = do("unmask")
	}
	return strings.Join(did, ", "), err
}

// ReviveUnit is the second part, with the original files.
func ReviveUnit(ctx context.Context, h *host.Host, e *ledger.Entry) (string, error) {
	var was unitWas
	if err := e.DecodeData(&was); err != nil {
		return "", err
	}
	now, err := systemctl.ShowUnit(ctx, h, e.Key)
	if err != nil || now.Load == "not-found" {
		return "", err
	}
	var did []string
	do := func(verb string) error {
		did = append(did, verb)
		return systemctl.RunSystemctl(ctx, h, verb, "--", e.Key)
	}
	if was.Masked && !now.IsMasked() {
		return "mask", do("mask")
	}
	if strings.HasPrefix(was.Enablement, "enabled") && now.Enablement == "disabled" {
		err = do("enable")
	}
	if err != nil || !was.Active {
		return strings.Join(did, ", "), err
	}
	rec, err := systemctl.ReadUnitRecord(h, e.Key)
	if err != nil {
		return "", err
	}
	o := op.Unit{Name: e.Key}
	for path := range rec.Files {
		o.RestartOn = append(o.RestartOn, path)
	}
	changed, err := StaleFiles(h, o, now)
	switch {
	case err != nil:
	case !now.IsRunning():
		err = do("start")
	case len(changed) > 0:
		rec, err = recordUnitFiles(h, o)
		if err == nil {
			err = do("restart")
		}
		if err == nil {
			err = h.WriteRecord(h.StatePath("units", e.Key+".json"), rec)
		}
	}
	return strings.Join(did, ", "), err
}

// recordUnitFiles reads the files for the start of a unit.
func recordUnitFiles(h *host.Host, o op.Unit) (systemctl.UnitRecord, error) {
	rec := systemctl.UnitRecord{Files: map[string]string{}}
	for _, path := range o.RestartOn {
		state, err := ledger.PathState(h.DiskPath(path))
		if err != nil {
			return rec, err
		}
		rec.Files[path] = state
	}
	return rec, nil
}
