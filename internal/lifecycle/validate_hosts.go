package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/spec"
)

// hostChecks compares the queried hosts with the operation, and finds hosts that it cannot use.
type hostChecks struct{ *prepared }

// precheckHosts returns the findings against the operation on the queried hosts.
func (p hostChecks) precheckHosts(c *v1alpha1.Cluster, found []facts.Host, staying int, o precheck.Options) diag.List {
	list := precheck.CheckHosts(p.env.Cluster, found[:staying], o)
	if p.recorded != nil && p.kind.ChangesCluster() {
		list = append(list, p.findMisplacedHosts(found[:staying], found[staying:])...)
		list = append(list, p.findLeavingHosts(found[:staying])...)
	}
	gone := c.DeepCopy()
	gone.Spec.Hosts = gone.Spec.Hosts[staying:]
	o.Level, o.Ignore = operation.RemovalPrecheck, nil
	for _, d := range precheck.CheckHosts(gone, found[staying:], o) {
		at := slices.IndexFunc(p.env.Leaving, func(l module.LeavingHost) bool { return l.Name == d.Host })
		if at >= 0 && d.Severity == diag.Error {
			if p.request.forget && isHere(p.env.Leaving[at].Host, d.ID) {
				d.Hint += notForgotten
			} else if p.request.forget {
				if l := &p.env.Leaving[at]; !l.IsLost {
					l.IsLost, l.Why = true, d.Message
				}
				d.Severity = diag.Warning
				d.Hint = "the node is deleted; the files on the host remain"
			} else {
				d.Hint = cmp.Or(d.Hint, "fix the problem") + ", or remove a permanently lost host without cleaning it up: --forget"
			}
		}
		list = append(list, d)
	}
	return list
}

// findMisplacedHosts returns findings about hosts that are not the machines that the
// description names.
func (p hostChecks) findMisplacedHosts(staying, leaving []facts.Host) (list diag.List) {
	for _, h := range staying {
		if h.Facts == nil {
			continue
		}
		ours := h.IsManagedFor(p.env.Cluster.Name) && precheck.HoldsCluster(h.Facts)
		was := spec.FindHost(p.recorded.Spec.Hosts, h.Spec.Name)
		for _, l := range leaving {
			d := diag.Diagnostic{
				ID: idHostRenamed, Severity: diag.Error, Host: h.Spec.Name,
				Message: "is the same machine as node " + l.Spec.Name + " of the cluster",
				Hint:    "remove that node first, then add the host again: slipway delete node " + l.Spec.Name,
			}
			switch {
			case l.Facts != nil && l.Facts.MachineID == h.Facts.MachineID && h.Facts.MachineID != "":
			case module.InternalAddress(l.Spec) == module.InternalAddress(h.Spec):
				// etcd would get two members with one address without noticing.
				d.Message = "has the internal address of node " + l.Spec.Name
				d.Hint = "remove that node before you add this host: slipway delete node " + l.Spec.Name + " --forget"
			default:
				continue
			}
			list = append(list, d)
			ours = false
		}
		switch {
		case !ours:
		case was < 0:
			list = append(list, diag.Diagnostic{
				ID: idHostReturned, Severity: diag.Error, Host: h.Spec.Name,
				Message: "is no longer a node of this cluster, but still has its files from that time",
				Hint:    "reset the host first: slipway delete node --host " + h.Spec.Address,
			})
		default:
			was, is := module.InternalAddress(p.recorded.Spec.Hosts[was]), module.InternalAddress(h.Spec)
			if was != is && !p.returnsToMachine(h.Spec.Name) {
				list = append(list, diag.Diagnostic{
					ID: idAddressFixed, Severity: diag.Error, Host: h.Spec.Name,
					Message: fmt.Sprintf("the internal address of a node cannot change from %q to %q", was, is),
					Hint:    "write internalAddress: " + was,
				})
			}
		}
	}
	return list
}

// findLeavingHosts refuses to keep hosts whose removal has begun.
func (p hostChecks) findLeavingHosts(staying []facts.Host) (list diag.List) {
	name := p.env.Cluster.Name
	for _, h := range staying {
		if h.IsManagedFor(name) && isLeaving(h) {
			list = append(list, diag.Diagnostic{
				ID: idHostLeaves, Severity: diag.Error, Host: h.Spec.Name,
				Message: "its removal from the cluster has begun and cannot be rolled back, " +
					"because etcd continues without its member",
				Hint: "finish the removal before you add the host again: slipway delete node " + h.Spec.Name,
			})
		}
	}
	return list
}

// isLeaving reports whether the removal of a host has begun and its reset is not
// complete. The host has LeavesMark then. If the reset has already removed that mark,
// the host has a leader mark, but neither kubelet credentials nor an API server
// manifest.
func isLeaving(h facts.Host) bool {
	is := func(path string) bool { return slices.Contains(h.Facts.Present, path) }
	spoke := is(module.InitMark) || is(module.LeadMark)
	return is(module.LeavesMark) || spoke && !is(module.ClientCert) && !is(module.APIServerManifest)
}

// findLeader returns the leader control plane of an existing cluster, "" if there is none.
// This is the control plane on which the cluster was initialized, if it exists and
// is not leaving; otherwise the one that became leader later; otherwise the first
// control plane that holds the cluster.
func findLeader(cluster string, found []facts.Host) string {
	best, rank := "", 0
	for _, h := range found {
		if !spec.HasRole(h.Spec, v1alpha1.RoleControlPlane) || !h.IsManagedFor(cluster) || isLeaving(h) {
			continue
		}
		for i, mark := range []string{module.ClientCert, module.LeadMark, module.InitMark} {
			if i+1 > rank && slices.Contains(h.Facts.Present, mark) {
				best, rank = h.Spec.Name, i+1
			}
		}
	}
	return best
}

// lacksLeader reports whether the cluster exists, but no staying control plane that was
// queried holds it.
func (p *prepared) lacksLeader() bool {
	return savedstate.IsCreated(p.recorded) && p.kind.ChangesCluster() && p.env.Leader == ""
}

// refuseWithoutLeader refuses to continue if no control plane holds the cluster: kubeadm would
// initialize a new, empty cluster on one of them. It does not refuse if a control
// plane could not be queried, because that one may hold the cluster. Then the
// operation is refused because of that host, which it needs (see needs).
func (p hostChecks) refuseWithoutLeader(staying []facts.Host) diag.List {
	without, all := withRole(staying, v1alpha1.RoleControlPlane)
	if !all || !p.lacksLeader() {
		return nil
	}
	return diag.Refuse(idControlPlaneLost,
		"the cluster exists, but none of the remaining control planes holds it: "+strings.Join(without, ", "),
		"add the new control planes before you remove the old ones. If an address now leads to another machine, "+
			"correct the address or restore the machine")
}

// lacksEtcdMembers reports whether the cluster exists and has managed etcd, but no staying
// etcd host that was queried is a member. A host whose removal has begun does not
// count, because etcd may have removed its member already.
func (p *prepared) lacksEtcdMembers(staying []facts.Host) bool {
	asked := slices.ContainsFunc(staying, func(h facts.Host) bool { return spec.HasRole(h.Spec, v1alpha1.RoleEtcd) })
	member := func(h facts.Host) bool {
		return spec.HasRole(h.Spec, v1alpha1.RoleEtcd) && h.IsManagedFor(p.recorded.Name) && slices.Contains(h.Facts.Present, facts.EtcdJoined) &&
			!isLeaving(h)
	}
	return savedstate.IsCreated(p.recorded) && p.kind.ChangesCluster() && p.recorded.Spec.Etcd.Type == spec.EtcdManaged &&
		asked && !slices.ContainsFunc(staying, member)
}

// refuseWithoutEtcdData refuses to continue if no etcd host has the cluster's data: etcd would
// start empty, and the API servers would use it. It does not refuse if a host could
// not be queried, because that host may have the data. Then the operation is refused
// because of that host, which it needs (see needs).
func (p hostChecks) refuseWithoutEtcdData(staying []facts.Host) diag.List {
	without, all := withRole(staying, v1alpha1.RoleEtcd)
	if !all || !p.lacksEtcdMembers(staying) {
		return nil
	}
	return diag.Refuse(idEtcdLost, "the cluster exists, but none of the remaining etcd hosts has its data: "+strings.Join(without, ", "),
		"add the new etcd members before you remove the old ones. If an address now leads to another machine, correct "+
			"the address or restore the machine")
}

// withRole returns the names of the hosts with a role. all reports whether each of
// them was queried.
func withRole(hosts []facts.Host, role v1alpha1.Role) (of []string, all bool) {
	all = true
	for _, h := range hosts {
		if spec.HasRole(h.Spec, role) {
			of, all = append(of, h.Spec.Name), all && h.Facts != nil
		}
	}
	return of, all
}

// returnsToMachine reports whether a host shall again be the machine that it was, and no other
// machine has taken its place.
func (p hostChecks) returnsToMachine(name string) bool {
	was, is := spec.FindHost(p.placed, name), spec.FindHost(p.env.Cluster.Spec.Hosts, name)
	return was >= 0 && is >= 0 && history.ContainsAddressOf(p.placed[was:was+1], p.env.Cluster.Spec.Hosts[is])
}

// findLeftBehindHosts returns findings about hosts that an earlier attempt has changed and that
// the description no longer contains: nothing would reset them. In an existing cluster,
// a host whose name is missing is not reported, because it leaves the cluster in the
// usual way. If the previous machine still has its place, the finding is only a
// warning, so that you can return to that machine.
func (p hostChecks) findLeftBehindHosts() (list diag.List) {
	if p.recorded == nil {
		return nil
	}
	for _, was := range p.recorded.Spec.Hosts {
		if !history.ContainsAddressOf(p.touched, was) || history.ContainsAddressOf(p.env.Cluster.Spec.Hosts, was) {
			continue
		}
		d := diag.Diagnostic{
			ID: idHostLeft, Severity: diag.Error, Host: was.Name,
			Message: was.Address + " is no longer in the file, but has files of an earlier attempt",
			Hint:    "roll back that attempt first: slipway rollback " + p.recorded.Name,
		}
		if p.kind.ChangesCluster() {
			if spec.FindHost(p.env.Cluster.Spec.Hosts, was.Name) < 0 {
				continue
			}
			d.Message = was.Address + " is no longer " + was.Name + ", but has files of an earlier attempt"
			if spec.HasRole(was, v1alpha1.RoleControlPlane) {
				d.Message += ", perhaps the keys of the cluster's CAs"
			}
			d.Hint = "remove the old host first, then add the other host; " +
				"to remove it (with --forget if it is permanently lost): slipway delete node " + was.Name
			if p.returnsToMachine(was.Name) {
				d.Severity, d.Hint = diag.Warning, "reset the host after this operation: slipway delete node --host "+login(was)
			}
		}
		list = append(list, d)
	}
	return list
}

// login returns the user and address of a host in the form of --host.
func login(h v1alpha1.Host) string {
	if h.SSH.User == "" {
		return h.Address
	}
	return h.SSH.User + "@" + h.Address
}
