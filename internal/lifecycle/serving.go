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
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// A server is a control plane that has joined, and whether its own API server
// is ready.
type server struct {
	*engine.Host
	serves bool
}

// notServing warns of control planes that answer and whose API servers do not,
// before an operation waits for them. Nothing is refused, for what is applied
// may be what mends them. The one that speaks for the cluster stays the same:
// settings with which no API server starts would go from it to the next one, and
// with each try to one more.
func (p *prepared) notServing(ctx context.Context, staying []facts.Host) (list diag.List) {
	if p.env.Leader == "" || maintains(p.request.Kind) {
		return nil // it is made, or taken away; or nothing of it is asked for, or what ails it is perhaps renewed
	}
	var all []*server
	for i, h := range p.hosts[:len(staying)] {
		if staying[i].Ours(p.env.Cluster.Name) && h.HasRole(v1alpha1.RoleControlPlane) && module.Holds(h) && !leaves(staying[i]) {
			all = append(all, &server{Host: h})
		}
	}
	ready := op.Wait{HTTP: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(p.env.Cluster.Spec.ControlPlaneEndpoint.Port)) + "/readyz"}
	each(all, func(s *server) {
		results, err := s.Conn.Check(ctx, op.List{ready})
		s.serves = err != nil || len(results) != 1 || results[0].Status != op.Changed // or it is told elsewhere
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

// silent is what to do about a control plane that does not serve, while others
// do, or none.
func (p *prepared) silent(s *server, others []string) diag.Diagnostic {
	d := diag.Diagnostic{
		ID: idNotServing, Severity: diag.Warning, Host: s.Name,
		Message: "its API server does not answer; the operation waits for it, for five minutes, and fails if it does not come up",
	}
	if p.env.IsFirst(s.Host) {
		d.Message = "its API server, through which the operation speaks with the cluster, does not answer; it is waited for, for five minutes, and the operation fails if it does not come up"
	}
	see := "see why: slipway exec " + p.env.Cluster.Name + "@" + s.Name + " --sudo -- journalctl -u kubelet -n 30 --no-pager; "
	switch {
	case len(others) > 0:
		d.Hint = see + "if it cannot be mended, take it off: slipway delete node " + s.Name + " (" + strings.Join(others, " and ") + " serve the cluster)"
	case len(spec.HostsWithRole(p.env.Cluster, v1alpha1.RoleControlPlane)) > 1:
		d.Hint = see + "no control plane that stays serves the cluster: more than half of etcd's members must be up, so start those that are down first"
	default:
		d.Hint = see + "if its settings are the cause, correct them in the file, and apply it"
	}
	return d
}
