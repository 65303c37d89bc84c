//go:build linux

package systemctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// unitTimeout limits one change of a unit's state.
const unitTimeout = 5 * time.Minute

// mainExited is CLD_EXITED, as systemd prints it.
const mainExited = "1"

// UnitState is the state of a unit in systemd.
type UnitState struct {
	Load       string // loaded, not-found, masked, bad-setting, error
	Enablement string // enabled, disabled, static, masked…; "" if not found
	Active     string // active, inactive, failed, activating…
	Sub        string
	Condition  bool // whether its conditions were true at its last start
	Reload     bool // its files have changed since systemd read them
	Result     string
	mainCode   string // how its main process ended: mainExited, or by a signal
	MainStatus string
	MainPID    string
	Job        string
	LoadError  string
	Fragment   string
	// Started is the start time of its main process, by CLOCK_MONOTONIC.
	Started time.Duration
}

// IsRunning reports whether the unit is running, or systemd is starting it.
func (u UnitState) IsRunning() bool {
	return u.Active == "active" || u.Active == "activating" || u.Active == "reloading"
}

// IsEnabled reports whether it is started at boot, or cannot be enabled.
func (u UnitState) IsEnabled() bool {
	return slices.Contains([]string{"enabled", "enabled-runtime", "static", "indirect", "alias", "generated", "transient"}, u.Enablement)
}

// IsMasked reports whether the unit is masked.
func (u UnitState) IsMasked() bool {
	return u.Load == "masked" || strings.HasPrefix(u.Enablement, "masked")
}

const unitProperties = "LoadState,UnitFileState,ActiveState,SubState,ConditionResult,NeedDaemonReload," +
	"Result,ExecMainCode,ExecMainStatus,ExecMainPID,ExecMainStartTimestampMonotonic,MainPID,Job,LoadError,FragmentPath"

// ShowUnit reads a unit's state from systemd. It changes nothing.
func ShowUnit(ctx context.Context, h *host.Host, name string) (UnitState, error) {
	out, err := h.Output(ctx, "systemctl", "show", "--property="+unitProperties, "--", name)
	if err != nil {
		return UnitState{}, fmt.Errorf("reading the state of %s: %w", name, err)
	}
	p := ParseProperties(out)
	micros, _ := strconv.ParseInt(p["ExecMainStartTimestampMonotonic"], 10, 64) // 0: never
	return UnitState{
		Load: p["LoadState"], Enablement: p["UnitFileState"], Active: p["ActiveState"], Sub: p["SubState"],
		Condition: p["ConditionResult"] == "yes", Reload: p["NeedDaemonReload"] == "yes",
		Result: p["Result"], mainCode: p["ExecMainCode"], MainStatus: p["ExecMainStatus"], MainPID: p["MainPID"],
		Job: p["Job"], LoadError: p["LoadError"], Fragment: p["FragmentPath"],
		Started: time.Duration(micros) * time.Microsecond,
	}, nil
}

// ParseProperties parses the lines of systemctl show.
func ParseProperties(out string) map[string]string {
	p := map[string]string{}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok {
			p[k] = v
		}
	}
	return p
}

// RunSystemctl runs systemctl, which waits until the change is done.
func RunSystemctl(ctx context.Context, h *host.Host, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	_, err := h.Output(ctx, append([]string{"systemctl", "--no-ask-password"}, args...)...)
	return err
}

// UnitRecord has the files with which Slipway last started a unit. It is written before
// the start: after a killed helper, the comparison of file times and process start must
// not depend on the clock, which can be set.
type UnitRecord struct {
	Files map[string]string `json:"files"` // path → state
	// Before is the start time of the previous process, by CLOCK_MONOTONIC; as long as it
	// runs, nothing has been started with Files.
	Before time.Duration `json:"before,omitempty"`
	// Started is the start time of the process that Slipway started, once it is known.
	Started time.Duration `json:"started,omitempty"`
	// Awaits lists what responded before the restart and has not responded since.
	Awaits []string `json:"awaits,omitempty"`
}

// ReadUnitRecord reads the record of a unit; it is empty if Slipway did not start it.
func ReadUnitRecord(h *host.Host, name string) (UnitRecord, error) {
	var rec UnitRecord
	raw, err := atomicfile.ReadFile(h.StatePath("units", name+".json"), bounded.Record)
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

// CheckUnitName rejects an invalid unit name.
func CheckUnitName(name string) error {
	if !strings.Contains(name, ".") || strings.ContainsAny(name, "/ \t\n*?[") || name[0] == '-' {
		return host.Invalid("%q is not a unit name", name)
	}
	return nil
}

// WithJournal adds the last lines of a unit's journal to an error.
func WithJournal(ctx context.Context, h *host.Host, unit string, err error) error {
	var e *op.Error
	if !errors.As(err, &e) || ctx.Err() != nil {
		return err
	}
	out, jerr := h.Output(ctx, "journalctl", "--unit="+unit, "--lines=20", "--no-pager", "--output=cat")
	if jerr != nil {
		return err // the failure itself is more important
	}
	with := *e
	with.Detail = strings.TrimSpace(e.Detail + "\n" + out)
	return &with
}

// UnitPrefix begins the names of Slipway's transient units.
const UnitPrefix = "slipway-"

// HasSucceeded reports whether a unit's program succeeded. For systemd, a program that was
// signalled to stop, for instance by an orderly shutdown, has also succeeded.
func (u UnitState) HasSucceeded() bool { return u.Active == "active" && u.mainCode == mainExited }

// TimeOfMonotonic converts a time of CLOCK_MONOTONIC to the host's current clock.
func TimeOfMonotonic(at time.Duration) (time.Time, error) {
	var mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err != nil {
		return time.Time{}, fmt.Errorf("reading the clock: %w", err)
	}
	return time.Now().Add(at - time.Duration(mono.Nano())), nil
}

// HasUnitFile reports whether a unit file with this name is installed.
func HasUnitFile(h *host.Host, name string) bool {
	for _, dir := range []string{"/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		if host.Exists(h.DiskPath(dir + "/" + name)) {
			return true
		}
	}
	return false
}
