package op

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

// KindWait is the kind of Wait.
const KindWait Kind = "wait"

func (Wait) Kind() Kind { return KindWait }

func (o Wait) Target() string {
	return o.TCP + o.HTTP + o.Path + o.Ended + o.Certificate + o.Name + o.Container
}
