package cli

import (
	"path/filepath"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/store"
)

// A workspace gives access to the caller's directories and to what Slipway keeps in
// them. It opens each of them once, when a command first needs it.
type workspace struct {
	*console
	dirs    program.Directories
	records *store.Store
}

// findDirectories returns the caller's directories, which it looks up once.
func (w *workspace) findDirectories() (program.Directories, error) {
	if w.dirs.Home == "" {
		d, err := w.env.findDirectories()
		if err != nil {
			return program.Directories{}, markRefused(err)
		}
		if err := d.Owner.CheckLinks(d.Cache); err != nil {
			return program.Directories{}, newProblem(idCacheForeign, "move the directory aside, or set SLIPWAY_CACHE to another directory",
				"root cannot use this cache directory: %v", err)
		}
		w.dirs = d
	}
	return w.dirs, nil
}

// openStore opens the store of Slipway's state, once.
func (w *workspace) openStore() (*store.Store, error) {
	if w.records != nil {
		return w.records, nil
	}
	d, err := w.findDirectories()
	if err != nil {
		return nil, err
	}
	var opts []store.Option
	if d.Owner != nil {
		opts = append(opts, store.OwnedBy(d.Owner.UID, d.Owner.GID))
	}
	if w.records, err = store.Open(d.Home, opts...); err != nil {
		return nil, markRefused(err)
	}
	return w.records, nil
}

// loadCatalogue returns the releases that this program knows, including the user's own.
func (w *workspace) loadCatalogue() (*release.Catalogue, error) {
	d, err := w.findDirectories()
	if err != nil {
		return nil, err
	}
	c, err := release.Load(filepath.Join(d.Home, "releases.yaml"))
	return c, markRefused(err)
}
