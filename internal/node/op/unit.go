package op

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

// UnitStarted returns the last start time of the unit's main process in Result.Output, as
// RFC 3339 by the host's clock. A unit that never started gives no output
// (Result.Missing). It never changes anything.
type UnitStarted struct {
	Name string `json:"name"` // with suffix
}

// ReasonNotServing is the reason if a static pod did not serve in time.
const ReasonNotServing = "NotServing"

// ReasonUnhealthy is the reason if something that responded before does not respond after
// the restart of a unit.
const ReasonUnhealthy = "Unhealthy"

// Wait waits until something responds, or has ended. Its check returns unchanged if this
// is already true.
type Wait struct {
	// One of: TCP "host:port", HTTP (a URL that returns 200; certificates are not
	// verified, because it is a liveness probe), Path (exists), Ended (an argument with
	// which no running program was started), Certificate (a file with a certificate that
	// has not expired), Program (a read-only argv that exits with 0), Container (a
	// container with this name runs with Image).
	TCP         string   `json:"tcp,omitempty"`
	HTTP        string   `json:"http,omitempty"`
	Path        string   `json:"path,omitempty"`
	Ended       string   `json:"ended,omitempty"`
	Certificate string   `json:"certificate,omitempty"`
	Program     []string `json:"program,omitempty"`
	Container   string   `json:"container,omitempty"`
	Image       string   `json:"image,omitempty"`
	// Says is the exact response of HTTP; empty accepts any response.
	Says string `json:"says,omitempty"`
	// Manifest is the manifest of the static pod that must respond to HTTP or Program,
	// with its current command: a program from before a change does not count.
	Manifest string `json:"manifest,omitempty"`
	// Crashes limits how often the container of Manifest can exit before the wait fails;
	// 0 means no limit.
	Crashes int `json:"crashes,omitempty"`
	// SteadySeconds is the minimum run time of the program of Manifest before a response
	// counts: with unusable settings, a program can respond before it exits.
	SteadySeconds int `json:"steadySeconds,omitempty"`
	// Trusts lists files with the CAs that the server at TCP must use for its clients,
	// exactly these: it has read the current files. The server sends their names in its
	// handshake, so CAs with the same name can be counted.
	Trusts []string `json:"trusts,omitempty"`
	// Since is a unit that must have run for SinceSeconds before a response to HTTP or
	// Program counts: a kubelet that has just started may restart its pods.
	Since        string `json:"since,omitempty"`
	SinceSeconds int    `json:"sinceSeconds,omitempty"`
	// Name describes for people what Program waits for, and is the target of the
	// operation.
	Name           string `json:"name,omitempty"`
	TimeoutSeconds int    `json:"timeoutSeconds"`
}
