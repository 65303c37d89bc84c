package cli

import (
	"context"
	"path/filepath"
	"slices"

	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// mergedContexts finds and removes the contexts that Slipway merged into the caller's
// kubeconfigs.
type mergedContexts struct {
	*workspace
	open      opener[clusterAccess]
	openState opener[clusterReader]
}

// prepareRemoval returns a function that removes a deleted cluster from all kubeconfigs
// that Slipway merged it into. prepareRemoval itself looks up these files, because the
// delete removes them from the state.
func (m *mergedContexts) prepareRemoval(ctx context.Context, name string) func() {
	nothing := func() {}
	svc, err := m.open(ctx)
	if err != nil {
		return nothing
	}
	state, err := m.openState(ctx)
	if err != nil {
		return nothing
	}
	admin, _, err := svc.Kubeconfig(ctx, name, false)
	if err != nil {
		return nothing // without an admin kubeconfig, nothing was merged
	}
	path, to, err := m.findOwnKubeconfig()
	if err != nil {
		return nothing
	}
	paths, err := svc.Merged(name)
	if err != nil {
		m.printMessage("warning: contexts of cluster %s may remain in kubeconfigs: %v", name, err)
	}
	if at, err := filepath.Abs(path); err == nil && !slices.Contains(paths, at) { // merged by an earlier version
		paths = append(paths, at)
	}
	return func() {
		list, err := state.Clusters(ctx)
		if err == nil && containsCluster(list, name) {
			return // a rollback kept the cluster
		}
		access := kubeconfig.Access{Cluster: name, Admin: admin}
		for _, path := range paths {
			if err := kubeconfig.Remove(ctx, path, access, to); err != nil {
				m.printMessage("warning: context %s remains in %s: %v", name, path, err)
			}
		}
	}
}

// findOwnKubeconfig returns the path of the caller's kubeconfig, and its owner.
func (w *workspace) findOwnKubeconfig() (path string, to *fileowner.Owner, err error) {
	d, err := w.findDirectories()
	return kubeconfig.DefaultPath(d.User), d.Owner, err
}

func containsCluster(list []savedstate.ClusterSummary, name string) bool {
	for _, c := range list {
		if c.Name == name {
			return true
		}
	}
	return false
}
