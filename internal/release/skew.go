package release

import (
	"fmt"
	"maps"
	"slices"

	"slipway.dev/slipway/internal/diag"
)

// KubeletSkew returns how many minor versions a kubelet can be older than its API server.
func (c *Catalogue) KubeletSkew() int { return c.file.KubeletSkew }

// UpgradePath returns the versions of an upgrade from one version to another, with the
// last one. Kubernetes upgrades one minor at a time; between the two, the newest listed
// patch version of each minor is used, for a later minor the newest one that a bundle
// has. For the same version the path is empty. The error is a diag.List.
func (c *Catalogue) UpgradePath(from, to string) ([]string, error) {
	target, err := c.ResolveVersion(to)
	if err != nil {
		return nil, err
	}
	a, errA := parseVersion(from)
	b, errB := parseVersion(target.Kubernetes)
	if errA != nil || errB != nil {
		return nil, c.unsupportedError(from, "is not a Kubernetes version")
	}
	refuse := func(why string) ([]string, error) {
		return nil, diag.List{{
			ID: IDUpgradePath, Severity: diag.Error,
			Message: fmt.Sprintf("cannot upgrade from %s to %s: %s", from, target.Kubernetes, why),
			Hint:    c.versionHint(),
		}}
	}
	switch {
	case a.Equal(b):
		return nil, nil
	case b.LessThan(a):
		return refuse("Kubernetes cannot be downgraded")
	case a.Major() != b.Major():
		return refuse("the major versions differ")
	}
	var path []string
	for minor := a.Minor() + 1; minor < b.Minor(); minor++ {
		through := c.intermediateVersion(fmt.Sprintf("%d.%d", a.Major(), minor))
		if through == "" {
			return refuse(fmt.Sprintf("the upgrade must pass through %d.%d, which is not supported", a.Major(), minor))
		}
		path = append(path, through)
	}
	return append(path, target.Kubernetes), nil
}

// intermediateVersion returns the version that an upgrade uses for a minor in between, "" if there is
// none.
func (c *Catalogue) intermediateVersion(minor string) string {
	of := c.file.Minors[minor].Versions
	if len(of) == 0 {
		of = slices.SortedFunc(maps.Keys(c.beyond), compareVersions)
		of = slices.DeleteFunc(of, func(v string) bool { return !SameMinor(v, minor+".0") })
	}
	if len(of) == 0 {
		return ""
	}
	return of[len(of)-1]
}

// MinorsBehind returns how many minor versions one version is older than another; 0 if it is
// not older, or if one of them is not a version.
func MinorsBehind(version, of string) int {
	x, errX := parseVersion(version)
	y, errY := parseVersion(of)
	if errX != nil || errY != nil || x.Major() != y.Major() || x.Minor() > y.Minor() {
		return 0
	}
	return int(y.Minor() - x.Minor())
}

// HasReached reports whether a version belongs to a minor ("1.37"), or to a later one.
func HasReached(minor, version string) bool {
	m, errM := parseVersion(minor + ".0")
	v, errV := parseVersion(version)
	return errM == nil && errV == nil && !v.LessThan(m)
}

// IsNewer reports whether one version is newer than another.
func IsNewer(a, b string) bool { return compareVersions(a, b) > 0 }

// SameMinor reports whether two versions have the same minor.
func SameMinor(a, b string) bool {
	x, errX := parseVersion(a)
	y, errY := parseVersion(b)
	return errX == nil && errY == nil && minorOf(x) == minorOf(y)
}
