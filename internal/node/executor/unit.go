//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// unitOp executes op.Unit.
type unitOp struct{ o op.Unit }

func (x *unitOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	return s.applyUnit(ctx, x.o)
}

func (x *unitOp) Paths() []string {
	return slices.Concat(x.o.RestartOn, x.o.Declares)
}

func (x *unitOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindUnit, x.o.Name}}, true
}

// unitTimeout limits one change of a unit's state.
const unitTimeout = 5 * time.Minute

// mainExited is CLD_EXITED, as systemd prints it.
const mainExited = "1"

// unitState is the state of a unit in systemd.
type unitState struct {
	load       string // loaded, not-found, masked, bad-setting, error
	enablement string // enabled, disabled, static, masked…; "" if not found
	active     string // active, inactive, failed, activating…
	sub        string
	condition  bool // whether its conditions were true at its last start
	reload     bool // its files have changed since systemd read them
	result     string
	mainCode   string // how its main process ended: mainExited, or by a signal
	mainStatus string
	mainPID    string
	job        string
	loadError  string
	fragment   string
	// started is the start time of its main process, by CLOCK_MONOTONIC.
	started time.Duration
}

// running reports whether the unit is running, or systemd is starting it.
func (u unitState) running() bool {
	return u.active == "active" || u.active == "activating" || u.active == "reloading"
}

// enabled reports whether it is started at boot, or cannot be enabled.
func (u unitState) enabled() bool {
	return slices.Contains([]string{"enabled", "enabled-runtime", "static", "indirect", "alias", "generated", "transient"}, u.enablement)
}

func (u unitState) masked() bool {
	return u.load == "masked" || strings.HasPrefix(u.enablement, "masked")
}

const unitProperties = "LoadState,UnitFileState,ActiveState,SubState,ConditionResult,NeedDaemonReload," +
	"Result,ExecMainCode,ExecMainStatus,ExecMainPID,ExecMainStartTimestampMonotonic,MainPID,Job,LoadError,FragmentPath"

// unit reads a unit's state from systemd. It changes nothing.
func (s *session) unit(ctx context.Context, name string) (unitState, error) {
	out, err := s.output(ctx, "systemctl", "show", "--property="+unitProperties, "--", name)
	if err != nil {
		return unitState{}, fmt.Errorf("reading the state of %s: %w", name, err)
	}
	p := properties(out)
	micros, _ := strconv.ParseInt(p["ExecMainStartTimestampMonotonic"], 10, 64) // 0: never
	return unitState{
		load: p["LoadState"], enablement: p["UnitFileState"], active: p["ActiveState"], sub: p["SubState"],
		condition: p["ConditionResult"] == "yes", reload: p["NeedDaemonReload"] == "yes",
		result: p["Result"], mainCode: p["ExecMainCode"], mainStatus: p["ExecMainStatus"], mainPID: p["MainPID"],
		job: p["Job"], loadError: p["LoadError"], fragment: p["FragmentPath"],
		started: time.Duration(micros) * time.Microsecond,
	}, nil
}

// properties parses the lines of systemctl show.
func properties(out string) map[string]string {
	p := map[string]string{}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok {
			p[k] = v
		}
	}
	return p
}

func (s *session) systemctl(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	_, err := s.output(ctx, append([]string{"systemctl", "--no-ask-password"}, args...)...)
	return err
}

// unitRecord has the files with which Slipway last started a unit. It is written before
// the start: after a killed helper, the comparison of file times and process start must
// not depend on the clock, which can be set.
type unitRecord struct {
	Files map[string]string `json:"files"` // path → state
	// Before is the start time of the previous process, by CLOCK_MONOTONIC; as long as it
	// runs, nothing has been started with Files.
	Before time.Duration `json:"before,omitempty"`
	// Started is the start time of the process that Slipway started, once it is known.
	Started time.Duration `json:"started,omitempty"`
	// Awaits lists what responded before the restart and has not responded since.
	Awaits []string `json:"awaits,omitempty"`
}

func (s *session) unitRecord(name string) (unitRecord, error) {
	var rec unitRecord
	raw, err := atomicfile.ReadFile(s.state("units", name+".json"), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return rec, fmt.Errorf("reading what %s was started with: %w", name, err)
	}
	return rec, nil
}

// stale returns the files that differ from those at the start of the unit. Without a
// record, the clock decides: for files that were not requested then, and for all of them
// if other software has started the unit since, such as with a file that is restored now.
func (s *session) stale(o op.Unit, now unitState) ([]string, error) {
	rec, err := s.unitRecord(o.Name)
	if err != nil {
		return nil, err
	}
	if rec.Files == nil {
		return s.changedSince(o.RestartOn, now.started)
	}
	// Between the record and the removal, a reboot may have started the unit with the
	// files that must be removed.
	forgets := len(o.Forgets) > 0 && rec.Started == 0
	if forgets || rec.Before != 0 && rec.Before == now.started {
		return o.RestartOn, nil
	}
	others := rec.Started != 0 && rec.Started != now.started
	var changed []string
	for _, path := range o.RestartOn {
		was, known := rec.Files[path]
		state, err := s.stateOf(path)
		if err != nil {
			return nil, err
		}
		differs := known && (state == "" || state != was)
		if !differs && (others || !known) {
			later, err := s.changedSince([]string{path}, now.started)
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

func checkUnitName(name string) error {
	if !strings.Contains(name, ".") || strings.ContainsAny(name, "/ \t\n*?[") || name[0] == '-' {
		return invalid("%q is not a unit name", name)
	}
	return nil
}

// unitPlan has the changes of a unit, for people and for the program.
type unitPlan struct {
	now                            unitState
	unmask, mask, enable, disable  bool
	start, stop, restart, reloaded bool
	await                          bool // a restarted unit must still be checked
	why                            []string
}

func (p *unitPlan) add(flag *bool, why string) {
	*flag = true
	p.why = append(p.why, why)
}

func (s *session) planUnit(ctx context.Context, o op.Unit) (unitPlan, error) {
	var p unitPlan
	if err := checkUnitName(o.Name); err != nil {
		return p, err
	}
	now, err := s.unit(ctx, o.Name)
	if err != nil {
		return p, err
	}
	p.now = now
	if o.Masked {
		if now.running() {
			p.add(&p.stop, "stop")
		}
		if !now.masked() {
			p.add(&p.mask, "mask")
		}
		return p, nil
	}
	wantUp := o.Running != nil && *o.Running
	wantEnabled := o.Enabled != nil && *o.Enabled
	if now.masked() && (wantUp || wantEnabled) {
		p.add(&p.unmask, "unmask")
	}
	if now.reload {
		p.add(&p.reloaded, "daemon-reload")
	}
	switch {
	case wantEnabled && !now.enabled():
		p.add(&p.enable, "enable")
	case o.Enabled != nil && !wantEnabled && strings.HasPrefix(now.enablement, "enabled"):
		p.add(&p.disable, "disable")
	}
	switch {
	case wantUp && !now.running():
		p.add(&p.start, "start")
		return p, nil
	case o.Running != nil && !wantUp:
		if now.running() {
			p.add(&p.stop, "stop")
		}
		return p, nil
	case !now.running() || o.KeepRunning && now.sub != "auto-restart":
		return p, nil
	}
	switch changed, err := s.stale(o, now); {
	case len(changed) == 0:
		return p, errors.Join(err, s.planAgain(o, &p))
	case o.UnlessServes == nil || !s.serves(ctx, *o.UnlessServes):
		p.add(&p.restart, "restart: "+strings.Join(changed, ", ")+" changed")
	}
	return p, nil
}

func (x *unitOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	p, err := s.planUnit(ctx, o)
	return verdict{change: strings.Join(p.why, ", ")}, err
}

func (s *session) applyUnit(ctx context.Context, o op.Unit) error {
	p, err := s.planUnit(ctx, o)
	if err != nil {
		return err
	}
	if err := s.saveUnit(ctx, o.Name, p.now); err != nil {
		return err
	}
	for _, pattern := range o.Declares {
		if err := s.ledger.SaveGlob(pattern, false); err != nil {
			return err
		}
	}
	if p.now.load == "not-found" || p.now.reload {
		if err := s.systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	if !o.Masked {
		if err := s.loadable(ctx, o, p); err != nil {
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
		if err := s.systemctl(ctx, step.verb, "--", o.Name); err != nil {
			return err
		}
	}
	if p.start || p.restart {
		return s.startUnit(ctx, o, p)
	}
	if p.await {
		return s.serveAgain(ctx, o)
	}
	return nil
}

// loadable rejects a unit that systemd cannot load, before anything is done.
func (s *session) loadable(ctx context.Context, o op.Unit, p unitPlan) error {
	if p.unmask {
		return nil
	}
	now, err := s.unit(ctx, o.Name)
	if err != nil {
		return err
	}
	wanted := p.enable || p.start || p.restart
	switch {
	case now.load == "not-found" && wanted:
		return &op.Error{Reason: "NoSuchUnit", Message: fmt.Sprintf("systemd has no unit %s", o.Name)}
	case (now.load == "bad-setting" || now.load == "error") && wanted:
		return &op.Error{Reason: "BadUnit", Message: fmt.Sprintf("systemd cannot load %s", o.Name), Detail: now.loadError}
	}
	return nil
}

func (s *session) startUnit(ctx context.Context, o op.Unit, p unitPlan) error {
	verb := "start"
	if p.restart {
		verb = "restart"
		if err := s.pass(ctx, o.Gate); err != nil {
			return err
		}
	}
	rec, err := s.unitRecord(o.Name)
	if err != nil {
		return err
	}
	awaits, err := s.answering(ctx, o.Again, rec.Awaits, p.restart)
	if err != nil {
		return err
	}
	// The files are read before the start: a change in between then causes another
	// restart, and is not lost.
	if rec, err = s.unitFiles(o); err != nil {
		return err
	}
	rec.Before, rec.Awaits = p.now.started, awaits
	if err := s.keep(s.state("units", o.Name+".json"), rec); err != nil {
		return err
	}
	if len(o.Forgets) > 0 {
		if err := s.stopForgetting(ctx, o); err != nil {
			return err
		}
		verb = "start"
	}
	if err := s.systemctl(ctx, verb, "--", o.Name); err != nil {
		return s.withJournal(ctx, o.Name, err)
	}
	now, err := s.unit(ctx, o.Name)
	if err != nil {
		return err
	}
	if now.active == "failed" {
		return s.withJournal(ctx, o.Name,
			&op.Error{Reason: "UnitFailed", Message: fmt.Sprintf("%s failed right after its start (%s)", o.Name, now.result)})
	}
	rec.Started = now.started
	if err := s.keep(s.state("units", o.Name+".json"), rec); err != nil {
		return err
	}
	return s.serveAgain(ctx, o)
}

// pass waits for the gate of a change, if there is one.
func (s *session) pass(ctx context.Context, gate *op.Wait) error {
	if gate == nil {
		return nil
	}
	if err := checkOne(*gate); err != nil {
		return err
	}
	return s.applyWait(ctx, *gate)
}

// keep writes a record below the state directory.
func (s *session) keep(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := s.disk.MkdirAll(filepath.Dir(path), atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	return s.disk.Replace(path, strings.NewReader(string(raw)+"\n"), atomicfile.Meta{Mode: 0o600})
}

// withJournal adds the last lines of a unit's journal to an error.
func (s *session) withJournal(ctx context.Context, unit string, err error) error {
	var e *op.Error
	if !errors.As(err, &e) || ctx.Err() != nil {
		return err
	}
	out, jerr := s.output(ctx, "journalctl", "--unit="+unit, "--lines=20", "--no-pager", "--output=cat")
	if jerr != nil {
		return err // the failure itself is more important
	}
	with := *e
	with.Detail = strings.TrimSpace(e.Detail + "\n" + out)
	return &with
}

// unitWas is the original state of a unit: the data of its ledger entry.
type unitWas struct {
	Enablement string `json:"enablement"`
	Active     bool   `json:"active"`
	Masked     bool   `json:"masked,omitempty"`
}

// quietUnit is the first part of restoring a unit, before its files are restored: a unit
// that was not running is stopped, and one that was not enabled is disabled.
func (s *session) quietUnit(ctx context.Context, e *ledger.Entry) (string, error) {
	var was unitWas
	if err := e.Decode(&was); err != nil {
		return "", err
	}
	now, err := s.unit(ctx, e.Key)
	if err != nil {
		return "", err
	}
	var did []string
	do := func(verb string) error {
		did = append(did, verb)
		return s.systemctl(ctx, verb, "--", e.Key)
	}
	if !was.Active && (now.running() || now.active == "deactivating") {
		if err = do("stop"); err == nil {
			now, err = s.unit(ctx, e.Key) // a job that was stopped while it ran counts as failed
		}
	}
	if err == nil && !was.Active && now.active == "failed" {
		err = s.systemctl(ctx, "reset-failed", "--", e.Key)
	}
	if err == nil && strings.HasPrefix(now.enablement, "enabled") && !strings.HasPrefix(was.Enablement, "enabled") {
		err = do("disable")
	}
	if err == nil && now.masked() && !was.Masked {
		err = do("unmask")
	}
	return strings.Join(did, ", "), err
}

// reviveUnit is the second part, with the original files.
func (s *session) reviveUnit(ctx context.Context, e *ledger.Entry) (string, error) {
	var was unitWas
	if err := e.Decode(&was); err != nil {
		return "", err
	}
	now, err := s.unit(ctx, e.Key)
	if err != nil || now.load == "not-found" {
		return "", err
	}
	var did []string
	do := func(verb string) error {
		did = append(did, verb)
		return s.systemctl(ctx, verb, "--", e.Key)
	}
	if was.Masked && !now.masked() {
		return "mask", do("mask")
	}
	if strings.HasPrefix(was.Enablement, "enabled") && now.enablement == "disabled" {
		err = do("enable")
	}
	if err != nil || !was.Active {
		return strings.Join(did, ", "), err
	}
	rec, err := s.unitRecord(e.Key)
	if err != nil {
		return "", err
	}
	o := op.Unit{Name: e.Key}
	for path := range rec.Files {
		o.RestartOn = append(o.RestartOn, path)
	}
	changed, err := s.stale(o, now)
	switch {
	case err != nil:
	case !now.running():
		err = do("start")
	case len(changed) > 0:
		rec, err = s.unitFiles(o)
		if err == nil {
			err = do("restart")
		}
		if err == nil {
			err = s.keep(s.state("units", e.Key+".json"), rec)
		}
	}
	return strings.Join(did, ", "), err
}

// unitFiles reads the files for the start of a unit.
func (s *session) unitFiles(o op.Unit) (unitRecord, error) {
	rec := unitRecord{Files: map[string]string{}}
	for _, path := range o.RestartOn {
		state, err := ledger.State(s.path(path))
		if err != nil {
			return rec, err
		}
		rec.Files[path] = state
	}
	return rec, nil
}
