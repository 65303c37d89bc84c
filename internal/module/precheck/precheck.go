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
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// Options configure a precheck. The zero value works.
type Options struct {
	// Level is how much is checked for the operation that is about to run.
	Level operation.Precheck
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

// CheckHosts returns all problems of all hosts, host by host in the order of the file.
// Errors prevent the operation, warnings are only reported.
func CheckHosts(c *v1alpha1.Cluster, hosts []facts.Host, o Options) diag.List {
	r := &report{cluster: c, options: o}
	r.checkIgnoredIDs()
	for i := range hosts {
		r.host = &hosts[i]
		if r.checkReached() {
			r.checkHost()
		}
	}
	r.host = nil
	if !r.onlyRemoves() && !r.isMaintenance() {
		r.compareHosts(hosts)
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

// addFinding adds a finding about the current host. An error that the user ignores
// becomes a warning.
func (r *report) addFinding(severity diag.Severity, id, remedy, format string, args ...any) {
	d := diag.Diagnostic{ID: id, Severity: severity, Message: fmt.Sprintf(format, args...), Hint: remedy}
	if r.host != nil {
		d.Host = r.host.Spec.Name
	}
	r.list = append(r.list, r.demoteIgnored(d))
}

func (r *report) fail(id, remedy, format string, args ...any) {
	r.addFinding(diag.Error, id, remedy, format, args...)
}

func (r *report) warn(id, remedy, format string, args ...any) {
	r.addFinding(diag.Warning, id, remedy, format, args...)
}

// onlyRemoves reports whether the operation only removes something.
func (r *report) onlyRemoves() bool {
	return r.options.Level == operation.RemovalPrecheck
}

// onlyPreparesSystem reports whether the operation only prepares the operating system.
func (r *report) onlyPreparesSystem() bool { return r.options.Level == operation.SystemPrecheck }

// onlyRenews reports whether the operation only renews or rotates certificates.
func (r *report) onlyRenews() bool {
	return r.options.Level == operation.CertificatePrecheck
}

// isMaintenance reports whether the operation only concerns etcd, on hosts that were checked
// when they joined.
func (r *report) isMaintenance() bool {
	return r.options.Level == operation.EtcdPrecheck
}

// checkIgnoredIDs reports ids of --ignore-check that do not exist or cannot be ignored.
func (r *report) checkIgnoredIDs() {
	for _, id := range r.options.Ignore {
		switch {
		case slices.Contains(IDs(), id):
		case slices.Contains(fatalIDs(), id), slices.Contains(unreachableIDs(), id):
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

// checkReached reports why the facts of a host are missing.
func (r *report) checkReached() bool {
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

// checkHost checks one host that has facts.
func (r *report) checkHost() {
	if r.checkOtherCluster() || r.onlyRemoves() || r.onlyRenews() || r.isMaintenance() {
		return
	}
	r.checkMachine()
	if r.isNode() {
		r.checkKernel()
		r.checkCgroups()
	}
	r.checkConflicts()
	if r.onlyPreparesSystem() {
		return
	}
	r.checkSize()
	r.checkDisks()
	r.checkAddresses()
	r.checkNames()
	if r.isNode() {
		r.checkNetworks()
		r.checkResolver()
	}
	r.checkEtcdData()
	r.checkExternalEtcd()
	r.checkBalancer()
	r.checkUnitCommands()
	if !r.isOwnHost() {
		r.checkLeftovers()
		r.checkPorts()
	}
}

// isNode reports whether the host runs a kubelet; a host with only etcd does not.
func (r *report) isNode() bool { return hostroles.RunsKubelet(r.host.Spec.Roles) }

func (r *report) isOwnHost() bool { return r.options.Recorded && r.host.IsManagedFor(r.cluster.Name) }

func (r *report) isRegistry() bool {
	return slices.Contains(r.host.Spec.Roles, v1alpha1.RoleRegistry)
}

func (r *report) isControlPlane() bool {
	return slices.Contains(r.host.Spec.Roles, v1alpha1.RoleControlPlane)
}

// fieldPath returns the path of a field of the host in the file: "spec.hosts[2].arch".
func (r *report) fieldPath(name string) string {
	i := slices.IndexFunc(r.cluster.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == r.host.Spec.Name })
	return fmt.Sprintf("spec.hosts[%d].%s", i, name)
}

func joinItems(items []string) string { return strings.Join(items, ", ") }
