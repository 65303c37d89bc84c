package op

// Kept is a file as the program of an Exec left it that keeps it. What has
// become another since, or has gone, is put back, and the program is not run
// for that. Where nothing was kept, as on hosts that were set up before files
// were, it is nothing to do.
type Kept struct {
	Path string `json:"path"`
	// Gate is what putting it back waits for while Serves answers: when it does
	// not, there is nothing to lose. It must have come within its time.
	Gate   *Wait `json:"gate,omitempty"`
	Serves *Wait `json:"serves,omitempty"`
	// Then is what is waited for when it was put back.
	Then *Wait `json:"then,omitempty"`
}

// Private are files for root alone, wherever they are there: keys and
// credentials. Content is no matter.
type Private struct {
	// Name is for people, and the operation's target.
	Name string `json:"name"`
	// Paths are paths or globs.
	Paths []string `json:"paths"`
}

// Ask answers in Result.Output with what a program prints that only looks, at
// most 1 MiB. A program that is not there, or fails, gives no output
// (Result.Missing). It never changes anything.
type Ask struct {
	Name  string   `json:"name"`
	Argv  []string `json:"argv"`
	Stdin []byte   `json:"stdin,omitempty"`
}

// The kinds of these operations.
const (
	KindKept    Kind = "kept"
	KindPrivate Kind = "private"
	KindAsk     Kind = "ask"
)

// Kind is KindKept.
func (Kept) Kind() Kind { return KindKept }

// Kind is KindPrivate.
func (Private) Kind() Kind { return KindPrivate }

// Kind is KindAsk.
func (Ask) Kind() Kind { return KindAsk }

// Target is the file.
func (o Kept) Target() string { return o.Path }

// Target is what the files are.
func (o Private) Target() string { return o.Name }

// Target is what is asked for.
func (o Ask) Target() string { return o.Name }
