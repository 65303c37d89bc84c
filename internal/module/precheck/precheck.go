// Package precheck evaluates the facts of the hosts and returns the problems of all hosts
// in one report, each with what was found, what is required, and what to do. It is pure:
// it makes no requests.
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

// Options configure a precheck. The zero value works.
type Options struct {
	// Operation is the operation that is about to run: create, apply, delete, rollback,
	// init-os, renew-certs. Operations that only remove something need nothing but
	// reachable hosts. So does renew-certs, which also checks the clocks. init-os checks
	// no space for a cluster. "" means create.
	Operation string
	// ImagesBytes is the compressed size of the bundle that a host receives, in bytes; 0
	// means unknown, and a typical size is used.
	ImagesBytes int64
	// Architectures lists the architectures of the bundle (amd64, arm64); nil means
	// unknown.
	Architectures []string
	// Recorded reports whether the manager has the cluster in its state. Otherwise files
	// of a cluster of that name belong to another cluster.
	Recorded bool
	// Upgrades reports whether hosts receive another version of everything that runs on
	// them.
	Upgrades bool
	// Ignore lists ids of findings to ignore: errors with these ids are reported as
	// warnings.
	Ignore []string
}

// Findings returns all problems of all hosts, host by host in the order of the file.
// Errors prevent the operation, warnings are only reported.
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

// A report collects findings.
type report struct {
	cluster *v1alpha1.Cluster
	options Options
	host    *facts.Host // the host that is checked; nil means all
	list    diag.List
}

// find adds a finding about the current host. An error that the user ignores becomes a
// warning.
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

// removal reports whether the operation only removes something.
func (r *report) removal() bool {
	return r.options.Operation == "delete" || r.options.Operation == "rollback"
}

// renewal reports whether the operation only renews or rotates certificates.
func (r *report) renewal() bool {
	return r.options.Operation == "renew-certs" || r.options.Operation == "rotate-ca"
}

// maintenance reports whether the operation only concerns etcd, on hosts that were checked
// when they joined.
func (r *report) maintenance() bool {
	return slices.Contains([]string{"etcd-defrag", "etcd-restore", "etcd-rescue"}, r.options.Operation)
}

// unknown reports ids of --ignore-check that do not exist or cannot be ignored.
func (r *report) unknown() {
	for _, id := range r.options.Ignore {
		switch {
		case slices.Contains(IDs(), id):
		case slices.Contains(never(), id), slices.Contains(reasons(), id):
			r.fail(idUnknownCheck, "fix the problem that it reports", "check %q cannot be ignored", id)
		default:
			remedy := diag.DidYouMean(id, IDs())
			if remedy == "" {
				remedy = "write the id that a finding has in brackets at its end"
			}
			r.fail(idUnknownCheck, remedy, "there is no check %q to ignore", id)
		}
	}
}

// reached reports why the facts of a host are missing.
func (r *report) reached() bool {
	h := r.host
	var unusable *remote.Error
	switch {
	case errors.As(h.Err, &unusable):
		r.fail(string(unusable.Reason), unusable.Remedy, "%s", unusable.Cause)
		return false
	case h.Err != nil:
		r.fail(idHostFacts, "run the command again with --debug and read the output of the host", "%v", h.Err)
		return false
	case h.Facts == nil:
		r.fail(idHostFacts, "run the command again with --debug and read the output of the host", "the facts of the host were not collected")
		return false
	}
	return true
}

// judge checks one host that has facts.
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

// node reports whether the host runs a kubelet; a host with only etcd does not.
func (r *report) node() bool { return facts.RunsKubelet(r.host.Spec.Roles) }

func (r *report) ours() bool { return r.options.Recorded && r.host.Ours(r.cluster.Name) }

func (r *report) registry() bool {
	return slices.Contains(r.host.Spec.Roles, v1alpha1.RoleRegistry)
}

func (r *report) controlPlane() bool {
	return slices.Contains(r.host.Spec.Roles, v1alpha1.RoleControlPlane)
}

// field returns the path of a field of the host in the file: "spec.hosts[2].arch".
func (r *report) field(name string) string {
	i := slices.IndexFunc(r.cluster.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == r.host.Spec.Name })
	return fmt.Sprintf("spec.hosts[%d].%s", i, name)
}

func list(items []string) string { return strings.Join(items, ", ") }
