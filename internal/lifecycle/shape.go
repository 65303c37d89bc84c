package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/spec"
)

// reshaped returns the saved cluster with hosts added or removed, and sets their
// names in the request.
func (s *service) reshaped(r *Request, recorded *v1alpha1.Cluster) (wanted *v1alpha1.Cluster, err error) {
	if !created(recorded) {
		return nil, refused(idNotCreated, "cluster "+recorded.Name+" is not running yet: its creation has not finished",
			"finish the creation: slipway resume "+recorded.Name)
	}
	wanted = spec.Copy(recorded)
	switch {
	case takesOff(r.Kind):
		if r.returned, err = offRecord(recorded, r.Hosts); err == nil {
			r.Nodes, err = removed(wanted, r.Nodes)
		}
		for _, h := range r.returned {
			r.Nodes = append(r.Nodes, h.Name)
		}
		return wanted, err
	case r.Cluster == nil:
		if r.Nodes, err = spec.AddHosts(wanted, r.Hosts); err != nil {
			return nil, err
		}
		return wanted, servedByMode(wanted, r.Nodes)
	}
	r.Nodes = nil
	order := map[string]int{} // host order of the file, so that a later apply finds no change
	file := s.complete(r.Cluster, recorded)
	for i, h := range file.Spec.Hosts {
		if order[h.Name] = i + 1; find(recorded.Spec.Hosts, h.Name) >= 0 {
			continue
		}
		wanted.Spec.Hosts, r.Nodes = append(wanted.Spec.Hosts, h), append(r.Nodes, h.Name)
		if own := &wanted.Spec.Registry.Private; *own == nil && spec.HasRole(h, v1alpha1.RoleRegistry) {
			*own = file.Spec.Registry.Private
		}
	}
	slices.SortStableFunc(wanted.Spec.Hosts, func(a, b v1alpha1.Host) int { return cmp.Compare(order[a.Name], order[b.Name]) })
	if len(r.Nodes) == 0 {
		return nil, refused(idNoNewHost, "the file has no new host for cluster "+recorded.Name,
			"add the new hosts to the file, or use --host")
	}
	return wanted, servedByMode(wanted, r.Nodes)
}

// servedByMode refuses a second control plane if the nodes know only the first one.
// Adding hosts does not change the endpoint mode, whatever the file contains.
func servedByMode(wanted *v1alpha1.Cluster, added []string) error {
	if wanted.Spec.ControlPlaneEndpoint.Mode != v1alpha1.EndpointNone {
		return nil
	}
	control := spec.HostsWithRole(wanted, v1alpha1.RoleControlPlane)
	more := slices.DeleteFunc(slices.Clone(control), func(h v1alpha1.Host) bool { return !slices.Contains(added, h.Name) })
	if len(control) < 2 || len(more) == 0 {
		return nil
	}
	return refused(idEndpointMode,
		fmt.Sprintf("cluster %s has endpoint mode none, which allows one control plane: with %s it would have %d",
			wanted.Name, more[0].Name, len(control)),
		"set spec.controlPlaneEndpoint.mode to haproxy or external in the cluster file, and run: slipway apply -f FILE")
}

// offRecord returns the hosts of the command line, which are no longer in the saved
// cluster. A host without a name is named by its address.
func offRecord(recorded *v1alpha1.Cluster, flags []spec.HostFlag) (out []module.Leaving, err error) {
	for _, f := range flags {
		h := v1alpha1.Host{Name: cmp.Or(f.Name, f.Address), Address: f.Address, Roles: f.Roles}
		h.SSH.User, h.SSH.Port = f.User, f.Port
		known := slices.IndexFunc(recorded.Spec.Hosts, func(o v1alpha1.Host) bool { return o.Name == h.Name || o.Address == h.Address })
		if known >= 0 {
			name := recorded.Spec.Hosts[known].Name
			return nil, refused(idHostOnRecord, f.Address+" is host "+name+" of the cluster",
				"remove the host by its name: slipway delete node "+name)
		}
		if slices.ContainsFunc(out, func(o module.Leaving) bool { return o.Name == h.Name || o.Address == h.Address }) {
			return nil, refused(idHostTwice, f.Address+" is given twice", "remove one of the two")
		}
		out = append(out, module.Leaving{Host: h, Off: true})
	}
	return out, nil
}

func find(hosts []v1alpha1.Host, name string) int {
	return slices.IndexFunc(hosts, func(h v1alpha1.Host) bool { return h.Name == name })
}

// removed removes the selected hosts from a cluster description and returns their names.
func removed(c *v1alpha1.Cluster, selectors []string) (names []string, err error) {
	var problems diag.List
	for _, selector := range selectors {
		chosen, err := spec.Select(c, selector)
		var list diag.List
		if errors.As(err, &list) {
			problems = append(problems, list...)
		} else if err != nil {
			return nil, err
		}
		for _, h := range chosen {
			if !slices.Contains(names, h.Name) {
				names = append(names, h.Name)
			}
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	spec.TakeOff(c, names...)
	if len(spec.HostsWithRole(c, v1alpha1.RoleControlPlane)) == 0 {
		return nil, refused(idLastControlPlane, "without "+strings.Join(names, ", ")+" the cluster would have no control plane",
			"add another control plane first, or delete the cluster: slipway delete cluster "+c.Name)
	}
	return names, nil
}

// fileDiffers warns if the cluster file will differ from the saved cluster after this
// operation: the next apply of that file would undo the operation.
func (s *service) fileDiffers(r Request, wanted *v1alpha1.Cluster) diag.List {
	d := diag.Diagnostic{ID: idFileDiffers, Severity: diag.Warning}
	switch {
	case r.Kind != Add && !takesOff(r.Kind) || r.goesOn != nil:
		return nil
	case r.Cluster != nil:
		if sameButOrder(s.complete(r.Cluster, wanted), wanted) {
			return nil
		}
		d.Message = "the file has other changes besides new hosts; they are not applied"
		d.Hint = "show the changes: slipway plan -f " + cmp.Or(r.File, "FILE")
		return diag.List{d}
	}
	source, err := s.Store.Source(wanted.Name)
	if err != nil || source.Path == "" {
		return nil // there is no file to keep in step
	}
	if info, err := os.Stat(source.Path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := bounded.ReadFile(source.Path, bounded.Config)
	if err != nil {
		return nil
	}
	loaded, err := reader(wanted).Load(source.Path, text)
	if err != nil || loaded.Cluster.Name != wanted.Name || sameNames(loaded.Cluster, wanted) {
		return nil
	}
	d.Message = source.Path + " has other hosts: its next apply would undo this change"
	d.Hint = "change the hosts in the file in the same way"
	return diag.List{d}
}

// reader returns a loader for the cluster file of a saved cluster.
func reader(recorded *v1alpha1.Cluster) spec.Loader {
	return spec.Loader{Recorded: func(name string) *v1alpha1.Cluster {
		if recorded == nil || recorded.Name != name {
			return nil
		}
		return recorded
	}}
}

func sameNames(a, b *v1alpha1.Cluster) bool {
	return len(a.Spec.Hosts) == len(b.Spec.Hosts) &&
		!slices.ContainsFunc(a.Spec.Hosts, func(h v1alpha1.Host) bool { return find(b.Spec.Hosts, h.Name) < 0 })
}

// sameButOrder reports whether two descriptions are equal except for the order of hosts.
func sameButOrder(a, b *v1alpha1.Cluster) bool {
	a, b = spec.Copy(a), spec.Copy(b)
	for _, c := range []*v1alpha1.Cluster{a, b} {
		slices.SortFunc(c.Spec.Hosts, func(x, y v1alpha1.Host) int { return strings.Compare(x.Name, y.Name) })
	}
	return same(a, b)
}

// changesHosts reports whether operations of this kind change an existing cluster.
func changesHosts(k Kind) bool { return k == Apply || k == Add || takesOff(k) || changesVersion(k) }

// takesOff reports whether operations of this kind only remove hosts from a cluster.
func takesOff(k Kind) bool { return k == Remove || k == Lose }

// changesVersion reports whether operations of this kind change the Kubernetes
// version of nodes.
func changesVersion(k Kind) bool { return k == Upgrade || k == Revert }

// leaving returns the saved hosts that are no longer wanted.
func leaving(recorded, wanted *v1alpha1.Cluster) (out []module.Leaving) {
	for _, h := range recorded.Spec.Hosts {
		if find(wanted.Spec.Hosts, h.Name) < 0 {
			was := v1alpha1.NodeStatus{Name: h.Name, InternalIP: module.InternalAddress(h)}
			out = append(out, module.Leaving{Host: h, MachineID: machineID(recorded, was)})
		}
	}
	return out
}

// goesOn returns the target of an interrupted operation. The saved cluster contains
// leaving hosts until they have left; the target does not.
func goesOn(recorded, planned *v1alpha1.Cluster) *v1alpha1.Cluster {
	c := spec.Copy(recorded)
	c.Spec.Kubernetes.Version, c.Spec.Bundle = planned.Spec.Kubernetes.Version, planned.Spec.Bundle
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return find(planned.Spec.Hosts, h.Name) < 0 })
	return c
}

// takesPart reports whether a host has to be queried. To add or remove workers, only
// these workers and the control planes are queried: other hosts do not depend on
// them, and a host that is down must not block the change. A change of etcd hosts
// affects all etcd hosts; a change of a control plane or a registry affects all hosts.
func (p *prepared) takesPart(h v1alpha1.Host) bool {
	if aboutEtcd(p.request.Kind) {
		return p.concernsMaintenance(h)
	}
	if p.request.Kind == InitRegistry {
		return spec.HasRole(h, v1alpha1.RoleRegistry)
	}
	if p.request.Kind != Add && !takesOff(p.request.Kind) {
		return true
	}
	concerned := func(is v1alpha1.Host) bool { return slices.Contains(p.request.Nodes, is.Name) }
	changes := func(role v1alpha1.Role) bool {
		return slices.ContainsFunc(p.env.WithLeaving().Spec.Hosts, func(is v1alpha1.Host) bool { return concerned(is) && spec.HasRole(is, role) })
	}
	return concerned(h) || spec.HasRole(h, v1alpha1.RoleControlPlane) || changes(v1alpha1.RoleControlPlane) ||
		changes(v1alpha1.RoleRegistry) ||
		spec.HasRole(h, v1alpha1.RoleEtcd) && changes(v1alpha1.RoleEtcd)
}

// asked returns the description with only the hosts that have to be queried, staying
// hosts first, and the number of staying hosts.
func (p *prepared) asked() (c *v1alpha1.Cluster, staying int) {
	c = p.env.WithLeaving()
	all, stay := c.Spec.Hosts, len(p.env.Cluster.Spec.Hosts)
	c.Spec.Hosts = nil
	for i, h := range all {
		if p.takesPart(h) {
			c.Spec.Hosts = append(c.Spec.Hosts, h)
			if i < stay {
				staying++
			}
		}
	}
	return c, staying
}

// judge returns the findings against the operation on the queried hosts.
func (p *prepared) judge(c *v1alpha1.Cluster, found []facts.Host, staying int, o precheck.Options) diag.List {
	list := precheck.Findings(p.env.Cluster, found[:staying], o)
	if p.recorded != nil && changesHosts(p.request.Kind) {
		list = append(list, p.misplaced(found[:staying], found[staying:])...)
		list = append(list, p.halfLeft(found[:staying])...)
	}
	gone := spec.Copy(c)
	gone.Spec.Hosts = gone.Spec.Hosts[staying:]
	o.Operation = string(Delete)
	o.Ignore = nil
	for _, d := range precheck.Findings(gone, found[staying:], o) {
		at := slices.IndexFunc(p.env.Leaving, func(l module.Leaving) bool { return l.Name == d.Host })
		if at >= 0 && d.Severity == diag.Error {
			if p.request.Forget && isHere(p.env.Leaving[at].Host, d.ID) {
				d.Hint += notForgotten
			} else if p.request.Forget {
				if l := &p.env.Leaving[at]; !l.Gone {
					l.Gone, l.Why = true, d.Message
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

// misplaced returns findings about hosts that are not the machines that the
// description names.
func (p *prepared) misplaced(staying, leaving []facts.Host) (list diag.List) {
	for _, h := range staying {
		if h.Facts == nil {
			continue
		}
		ours := h.Ours(p.env.Cluster.Name) && precheck.HoldsCluster(h.Facts)
		was := find(p.recorded.Spec.Hosts, h.Spec.Name)
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
				d.Hint = "remove that node first: slipway delete node " + l.Spec.Name + " --forget; then add this host"
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
			if was != is && !p.takesBack(h.Spec.Name) {
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

// halfLeft refuses to keep hosts whose removal has begun.
func (p *prepared) halfLeft(staying []facts.Host) (list diag.List) {
	name := p.env.Cluster.Name
	for _, h := range staying {
		if h.Ours(name) && leaves(h) {
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

// leaves reports whether the removal of a host has begun and its reset is not
// complete. The host has LeavesMark then. If the reset has already removed that mark,
// the host has a leader mark, but neither kubelet credentials nor an API server
// manifest.
func leaves(h facts.Host) bool {
	is := func(path string) bool { return slices.Contains(h.Facts.Present, path) }
	spoke := is(module.InitMark) || is(module.LeadMark)
	return is(module.LeavesMark) || spoke && !is(module.ClientCert) && !is(module.APIServerManifest)
}

// leader returns the leader control plane of an existing cluster, "" if there is none.
// This is the control plane on which the cluster was initialized, if it exists and
// is not leaving; otherwise the one that became leader later; otherwise the first
// control plane that holds the cluster.
func leader(cluster string, found []facts.Host) string {
	best, rank := "", 0
	for _, h := range found {
		if !spec.HasRole(h.Spec, v1alpha1.RoleControlPlane) || !h.Ours(cluster) || leaves(h) {
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

// headless reports whether the cluster exists, but no staying control plane that was
// queried holds it.
func (p *prepared) headless() bool {
	return created(p.recorded) && changesHosts(p.request.Kind) && p.env.Leader == ""
}

// leaderless refuses to continue if no control plane holds the cluster: kubeadm would
// initialize a new, empty cluster on one of them. It does not refuse if a control
// plane could not be queried, because that one may hold the cluster. Then the
// operation is refused because of that host, which it needs (see needs).
func (p *prepared) leaderless(staying []facts.Host) diag.List {
	without, all := withRole(staying, v1alpha1.RoleControlPlane)
	if !all || !p.headless() {
		return nil
	}
	return refused(idControlPlaneLost, "the cluster exists, but none of the remaining control planes holds it: "+strings.Join(without, ", "),
		"add the new control planes before you remove the old ones. If an address now leads to another machine, "+
			"correct the address or restore the machine")
}

// memberless reports whether the cluster exists and has managed etcd, but no staying
// etcd host that was queried is a member. A host whose removal has begun does not
// count, because etcd may have removed its member already.
func (p *prepared) memberless(staying []facts.Host) bool {
	asked := slices.ContainsFunc(staying, func(h facts.Host) bool { return spec.HasRole(h.Spec, v1alpha1.RoleEtcd) })
	member := func(h facts.Host) bool {
		return spec.HasRole(h.Spec, v1alpha1.RoleEtcd) && h.Ours(p.recorded.Name) && slices.Contains(h.Facts.Present, facts.EtcdJoined) &&
			!leaves(h)
	}
	return created(p.recorded) && changesHosts(p.request.Kind) && p.recorded.Spec.Etcd.Type == spec.EtcdManaged &&
		asked && !slices.ContainsFunc(staying, member)
}

// dataless refuses to continue if no etcd host has the cluster's data: etcd would
// start empty, and the API servers would use it. It does not refuse if a host could
// not be queried, because that host may have the data. Then the operation is refused
// because of that host, which it needs (see needs).
func (p *prepared) dataless(staying []facts.Host) diag.List {
	without, all := withRole(staying, v1alpha1.RoleEtcd)
	if !all || !p.memberless(staying) {
		return nil
	}
	return refused(idEtcdLost, "the cluster exists, but none of the remaining etcd hosts has its data: "+strings.Join(without, ", "),
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

// losses describes, for users, the data that is lost with the leaving hosts.
func (p *prepared) losses() (out []string) {
	for _, l := range p.env.Leaving {
		if l.Gone {
			out = append(out, "host "+l.Name+" from the cluster and from the saved state; its files remain on the host")
			continue
		}
		out = append(out, "host "+l.Name+" and all cluster data on it")
	}
	return out
}

// Leaving returns the names of the hosts that leave a cluster that continues to exist.
func (p *prepared) Leaving() (out []string) {
	for _, l := range p.env.Leaving {
		out = append(out, l.Name)
	}
	return out
}

// left describes the outcome for each host that left.
func (p *prepared) left(res *Result) (out []string) {
	for _, l := range p.env.Leaving {
		if res.isUndone(l.Name) {
			continue
		}
		line := l.Name + " was removed from the cluster and reset"
		switch {
		case p.strikes:
			line = l.Name +
				" was removed from the saved state, and a new restore leaves it out; if its node is listed after that restore: slipway kubectl " + p.env.Cluster.Name + " -- delete node " +

				l.Name
		case l.Gone:
			line = l.Name + " was removed from the cluster; its files remain on the host, including its kubelet credentials"
		}
		out = append(out, line)
	}
	return out
}

// names returns the names of hosts.
func names(hosts []*engine.Host) (out []string) {
	for _, h := range hosts {
		out = append(out, h.Name)
	}
	return out
}
