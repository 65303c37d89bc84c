package cli

import (
	"context"

	"slipway.dev/slipway/internal/lifecycle"
	kinds "slipway.dev/slipway/internal/lifecycle/operation"
)

// A requestBuilder makes requests for the cluster that a command line names.
type requestBuilder struct {
	files    *clusterFiles
	clusters *clusterChooser
}

// newRequest returns a request for the cluster of the file, or without a file for the
// cluster that chooseCluster returns.
func (b *requestBuilder) newRequest(
	ctx context.Context, kind kinds.Kind, file string, args []string, change changeFlags,
) (lifecycle.Request, error) {
	if file != "" {
		d, err := b.files.readClusterFile(ctx, file, args)
		if err != nil {
			return lifecycle.Request{}, err
		}
		return newFileRequest(kind, d, change), nil
	}
	name, err := b.clusters.chooseCluster(ctx, args)
	if err != nil {
		return lifecycle.Request{}, err
	}
	return change.setIn(lifecycle.Request{Kind: kind, Name: name}), nil
}

// newFileRequest returns a request for the cluster of a file.
func newFileRequest(kind kinds.Kind, d *clusterFile, change changeFlags) lifecycle.Request {
	return change.setIn(lifecycle.Request{
		Kind: kind, Cluster: d.Cluster, Name: d.Cluster.Name, Source: d.Source, File: d.path, Dir: d.dir,
	})
}
