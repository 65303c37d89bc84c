package modules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"regexp"
)

// format is part of every key. Raise it if the build changes so that cached units must be
// built again.
const format = 2

// A unit is built and cached as a whole: one compressed tar. It holds everything that
// determines its content, so its digest is the key in the cache.
type unit struct {
	Name    string
	Version string
	Licence string
	// Modules are compiled, one after another.
	Modules []module `json:",omitempty"`
	// Links are symbolic links in the tar, by name.
	Links map[string]string `json:",omitempty"`
	// Packages are Debian packages, and Pick selects files of them.
	Packages []string `json:",omitempty"`
	Pick     picker   `json:",omitempty"`
	// Take lists the programs that pickNamed selects. Data has patterns of other files,
	// which may exist in only some Debian releases.
	Take []string `json:",omitempty"`
	Data []string `json:",omitempty"`
	// Content are small files in the tar, by name.
	Content map[string]string `json:",omitempty"`
	// Setuid lists programs that run as root for every user.
	Setuid []string `json:",omitempty"`
	// Questions check the programs and do not change them.
	Questions []question `json:"-"`
}

// A module is a scratch Go module that programs are compiled in.
type module struct {
	// Primary is the module whose go.mod gives the Go version, the debug settings,
	// replacements and exclusions: "k8s.io/kubernetes@v1.37.1". Without it, the module
	// has only the sources in Files.
	Primary string `json:",omitempty"`
	// ModFile is a file of Primary in the format of a go.mod. It is used if Primary has
	// no go.mod.
	ModFile string `json:",omitempty"`
	// Require lists additional modules: "path@version".
	Require []string `json:",omitempty"`
	// Replace maps a module to a directory among Files.
	Replace map[string]string `json:",omitempty"`
	// Staging is the version of modules that Primary replaces with directories of its
	// repository; "" keeps their required version.
	Staging string `json:",omitempty"`
	// Instead maps a module of Staging to the version that replaces it.
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

// cacheKey returns the key of the unit's content for an architecture and a Go version.
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

// binaryName returns the name that the go tool gives to the program of a main package.
func binaryName(pkg string) string {
	if base := path.Base(pkg); !majorSuffix.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(pkg))
}
