package datadir

import (
	"cmp"
	"fmt"

	"github.com/Masterminds/semver/v3"

	"slipway.dev/slipway/internal/diag"
)

// IsFresh reports whether the server has never been ready with this directory. Only then may
// missing keys and certificates of a CA be created: later, their loss is a loss of data.
func (d *Dir) IsFresh() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.info.Started
}

// MarkStarted saves that the server has been ready.
func (d *Dir) MarkStarted() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.info.Started {
		return nil
	}
	d.info.Started = true
	return d.writeInfo()
}

// UseKubernetes saves the version of the API server that is about to use the directory. It
// refuses a version with an older minor than before: an older API server cannot read all
// objects of a newer one. A version that is not a release is not compared.
func (d *Dir) UseKubernetes(version string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, err := semver.NewVersion(version)
	if err != nil {
		return nil //nolint:nilerr // a test binary has no version
	}
	before, err := semver.NewVersion(d.info.Kubernetes)
	switch {
	case err == nil && cmp.Or(cmp.Compare(now.Major(), before.Major()), cmp.Compare(now.Minor(), before.Minor())) < 0:
		return diag.Refuse(idNewer,
			fmt.Sprintf("data directory %s was used by an API server of Kubernetes %s; this program has %s", d.path, d.info.Kubernetes, version),
			"start the newer slipwayd, or restore a backup from before the upgrade: slipwayd restore FILE --replace")
	case err == nil && !now.GreaterThan(before):
		return nil
	}
	d.info.Kubernetes = version
	return d.writeInfo()
}
