package op

// Kept is a file whose content was saved after the Exec that wrote it. If the file has
// changed or is missing, it is restored from the saved content, without running the
// program. On hosts that were set up before files were saved, Kept does nothing.
type Kept struct {
	Path string `json:"path"`
	// Gate must respond before the file is restored, but only if Serves responds now:
	// otherwise nothing can be lost. It must respond within its timeout.
	Gate   *Wait `json:"gate,omitempty"`
	Serves *Wait `json:"serves,omitempty"`
	// Then is the wait after the restore.
	Then *Wait `json:"then,omitempty"`
}

// Private makes existing files readable only by root, such as keys and credentials. Their
// content does not matter.
type Private struct {
	// Name describes the files for people, and is the target of the operation.
	Name string `json:"name"`
	// Paths are paths or globs.
	Paths []string `json:"paths"`
}

// Ask runs a read-only program and returns its output in Result.Output, at most 1 MiB. A
// program that is missing or fails gives no output (Result.Missing). It never changes
// anything.
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

// Target is the description of the files.
func (o Private) Target() string { return o.Name }

// Target is the name of the query.
func (o Ask) Target() string { return o.Name }
