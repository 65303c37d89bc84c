package modules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"regexp"
)

// format is part of every key: raise it when the way of building changes so
// that what is cached must be built again.
const format = 2

// A unit is what is built and kept as a whole: one gzip'd tar. All that
// decides its content is in it, so its digest is the key in the cache.
type unit struct {
	Name    string
	Version string
	Licence string
	// Modules are compiled, one after another.
	Modules []module `json:",omitempty"`
	// Links are symbolic links in the tar, by name.
	Links map[string]string `json:",omitempty"`
	// Packages are Debian packages, and Pick says what to take from them.
	Packages []string `json:",omitempty"`
	Pick     picker   `json:",omitempty"`
	// Take are the programs that pickNamed takes, and Data patterns of other
	// files, which one release of Debian may have and another not.
	Take []string `json:",omitempty"`
	Data []string `json:",omitempty"`
	// Content are small files in the tar, by name.
	Content map[string]string `json:",omitempty"`
	// Questions check the programs; they change nothing in them.
	Questions []question `json:"-"`
}

// A module is a scratch Go module that programs are compiled in.
type module struct {
	// Primary is the module whose go.mod gives the Go version, the debug
	// settings, replacements and exclusions: "k8s.io/kubernetes@v1.37.1".
	// Without one the module has the sources in Files and nothing else.
	Primary string `json:",omitempty"`
	// ModFile is where Primary, which has no go.mod, says what it is built
	// with, in the form of one.
	ModFile string `json:",omitempty"`
	// Require are further modules: "path@version".
	Require []string `json:",omitempty"`
	// Replace maps a module to a directory among Files.
	Replace map[string]string `json:",omitempty"`
	// Staging is the version of modules that Primary replaces by
	// directories of its own repository; "" leaves their required version.
	Staging string `json:",omitempty"`
	// Instead maps a module of Staging to the version that stands in for it.
	Instead map[string]string `json:",omitempty"`
	// Files are sources by name.
	Files map[string]string `json:",omitempty"`
	// Tags, LDFlags and CGO are flags of the build. CGO links statically.
	Tags    string `json:",omitempty"`
	LDFlags string `json:",omitempty"`
	CGO     bool   `json:",omitempty"`
	// Sysroot are Debian packages whose headers and libraries are linked.
	Sysroot []string `json:",omitempty"`
	// Programs map a main package to its name in the tar.
	Programs map[string]string
	// Tests map a package to the name in the tar of the program of its tests.
	Tests map[string]string `json:",omitempty"`
	// Data maps files of Primary to their names in the tar.
	Data map[string]string `json:",omitempty"`
}

// cacheKey identifies the unit's content for an architecture and a Go version.
func (u unit) cacheKey(arch, goVersion string) (string, error) {
	data, err := json.Marshal(struct {
		Format   int
		Unit     unit
		Arch, Go string
	}{format, u, arch, goVersion})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

var majorSuffix = regexp.MustCompile(`^v[0-9]+$`)

// binaryName is the name that the go tool gives the program of a main package.
func binaryName(pkg string) string {
	if base := path.Base(pkg); !majorSuffix.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(pkg))
}
