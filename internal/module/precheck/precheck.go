// Package precheck judges what was seen of the hosts: all problems of all
// hosts in one report, each with what was found, what is wanted, and what to
// do. It is pure: it asks nobody.
package precheck

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/remote"
)

// Options of a precheck. The zero value works.
type Options struct {
	// Operation is what is about to be done: create, apply, delete,
	// rollback, init-os, renew-certs. Those that only take away need hosts that
	// can be reached, no more, and so does renew-certs, with clocks that go
	// alike; init-os needs no room for a cluster. "" is create.
	Operation string
	// ImagesBytes is what a host receives of the bundle, packed, in bytes;
	// 0 is unknown, and then a usual size is taken.
	ImagesBytes int64
	// Architectures are those of the bundle (amd64, arm64); nil is unknown.
	Architectures []string
	// Recorded says that the manager knows the cluster. Otherwise what
	// hosts hold of one by that name is another's.
	Recorded bool
	// Upgrades says that hosts get all that runs on them in another version.
	Upgrades bool
	// Ignore are ids of findings to pass over: their errors are still
	// reported, as warnings.
	Ignore []string
}

// Findings are all problems of all hosts, host by host in the order of the
// file. Errors forbid the operation, warnings are told.
func Findings(c *v1alpha1.Cluster, hosts []facts.Host, o Options) diag.List {
	r := &report{cluster: c, options: o}
	r.unknown()
	for i := range hosts {
		r.host = &hosts[i]
		if r.reached() {
			r.judge()
		}
	}
	r.host = nil
	if !r.removal() && !r.maintenance() {
		r.between(hosts)
	}
	order := map[string]int{}
	for i, h := range hosts {
		order[h.Spec.Name] = i + 1
	}
	slices.SortStableFunc(r.list, func(a, b diag.Diagnostic) int { return cmp.Compare(order[a.Host], order[b.Host]) })
	return r.list
}

// A report is findings in the making.
type report struct {
	cluster *v1alpha1.Cluster
	options Options
	host    *facts.Host // the one that is judged; nil is all of them
	list    diag.List
}

// find adds a finding about the present host. An error that the user passes
// over becomes a warning.
func (r *report) find(severity diag.Severity, id, remedy, format string, args ...any) {
	d := diag.Diagnostic{ID: id, Severity: severity, Message: fmt.Sprintf(format, args...), Hint: remedy}
	if r.host != nil {
		d.Host = r.host.Spec.Name
	}
	r.list = append(r.list, r.passed(d))
}

func (r *report) fail(id, remedy, format string, args ...any) {
	r.find(diag.Error, id, remedy, format, args...)
}

func (r *report) warn(id, remedy, format string, args ...any) {
	r.find(diag.Warning, id, remedy, format, args...)
}

// removal says that the operation only takes away.
func (r *report) removal() bool {
	return r.options.Operation == "delete" || r.options.Operation == "rollback"
}

// renewal says that the operation renews certificates, and adds nothing.
func (r *report) renewal() bool {
	return r.options.Operation == "renew-certs" || r.options.Operation == "rotate-ca"
}

// maintenance says that the operation is about etcd alone, on hosts that were
// looked at when they joined.
func (r *report) maintenance() bool {
	return slices.Contains([]string{"etcd-defrag", "etcd-restore", "etcd-rescue"}, r.options.Operation)
}

// unknown reports what is to be passed over and cannot be.
func (r *report) unknown() {
	for _, id := range r.options.Ignore {
		switch {
		case slices.Contains(IDs(), id):
		case slices.Contains(never(), id), slices.Contains(reasons(), id):
			r.fail(idUnknownCheck, "mend what it reports", "%q cannot be passed over", id)
		default:
			remedy := diag.DidYouMean(id, IDs())
			if remedy == "" {
				remedy = "the ids stand in brackets behind each finding"
			}
			r.fail(idUnknownCheck, remedy, "there is no check %q to pass over", id)
		}
	}
}

// reached reports why a host could not be asked.
func (r *report) reached() bool {
	h := r.host
	var unusable *remote.Error
	switch {
	case errors.As(h.Err, &unusable):
		r.fail(string(unusable.Reason), unusable.Remedy, "%s", unusable.Cause)
		return false
	case h.Err != nil:
		r.fail(idHostFacts, "run again with --debug and look at what the host answers", "%v", h.Err)
		return false
	case h.Facts == nil:
		r.fail(idHostFacts, "run again with --debug and look at what the host answers", "the host has not been asked")
		return false
	}
	return true
}

// judge looks at one host that answered.
func (r *report) judge() {
	if r.otherCluster() || r.removal() || r.renewal() || r.maintenance() {
		return
	}
	r.machine()
	if r.node() {
		r.kernel()
		r.cgroups()
	}
	r.surroundings()
	if r.options.Operation == "init-os" {
		return
	}
	r.size()
	r.disks()
	r.addresses()
	r.names()
	if r.node() {
		r.networks()
		r.resolver()
	}
	r.etcdData()
	r.external()
	r.balancer()
	r.commands()
	if !r.ours() {
		r.leftovers()
		r.ports()
	}
}

// node says that the host runs a kubelet; one with etcd alone does not.
func (r *report) node() bool { return facts.RunsKubelet(r.host.Spec.Roles) }

func (r *report) ours() bool { return r.options.Recorded && r.host.Ours(r.cluster.Name) }

func (r *report) registry() bool {
	return slices.Contains(r.host.Spec.Roles, v1alpha1.RoleRegistry)
}

func (r *report) controlPlane() bool {
	return slices.Contains(r.host.Spec.Roles, v1alpha1.RoleControlPlane)
}

// field is where the host stands in the file: "spec.hosts[2].arch".
func (r *report) field(name string) string {
	i := slices.IndexFunc(r.cluster.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == r.host.Spec.Name })
	return fmt.Sprintf("spec.hosts[%d].%s", i, name)
}

func list(items []string) string { return strings.Join(items, ", ") }
