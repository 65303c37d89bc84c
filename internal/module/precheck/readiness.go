package precheck

import (
	"slices"
	"strings"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
)

// Readiness holds the facts about a cluster before an upgrade, apart from its hosts.
type Readiness struct {
	// To is the target version.
	To string
	// Unknown lists the versions on the upgrade path that the release table does not have.
	Unknown []release.Release
	// Silent is the reason why the API could not be reached; the other fields about the
	// cluster are then empty.
	Silent string
	// Removed lists APIs in use that a version on the path no longer serves, Deprecated
	// the APIs that a later version removes, each with the minor version.
	Removed, Deprecated []string
	// Budgets lists PodDisruptionBudgets that currently allow no disruption. Webhooks
	// lists the webhooks without a ready backend that make requests fail. Uncalled lists
	// other webhooks that API servers failed to call since they started.
	Budgets, Webhooks, Uncalled []string
	// Crowded lists nodes whose pods request more than the other nodes have free.
	Crowded []string
	// Unready lists nodes that are not ready, Skewed nodes whose kubelets would be too old
	// for the API servers.
	Unready, Skewed []Trouble
	// Etcd lists problems of etcd, Certificates the certificates that expire soon.
	Etcd, Certificates []Trouble
	// Missing lists the versions on the path, except the next one, whose bundles are
	// missing.
	Missing []string
}

// A Trouble is a problem of one host.
type Trouble struct {
	Host, Message, Hint string
	// Blocks reports whether the operation must not begin before the problem is fixed.
	Blocks bool
}

// CheckReadiness evaluates the facts: a problem that would stop an upgrade, or become worse by it,
// is an error; the rest is a warning.
func CheckReadiness(s Readiness, o Options) diag.List {
	r := &report{options: o}
	for _, is := range s.Unknown {
		r.list = append(r.list, WarnUnlisted(is)...)
	}
	if s.Silent != "" {
		r.fail(idAPIUnasked, "check the cluster: slipway cluster-info",
			"the API does not answer, so the cluster cannot be checked before the upgrade: %s", s.Silent)
	}
	if len(s.Removed) > 0 {
		r.fail(idAPIRemoved, "find the clients that use them (the audit log has the field k8s.io/removed-release), "+
			"and change the clients to the next version of the API. "+
			"An API server counts such requests until it restarts",
			"APIs are in use that Kubernetes %s does not serve: %s", s.To, joinItems(s.Removed))
	}
	if len(s.Deprecated) > 0 {
		r.warn(idAPIDeprecated, "change the clients to the next version of the API before a later upgrade",
			"APIs are in use that a later version removes: %s", joinItems(s.Deprecated))
	}
	if len(s.Budgets) > 0 {
		r.fail(IDBudget, "fix the unhealthy pods, run more replicas, or relax the PodDisruptionBudgets",
			"PodDisruptionBudgets allow no disruption, so nodes with these pods cannot be drained: %s", strings.Join(s.Budgets, "; "))
	}
	if len(s.Webhooks) > 0 {
		r.fail(idWebhook, "start the backends of the webhooks, or delete the webhook configurations",
			"requests are rejected because admission webhooks do not answer: %s", strings.Join(s.Webhooks, "; "))
	}
	if len(s.Uncalled) > 0 {
		r.warn(idWebhook, "find the cause in the logs of the API servers (failed calling webhook), "+
			"and keep the backends of the webhooks running during the upgrade. "+
			"An API server counts failed calls until it restarts",
			"calls to admission webhooks have failed since the API servers started: %s", strings.Join(s.Uncalled, "; "))
	}
	if len(s.Missing) > 0 {
		r.fail(idBundleMissing, "build or import the bundles first: slipway bundle build --kubernetes "+s.Missing[0],
			"the upgrade path includes versions whose bundles are missing: %s", joinItems(s.Missing))
	}
	if len(s.Crowded) > 0 {
		r.warn(idCapacity, "add nodes, or run fewer pods",
			"other nodes do not have room for all pods of these nodes while they are drained: %s", strings.Join(s.Crowded, "; "))
	}
	r.addTroubles(idNodeUnready, s.Unready)
	r.addTroubles(idSkew, s.Skewed)
	r.addTroubles(idEtcdUnready, s.Etcd)
	r.addTroubles(idCertificate, s.Certificates)
	return r.list
}

// WarnUnlisted warns of a release that the release table does not have.
func WarnUnlisted(is release.Release) diag.List {
	if is.Known {
		return nil
	}
	r := &report{}
	text := "the release table does not list %s; Slipway treats it like the other patch releases of its minor version"
	if is.Beyond {
		text = "the release table has neither %s nor its minor version, and this version is untested: " +
			"it has the components of its bundle, and everything else is as in the newest known minor version"
	}
	r.warn(idReleaseUnknown, "list the known versions: slipway version --supported", text, is.Kubernetes)
	return r.list
}

// addTroubles adds the problems of hosts, each as one finding.
func (r *report) addTroubles(id string, all []Trouble) {
	for _, t := range all {
		d := diag.Diagnostic{ID: id, Severity: diag.Warning, Host: t.Host, Message: t.Message, Hint: t.Hint}
		if t.Blocks {
			d.Severity = diag.Error
		}
		r.list = append(r.list, r.demoteIgnored(d))
	}
}

// demoteIgnored returns a finding as a warning if the user ignores it.
func (r *report) demoteIgnored(d diag.Diagnostic) diag.Diagnostic {
	if d.Severity == diag.Error && slices.Contains(r.options.Ignore, d.ID) && slices.Contains(IDs(), d.ID) {
		d.Severity = diag.Warning
		d.Message += " (ignored with --ignore-check)"
	}
	return d
}
