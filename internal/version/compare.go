package version

import (
	"regexp"
	"strings"

	semver "k8s.io/apimachinery/pkg/util/version"
)

// builds matches the end of the version of a build after a release: "-4-g1a2b3c4".
var builds = regexp.MustCompile(`-\d+-g[0-9a-f]+(-dirty)?$`)

// IsEarlier reports whether a is the version of an earlier release than b. Builds after a release count as the release. Other
// texts than versions, such as "devel", are not earlier and not later than any version.
func IsEarlier(a, b string) bool {
	first, err1 := parse(a)
	second, err2 := parse(b)
	return err1 == nil && err2 == nil && first.LessThan(second)
}

func parse(text string) (*semver.Version, error) {
	return semver.ParseSemantic(strings.TrimPrefix(builds.ReplaceAllString(text, ""), "v"))
}
