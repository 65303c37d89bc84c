package health

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// A Lifecycle probes clusters with the code of the command line.
type Lifecycle struct {
	service.Opener
	// Limits limit the queries of a host.
	Limits inspect.Limits
}

// NewLifecycle returns the source for the clusters of an API.
func NewLifecycle(o service.Opener, t Times) *Lifecycle {
	t.setDefaults()
	return &Lifecycle{Opener: o, Limits: inspect.Limits{Total: t.Hosts, Host: t.Hosts, Through: min(t.Hosts, t.API)}}
}

// QueryAPI implements Source.
func (l *Lifecycle) QueryAPI(ctx context.Context, c *v1alpha1.Cluster, throughHosts bool) (*inspect.APIReport, error) {
	if throughHosts {
		svc, err := l.open(ctx, c)
		if err != nil {
			return nil, err
		}
		defer svc.Close()
		return svc.QueryAPIThroughHosts(ctx, c.Name)
	}
	backend, err := l.OpenRecords(c.Namespace)
	if err != nil {
		return nil, err
	}
	return service.WithoutFiles(l.Lifecycle, backend, c).QueryAPI(ctx, c.Name)
}

// QueryHosts implements Source.
func (l *Lifecycle) QueryHosts(ctx context.Context, c *v1alpha1.Cluster) (*inspect.HealthReport, error) {
	svc, err := l.open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer svc.Close()
	return svc.QueryHealth(ctx, c.Name)
}

// open opens the service for the hosts of a cluster.
func (l *Lifecycle) open(ctx context.Context, c *v1alpha1.Cluster) (*service.Opened, error) {
	svc, err := l.Open(ctx, c)
	if err == nil {
		svc.Limits = l.Limits
		svc.Limits.Total = inspect.HostsTime(len(c.Spec.Hosts), l.Limits.Host)
	}
	return svc, err
}
