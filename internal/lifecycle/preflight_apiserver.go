package lifecycle

import (
	"context"
	"net"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/node/op"
)

// A server is a control plane of the cluster, with the readiness of its API server.
type server struct {
	*engine.Host
	serves bool
}

// notServing warns about reachable control planes whose API servers do not respond,
// because the operation waits for them. It refuses nothing, because the operation may
// repair them. The leader control plane does not change: otherwise settings with which
// no API server starts would spread to one more control plane with each attempt.
func (p hostChecks) notServing(ctx context.Context, staying []facts.Host) (list diag.List) {
	if p.env.Leader == "" || !p.kind.NeedsBundle() {
		return nil // no leader: the cluster is created or removed; a maintenance operation may be the repair
	}
	var all []*server
	for i, h := range p.hosts[:len(staying)] {
		if staying[i].IsManagedFor(p.env.Cluster.Name) && h.HasRole(v1alpha1.RoleControlPlane) && module.IsJoined(h) && !isLeaving(staying[i]) {
			all = append(all, &server{Host: h})
		}
	}
	ready := op.Wait{HTTP: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(p.env.Cluster.Spec.ControlPlaneEndpoint.Port)) + "/readyz"}
	hostconn.ForEach(all, func(s *server) {
		results, err := s.Conn.Check(ctx, op.List{ready})
		s.serves = err != nil || len(results) != 1 || results[0].Status != op.Changed // an error is reported elsewhere
	})
	var others []string
	for _, s := range all {
		if s.serves {
			others = append(others, s.Name)
		}
	}
	for _, s := range all {
		if !s.serves {
			list = append(list, precheck.WarnOfSilentAPI(p.env, s.Host, others))
		}
	}
	return list
}
