package cli

import (
	"context"

	"slipway.dev/slipway/internal/lifecycle"
)

// A subjectReader reads which cluster a command line names.
type subjectReader struct {
	files    *clusterFiles
	clusters *clusterChooser
}

// readSubject returns the cluster of the file, or without a file the saved cluster that
// chooseCluster returns.
func (b *subjectReader) readSubject(ctx context.Context, file string, args []string) (lifecycle.Subject, error) {
	if file == "" {
		name, err := b.clusters.chooseCluster(ctx, args)
		return lifecycle.Subject{Name: name}, err
	}
	d, err := b.files.readClusterFile(ctx, file, args)
	if err != nil {
		return lifecycle.Subject{}, err
	}
	return d.subject(), nil
}

// subject returns the cluster of a file for a request.
func (d *clusterFile) subject() lifecycle.Subject {
	return lifecycle.Subject{Cluster: d.Cluster, Name: d.Cluster.Name, Source: d.Source, File: d.path, Dir: d.dir}
}
