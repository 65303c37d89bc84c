package op

// Bool returns a pointer to v, for the optional fields of Unit.
func Bool(v bool) *bool { return &v }

// HealthGate checks that a host still serves after the earlier operations of a list:
// everything that responded before the first change must respond after the last change,
// each within its timeout. Slipway does not wait for something that did not respond
// before.
type HealthGate struct {
	// Name is the step with the changes: "os.kernel".
	Name  string `json:"name"`
	Waits []Wait `json:"waits"`
	// SettleSeconds is the time for changes to take effect before the first check.
	SettleSeconds int `json:"settleSeconds,omitempty"`
}

// KindHealthGate is the kind of HealthGate.
const KindHealthGate Kind = "serving"

// Kind is KindHealthGate.
func (HealthGate) Kind() Kind { return KindHealthGate }

// Target is the step.
func (o HealthGate) Target() string { return o.Name }

// Unit is a systemd unit and its wanted state.
type Unit struct {
	Name string `json:"name"` // with suffix: "kubelet.service"
	// Enabled and Running: nil keeps the current state.
	Enabled *bool `json:"enabled,omitempty"`
	Running *bool `json:"running,omitempty"`
	// Masked masks the unit (and stops it).
	Masked bool `json:"masked,omitempty"`
	// RestartOn lists files of earlier operations in the same cluster. If the content of
	// one differs from the content at the last start of the running unit, the unit is
	// restarted. For a unit that other software started, a file that changed since the
	// start counts as different.
	RestartOn []string `json:"restartOn,omitempty"`
	// KeepRunning does not restart a running unit, whatever has changed in RestartOn: it
	// only starts the unit. A unit that has failed and waits for a retry is not running.
	KeepRunning bool `json:"keepRunning,omitempty"`
	// UnlessServes is the purpose of the unit: a running unit is not restarted as long as
	// it responds.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Gate must respond before a restart, but not before a start, within its timeout.
	Gate *Wait `json:"gate,omitempty"`
	// Again lists what must respond again after a restart, each within its timeout, if it
	// responded before: a running unit may not work. Slipway does not wait for something
	// that did not respond before.
	Again []Wait `json:"again,omitempty"`
	// Forgets lists files in which the unit stores state that does not fit changed files
	// of RestartOn. They are removed at each start or restart, while the unit is stopped.
	Forgets []string `json:"forgets,omitempty"`
	// Declares lists globs of files that the unit creates when it runs; they are recorded
	// in the ledger, as absent if they were.
	Declares []string `json:"declares,omitempty"`
}

// KindUnit is the kind of Unit.
const KindUnit Kind = "unit"

func (Unit) Kind() Kind { return KindUnit }

func (o Unit) Target() string { return o.Name }

// UnitStarted returns the last start time of the unit's main process in Result.Output, as
// RFC 3339 by the host's clock. A unit that never started gives no output
// (Result.Missing). It never changes anything.
type UnitStarted struct {
	Name string `json:"name"` // with suffix
}

// KindUnitStarted is the kind of UnitStarted.
const KindUnitStarted Kind = "unit-started"

func (UnitStarted) Kind() Kind { return KindUnitStarted }

func (o UnitStarted) Target() string { return o.Name }

// ReasonNotServing is the reason if a static pod did not serve in time.
const ReasonNotServing = "NotServing"

// ReasonUnhealthy is the reason if something that responded before does not respond after
// the restart of a unit.
const ReasonUnhealthy = "Unhealthy"
