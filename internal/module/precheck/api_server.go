package precheck

import (
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// IDNotServing is the id of the warning about a silent API server. The warning refuses nothing, so it is not in the list of
// checks.
const IDNotServing = "control-plane-not-serving"

// WarnOfSilentAPI returns the warning about a control plane whose API server does not respond.
// others are the control planes whose API servers respond.
func WarnOfSilentAPI(env module.Env, h *engine.Host, others []string) diag.Diagnostic {
	d := diag.Diagnostic{
		ID: IDNotServing, Severity: diag.Warning, Host: h.Name,
		Message: "its API server does not respond; the operation waits five minutes for it and then fails",
	}
	if env.IsFirst(h) {
		d.Message = "its API server, which the operation uses, does not respond; the operation waits five minutes for it and then fails"
	}
	see := "find the cause: slipway exec " + env.Cluster.Name + "@" + h.Name + " --sudo -- journalctl -u kubelet -n 30 --no-pager; "
	switch {
	case len(others) > 0:
		d.Hint = see + "if the host cannot be repaired, remove the node: slipway delete node " + h.Name + " (" +
			strings.Join(others, " and ") + " still serve the API)"
	case len(spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane)) > 1:
		d.Hint = see + "start the etcd members that are down first: more than half of them must run, " +
			"and no remaining control plane serves the API"
	default:
		d.Hint = see + "if its settings are the cause, correct them in the file and apply it"
	}
	return d
}
