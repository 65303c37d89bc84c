package health

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// A Lifecycle probes clusters with the code of the command line.
type Lifecycle struct {
	// usual uses what was read before. fresh reads it again.
	usual, fresh service.Opener
	// Limits limit the queries of a host.
	Limits inspect.Limits
}

// NewLifecycle returns the source for the clusters of an API. usual can read objects from memory, fresh cannot.
func NewLifecycle(usual, fresh service.Opener, t Times) *Lifecycle {
	t.setDefaults()
	return &Lifecycle{usual: usual, fresh: fresh, Limits: inspect.Limits{Total: t.Hosts, Host: t.Hosts, Through: min(t.Hosts, t.API)}}
}

// QueryAPI implements Source.
func (l *Lifecycle) QueryAPI(ctx context.Context, c *v1alpha1.Cluster, q Query) (*inspect.APIReport, error) {
	if q.ThroughHosts {
		svc, err := l.open(ctx, c, q)
		if err != nil {
			return nil, err
		}
		defer svc.Close()
		return svc.QueryAPIThroughHosts(ctx, c.Name)
	}
	o := l.openerOf(q)
	backend, err := o.OpenRecords(c.Namespace)
	if err != nil {
		return nil, err
	}
	return service.WithoutFiles(o.Lifecycle, backend, c).QueryAPI(ctx, c.Name)
}

// QueryHosts implements Source.
func (l *Lifecycle) QueryHosts(ctx context.Context, c *v1alpha1.Cluster, q Query) (*inspect.HealthReport, error) {
	svc, err := l.open(ctx, c, q)
	if err != nil {
		return nil, err
	}
	defer svc.Close()
	return svc.QueryHealth(ctx, c.Name)
}

func (l *Lifecycle) openerOf(q Query) *service.Opener {
	if q.Fresh {
		return &l.fresh
	}
	return &l.usual
}

// open opens the service for the hosts of a cluster.
func (l *Lifecycle) open(ctx context.Context, c *v1alpha1.Cluster, q Query) (*service.Opened, error) {
	svc, err := l.openerOf(q).Open(ctx, c)
	if err == nil {
		svc.Limits = l.Limits
		svc.Limits.Total = inspect.HostsTime(len(c.Spec.Hosts), l.Limits.Host)
	}
	return svc, err
}
