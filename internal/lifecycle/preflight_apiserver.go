package lifecycle

import (
	"context"
	"net"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
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
			list = append(list, p.silent(s, others))
		}
	}
	return list
}

// silent returns the warning about a control plane whose API server does not respond.
// others are the control planes whose API servers respond.
func (p hostChecks) silent(s *server, others []string) diag.Diagnostic {
	d := diag.Diagnostic{
		ID: idNotServing, Severity: diag.Warning, Host: s.Name,
		Message: "its API server does not respond; the operation waits five minutes for it and then fails",
	}
	if p.env.IsFirst(s.Host) {
		d.Message = "its API server, which the operation uses, does not respond; the operation waits five minutes for it and then fails"
	}
	see := "find the cause: slipway exec " + p.env.Cluster.Name + "@" + s.Name + " --sudo -- journalctl -u kubelet -n 30 --no-pager; "
	switch {
	case len(others) > 0:
		d.Hint = see + "if the host cannot be repaired, remove the node: slipway delete node " + s.Name + " (" +
			strings.Join(others, " and ") + " still serve the API)"
	case len(spec.HostsWithRole(p.env.Cluster, v1alpha1.RoleControlPlane)) > 1:
		d.Hint = see + "start the etcd members that are down first: more than half of them must run, " +
			"and no remaining control plane serves the API"
	default:
		d.Hint = see + "if its settings are the cause, correct them in the file and apply it"
	}
	return d
}
