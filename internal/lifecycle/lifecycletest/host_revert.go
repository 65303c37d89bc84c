package lifecycletest

import (
	"slices"
	"strings"

	"slipway.dev/slipway/internal/node/op"
)

// filesOf returns the files that an operation writes and that reverting its step restores.
func filesOf(o op.Op) []string {
	switch o := o.(type) {
	case op.File:
		return []string{o.Path}
	case op.Certificate:
		return []string{o.Cert, o.Key}
	}
	return nil
}

// filesToRevert returns the files that a step has written and that are no longer wanted.
func (m *Host) filesToRevert(o op.RevertStep) (paths []string) {
	for path, step := range m.writtenBy {
		wanted := slices.ContainsFunc(m.batch, func(w op.Op) bool { return slices.Contains(filesOf(w), path) })
		if _, ok := m.Files[path]; ok && step == o.Step && !wanted {
			paths = append(paths, path)
		}
	}
	return paths
}

// stateToRevert returns the other state that a step has made and that is no longer wanted.
func (m *Host) stateToRevert(o op.RevertStep) (out []string) {
	for what, step := range m.madeBy {
		_, there := m.State[what]
		wanted := slices.ContainsFunc(m.batch, func(w op.Op) bool { return slices.Contains(stateOf(w), what) })
		if there && step == o.Step && !wanted {
			out = append(out, what)
		}
	}
	return out
}

// stateOf returns the other state that reverting an operation removes, by its place in the
// host's state.
func stateOf(o op.Op) []string {
	switch o := o.(type) {
	case op.Dir, op.Unpack, op.InstallHelper:
		return []string{OperationID(o)}
	case op.Unit:
		return []string{o.Name + " enabled", o.Name + " started"}
	}
	return nil
}

// KeptBlob begins the key of a blob of a bundle in the state of a host. Its name and digest
// follow.
const KeptBlob = "kept blob "

const pinnedImage = "pinned image "

// BundleEntries returns the entries of files from bundles.
func (m *Host) BundleEntries() (out []string) {
	for what := range m.State {
		if strings.HasPrefix(what, KeptBlob) || strings.HasPrefix(what, pinnedImage) {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return out
}

// entriesToPrune returns the entries that a prune removes.
func (m *Host) entriesToPrune(o op.Prune) []string {
	return slices.DeleteFunc(m.BundleEntries(), func(what string) bool {
		if image, ok := strings.CutPrefix(what, pinnedImage); ok {
			return slices.Contains(o.Images, image)
		}
		return slices.Contains(o.Blobs, what[strings.LastIndex(what, " ")+1:])
	})
}
