// Package version describes the build of this program.
package version

import (
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker (see the Makefile). They are empty after a
// plain `go build`.
var version, commit string

// Info describes the running program.
type Info struct {
	Version string `json:"version"` // "v0.3.0", "v0.3.0-4-gabc1234", "devel"
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`   // GOOS
	Arch    string `json:"arch"` // GOARCH
}

// Get describes the running program, from the values of the linker or from the module's
// build information.
func Get() Info {
	i := Info{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if i.Version == "" {
		i.Version = moduleVersion()
	}
	return i
}

// moduleVersion returns the version that `go install module@version` stored, or "devel"
// in a work tree.
func moduleVersion() string {
	b, ok := debug.ReadBuildInfo()
	if !ok || b.Main.Version == "" || b.Main.Version == "(devel)" {
		return "devel"
	}
	return b.Main.Version
}
