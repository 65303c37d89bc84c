package op

// Unit is a systemd unit and the state it shall be in.
type Unit struct {
	Name string `json:"name"` // with suffix: "kubelet.service"
	// Enabled and Running: nil leaves that as it is.
	Enabled *bool `json:"enabled,omitempty"`
	Running *bool `json:"running,omitempty"`
	// Masked masks the unit (and stops it).
	Masked bool `json:"masked,omitempty"`
	// RestartOn lists files of earlier operations in the same cluster; when
	// the content of one differs from what the running unit was last
	// started with, the unit is restarted. For a unit that others started,
	// a file that has changed since then differs.
	RestartOn []string `json:"restartOn,omitempty"`
	// KeepRunning leaves a unit alone that runs already, whatever has changed
	// in RestartOn: it only starts. One that has ended and waits to be tried
	// again does not run.
	KeepRunning bool `json:"keepRunning,omitempty"`
	// UnlessServes is what the unit is for: one that runs is not restarted as long as that
	// answers.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Gate is what a restart, not a start, waits for. It must have come
	// within its time.
	Gate *Wait `json:"gate,omitempty"`
	// Again is what must answer again after a restart, each within its time, if
	// it answered before: a unit that is up may do nothing of what it is for.
	// What did not answer before is nobody's to wait for.
	Again []Wait `json:"again,omitempty"`
	// Forgets are files in which the unit keeps what does not go with changed files of
	// RestartOn. They are removed whenever it is started or restarted, while it is stopped.
	Forgets []string `json:"forgets,omitempty"`
	// Declares are globs of what the unit makes by itself once it runs;
	// they enter the ledger, as absent if they were.
	Declares []string `json:"declares,omitempty"`
}

// UnitStarted answers in Result.Output when the unit's main process was last
// started, as RFC 3339 by the host's clock; of one that never was it gives no
// output (Result.Missing). It never changes anything.
type UnitStarted struct {
	Name string `json:"name"` // with suffix
}

// ReasonNotServing is that of a static pod which was waited for and did not serve
// in time.
const ReasonNotServing = "NotServing"

// ReasonUnhealthy is that of a unit which was restarted, and after which something
// did not answer any more that had answered before.
const ReasonUnhealthy = "Unhealthy"

// Wait waits until something answers, or has ended. Check answers unchanged
// when it does already.
type Wait struct {
	// One of: TCP "host:port", HTTP (URL answering 200; certificates are
	// not verified: it is a liveness probe), Path (exists), Ended (an argument
	// that no program which runs was started with), Certificate (a file with one
	// whose time is not over), Program (argv; exits 0, and only looks), Container
	// (one of this name runs with Image).
	TCP         string   `json:"tcp,omitempty"`
	HTTP        string   `json:"http,omitempty"`
	Path        string   `json:"path,omitempty"`
	Ended       string   `json:"ended,omitempty"`
	Certificate string   `json:"certificate,omitempty"`
	Program     []string `json:"program,omitempty"`
	Container   string   `json:"container,omitempty"`
	Image       string   `json:"image,omitempty"`
	// Says is all that HTTP is to answer with; empty is anything.
	Says string `json:"says,omitempty"`
	// Manifest is that of the static pod that shall answer to HTTP or Program,
	// with the command that it has there: one that runs from before a change does
	// not count.
	Manifest string `json:"manifest,omitempty"`
	// Crashes is after how many ends of the container of Manifest it is waited for
	// no longer; 0 is however many there are.
	Crashes int `json:"crashes,omitempty"`
	// SteadySeconds is for how long the program of Manifest must have run for an
	// answer to count: with settings that it cannot use, a program may answer
	// before it ends.
	SteadySeconds int `json:"steadySeconds,omitempty"`
	// Trusts are the files with the authorities by which whoever answers at TCP
	// shall know its clients, all of them and no others: it has read them as they
	// are now. It tells their names as it greets, so that of authorities of one
	// name it is known how many there are.
	Trusts []string `json:"trusts,omitempty"`
	// Since is a unit that must have run for SinceSeconds for an answer to HTTP or
	// Program to count: a kubelet that has just been started may have its pods
	// start anew.
	Since        string `json:"since,omitempty"`
	SinceSeconds int    `json:"sinceSeconds,omitempty"`
	// Name is for people what Program waits for, and the operation's target.
	Name           string `json:"name,omitempty"`
	TimeoutSeconds int    `json:"timeoutSeconds"`
}
