package precheck

import (
	"slices"
	"strings"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
)

// Readiness is what was seen of a cluster that is about to be upgraded, besides
// its hosts.
type Readiness struct {
	// To is the version it goes to in the end.
	To string
	// Unknown are the versions on the way that the release table does not list.
	Unknown []release.Release
	// Silent is why the API could not be asked; then nothing is known of what is
	// in the cluster.
	Silent string
	// Removed are APIs in use that a version on the way serves no more, and
	// Deprecated those that go away later: each with the minor.
	Removed, Deprecated []string
	// Budgets are disruption budgets that let no pod go now, Webhooks those
	// without which requests fail and behind which nobody is ready, Uncalled others
	// that API servers have not got an answer from, since they started.
	Budgets, Webhooks, Uncalled []string
	// Crowded are nodes whose pods ask for more than the others have free.
	Crowded []string
	// Unready are nodes that are not ready, Skewed those whose kubelets API servers
	// would be too far ahead of.
	Unready, Skewed []Trouble
	// Etcd is what is wrong with etcd, Certificates those that end soon.
	Etcd, Certificates []Trouble
	// Missing are the versions on the way, but the next, whose bundles are not at
	// hand.
	Missing []string
}

// A Trouble is something that is wrong with one host.
type Trouble struct {
	Host, Message, Hint string
	// Blocks says that nothing is begun before it is mended.
	Blocks bool
}

// Ready judges it: what an upgrade would stop at, or harm, forbids it; the rest is
// told.
func Ready(s Readiness, o Options) diag.List {
	r := &report{options: o}
	for _, is := range s.Unknown {
		r.list = append(r.list, Unlisted(is)...)
	}
	if s.Silent != "" {
		r.fail(idAPIUnasked, "see how the cluster is: slipway cluster-info", "the API does not answer, and what an upgrade would meet in the cluster is not known: %s", s.Silent)
	}
	if len(s.Removed) > 0 {
		r.fail(idAPIRemoved, "find out who asks for them (the audit log has the field k8s.io/removed-release), and have them use the next version of the API; what an API server was asked for it forgets when it is started anew",
			"APIs are in use that Kubernetes %s does not serve: %s", s.To, list(s.Removed))
	}
	if len(s.Deprecated) > 0 {
		r.warn(idAPIDeprecated, "have those who ask for them use the next version of the API, before a later upgrade", "APIs are in use that go away later: %s", list(s.Deprecated))
	}
	if len(s.Budgets) > 0 {
		r.fail(IDBudget, "have the pods be healthy, more of them run, or the budgets allow one to be away", "disruption budgets let no pod go, and nodes with such pods cannot be drained: %s", strings.Join(s.Budgets, "; "))
	}
	if len(s.Webhooks) > 0 {
		r.fail(idWebhook, "have what answers them run, or delete their configurations", "admission webhooks refuse requests because nobody answers them: %s", strings.Join(s.Webhooks, "; "))
	}
	if len(s.Uncalled) > 0 {
		r.warn(idWebhook, "find out why in the logs of API servers (failed calling webhook), and have what answers them be there while nodes are exchanged; what an API server could not call it forgets when it is started anew",
			"calls of admission webhooks have failed since API servers started: %s", strings.Join(s.Uncalled, "; "))
	}
	if len(s.Missing) > 0 {
		r.fail(idBundleMissing, "build or import them before: slipway bundle build --kubernetes "+s.Missing[0]+"; or have each be built when it is its turn: --ignore-check "+idBundleMissing,
			"the way leads over versions whose bundles are not at hand: %s", list(s.Missing))
	}
	if len(s.Crowded) > 0 {
		r.warn(idCapacity, "make room: more nodes, or less that runs; else such pods wait until their node is back", "nodes cannot hand all their pods over while they are away: %s", strings.Join(s.Crowded, "; "))
	}
	r.troubles(idNodeUnready, s.Unready)
	r.troubles(idSkew, s.Skewed)
	r.troubles(idEtcdUnready, s.Etcd)
	r.troubles(idCertificate, s.Certificates)
	return r.list
}

// Unlisted warns of a release that the table does not list.
func Unlisted(is release.Release) diag.List {
	if is.Known {
		return nil
	}
	r := &report{}
	text := "the release table does not list %s: it is taken for a patch like the others of its minor"
	if is.Beyond {
		text = "the release table knows neither %s nor its minor, and nothing was tried with it: its bundle says which components it has, and all else is taken to be as in the newest minor that is known"
	}
	r.warn(idReleaseUnknown, "see which are known: slipway version --supported", text, is.Kubernetes)
	return r.list
}

// troubles are those of hosts, each told by itself.
func (r *report) troubles(id string, all []Trouble) {
	for _, t := range all {
		d := diag.Diagnostic{ID: id, Severity: diag.Warning, Host: t.Host, Message: t.Message, Hint: t.Hint}
		if t.Blocks {
			d.Severity = diag.Error
		}
		r.list = append(r.list, r.passed(d))
	}
}

// passed is a finding, which is a warning if the user passes it over.
func (r *report) passed(d diag.Diagnostic) diag.Diagnostic {
	if d.Severity == diag.Error && slices.Contains(r.options.Ignore, d.ID) && slices.Contains(IDs(), d.ID) {
		d.Severity = diag.Warning
		d.Message += " (passed over with --ignore-check)"
	}
	return d
}
