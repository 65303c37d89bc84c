package op

import "io/fs"

// File is a regular file with this content.
type File struct {
	Path    string      `json:"path"`
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"` // permission bits; 0 means 0644
	Owner   string      `json:"owner,omitempty"`
	Group   string      `json:"group,omitempty"`
	// Secret keeps content out of diffs, plans, journals and logs.
	Secret bool `json:"secret,omitempty"`
	// UnlessServes is the purpose of the file: as long as it responds, the file is not
	// changed.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Gate must respond before a change, within its timeout.
	Gate *Wait `json:"gate,omitempty"`
}

// KindFile is the kind of File.
const KindFile Kind = "file"

func (File) Kind() Kind { return KindFile }

func (o File) Target() string { return o.Path }

// Dir is a directory, created with its parents. If its path is a symbolic link to a
// directory, Dir means that directory, and the link is kept.
type Dir struct {
	Path  string      `json:"path"`
	Mode  fs.FileMode `json:"mode"` // 0 means 0755
	Owner string      `json:"owner,omitempty"`
	Group string      `json:"group,omitempty"`
	// Exclusive reports whether everything below Path belongs to Slipway if Slipway
	// created Path: a restore removes it with its content. If Path existed and was empty
	// except for lost+found, a restore removes its content and keeps Path, as long as it
	// is on the same file system. If it had content, a restore removes everything new
	// directly in Path and in its directories with the names of Shared.
	Exclusive bool     `json:"exclusive,omitempty"`
	Shared    []string `json:"shared,omitempty"`
}

// KindDir is the kind of Dir.
const KindDir Kind = "dir"

func (Dir) Kind() Kind { return KindDir }

func (o Dir) Target() string { return o.Path }

// Link is a symbolic link.
type Link struct {
	Path string `json:"path"`
	To   string `json:"to"`
}

// KindLink is the kind of Link.
const KindLink Kind = "link"

func (Link) Kind() Kind { return KindLink }

func (o Link) Target() string { return o.Path }

// Absent removes Path. The ledger keeps what existed there.
type Absent struct {
	Path string `json:"path"`
	// Recursive allows Path to be a directory that is not empty.
	Recursive bool `json:"recursive,omitempty"`
}

// KindAbsent is the kind of Absent.
const KindAbsent Kind = "absent"

func (Absent) Kind() Kind { return KindAbsent }

func (o Absent) Target() string { return o.Path }

// Block is a set of marked lines in a file of other software.
type Block struct {
	Path string `json:"path"`
	// Name marks the block: the lines are between "# BEGIN slipway <Name>" and "# END
	// slipway <Name>".
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
	// Gate must respond before a change, within its timeout.
	Gate *Wait `json:"gate,omitempty"`
}

// KindBlock is the kind of Block.
const KindBlock Kind = "block"

func (Block) Kind() Kind { return KindBlock }

func (o Block) Target() string { return o.Path + "#" + o.Name }

// ReadFile returns the content of a file in Result.Output. A missing file is not an error
// and gives no output (Result.Missing). It never changes anything.
type ReadFile struct {
	Path   string `json:"path"`
	Secret bool   `json:"secret,omitempty"`
}

// KindReadFile is the kind of ReadFile.
const KindReadFile Kind = "read-file"

func (ReadFile) Kind() Kind { return KindReadFile }

func (o ReadFile) Target() string { return o.Path }

// BaselineFile is a file whose content was saved after the Exec that wrote it. If the file has
// changed or is missing, it is restored from the saved content, without running the
// program. On hosts that were set up before files were saved, BaselineFile does nothing.
type BaselineFile struct {
	Path string `json:"path"`
	// Gate must respond before the file is restored, but only if Serves responds now:
	// otherwise nothing can be lost. It must respond within its timeout.
	Gate   *Wait `json:"gate,omitempty"`
	Serves *Wait `json:"serves,omitempty"`
	// Then is the wait after the restore.
	Then *Wait `json:"then,omitempty"`
}

// KindBaselineFile is the kind of BaselineFile.
const KindBaselineFile Kind = "kept"

// Kind is KindBaselineFile.
func (BaselineFile) Kind() Kind { return KindBaselineFile }

// Target is the file.
func (o BaselineFile) Target() string { return o.Path }

// RootOnly makes existing files readable only by root, such as keys and credentials. Their
// content does not matter.
type RootOnly struct {
	// Name describes the files for people, and is the target of the operation.
	Name string `json:"name"`
	// Paths are paths or globs.
	Paths []string `json:"paths"`
}

// KindRootOnly is the kind of RootOnly.
const KindRootOnly Kind = "private"

// Kind is KindRootOnly.
func (RootOnly) Kind() Kind { return KindRootOnly }

// Target is the description of the files.
func (o RootOnly) Target() string { return o.Name }
