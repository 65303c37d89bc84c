// Package service opens package lifecycle for a Cluster object, with the files of the object.
package service

import (
	"context"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/intent"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/filesdir"
)

// An Opener opens services. Client, OpenRecords and Lifecycle are required.
type Opener struct {
	// Client reads objects without a cache.
	Client client.Reader
	// OpenRecords returns the records of a namespace.
	OpenRecords func(namespace string) (records.Backend, error)
	// Lifecycle has the parts of the configuration that are the same for all clusters.
	Lifecycle lifecycle.Config
	// FilesBases are the directories in which private directories for the files of clusters are made. None: the
	// defaults of package privatedir.
	FilesBases []string
	Log        *slog.Logger
}

// An Opened service can reach the hosts of a cluster. Close removes its files.
type Opened struct {
	*lifecycle.Service
	Intent *intent.Intent

	closers []func()
}

// Open returns the service for a cluster and its hosts. The error is a diag.List if the user has to change the
// object or its files.
func (o *Opener) Open(ctx context.Context, c *v1alpha1.Cluster) (*Opened, error) {
	backend, err := o.OpenRecords(c.Namespace)
	if err != nil {
		return nil, err
	}
	wants, err := intent.Load(ctx, o.Client, backend.ClusterFiles(), c, o.Lifecycle.Catalogue.DefaultVersion())
	if err != nil {
		return nil, err
	}
	return o.OpenIntent(ctx, c, wants)
}

// OpenIntent returns the service for a cluster whose intent was loaded.
func (o *Opener) OpenIntent(ctx context.Context, c *v1alpha1.Cluster, wants *intent.Intent) (_ *Opened, err error) {
	backend, err := o.OpenRecords(c.Namespace)
	if err != nil {
		return nil, err
	}
	out := &Opened{Intent: wants}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	dir, err := out.Intent.Files.WriteDir(o.FilesBases...)
	if err != nil {
		return nil, err
	}
	out.onClose(o, c, dir.Close)
	files, err := backend.Files(ctx)
	if err != nil {
		return nil, err
	}
	out.onClose(o, c, files.Close)
	config := o.Lifecycle
	config.Records, config.Files, config.Home = backend, files, dir.Path()
	config.Object = &lifecycle.ClusterObject{
		ID: operation.ClusterIDOf(c), FilesDir: dir.Path(), FileDigests: out.Intent.FileDigests,
	}
	out.Service = lifecycle.New(config)
	return out, nil
}

// onClose adds a part that Close closes.
func (s *Opened) onClose(o *Opener, c *v1alpha1.Cluster, closePart func() error) {
	s.closers = append(s.closers, func() {
		if err := closePart(); err != nil {
			o.Log.Warn("the private files of a cluster were not removed", "cluster", client.ObjectKeyFromObject(c), "error", err)
		}
	})
}

// Close removes the files of the service.
func (s *Opened) Close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
	s.closers = nil
}

// noFiles is the directory of the files of a cluster while nothing reads them. It does not exist.
const noFiles = "/files-of-the-cluster"

// WithoutFiles returns the service for a cluster that reads the records and connects to no host.
func WithoutFiles(config lifecycle.Config, backend records.Backend, c *v1alpha1.Cluster) *lifecycle.Service {
	config.Records, config.Files, config.Home = backend, filesdir.NoFiles{}, noFiles
	config.Object = &lifecycle.ClusterObject{ID: operation.ClusterIDOf(c), FilesDir: noFiles}
	return lifecycle.New(config)
}
