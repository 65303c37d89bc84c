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

// reshaped is the recorded cluster with hosts more or less; the request gets
// the names of those.
func (s *service) reshaped(r *Request, recorded *v1alpha1.Cluster) (wanted *v1alpha1.Cluster, err error) {
	if !created(recorded) {
		return nil, refused(idNotCreated, "cluster "+recorded.Name+" has not come to run yet",
			"go on with: slipway resume "+recorded.Name+"; or change its file, and: slipway apply -f FILE")
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
	order := map[string]int{} // that of the file, so that applying it finds nothing to do
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
		return nil, refused(idNoNewHost, "the file names no host that is new to cluster "+recorded.Name,
			"write the new hosts into it, or name them with --host; other changes: slipway apply -f FILE")
	}
	return wanted, servedByMode(wanted, r.Nodes)
}

// servedByMode refuses a second control plane where nodes know the one alone:
// adding hosts changes nothing else, whatever the file says.
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
		fmt.Sprintf("cluster %s has endpoint mode none, in which its nodes know one control plane alone: with %s it would have %d", wanted.Name, more[0].Name, len(control)),
		"change the mode first: write mode: haproxy at spec.controlPlaneEndpoint of its file, or external with the address of a load balancer, and: slipway apply -f FILE")
}

// offRecord are hosts of the command line that are not on record any more, by
// their names or else their addresses.
func offRecord(recorded *v1alpha1.Cluster, flags []spec.HostFlag) (out []module.Leaving, err error) {
	for _, f := range flags {
		h := v1alpha1.Host{Name: cmp.Or(f.Name, f.Address), Address: f.Address, Roles: f.Roles}
		h.SSH.User, h.SSH.Port = f.User, f.Port
		known := slices.IndexFunc(recorded.Spec.Hosts, func(o v1alpha1.Host) bool { return o.Name == h.Name || o.Address == h.Address })
		if known >= 0 {
			name := recorded.Spec.Hosts[known].Name
			return nil, refused(idHostOnRecord, f.Address+" is on record as "+name, "take it off by its name: slipway delete node "+name)
		}
		if slices.ContainsFunc(out, func(o module.Leaving) bool { return o.Name == h.Name || o.Address == h.Address }) {
			return nil, refused(idHostTwice, f.Address+" is given twice", "keep one of them")
		}
		out = append(out, module.Leaving{Host: h, Off: true})
	}
	return out, nil
}

func find(hosts []v1alpha1.Host, name string) int {
	return slices.IndexFunc(hosts, func(h v1alpha1.Host) bool { return h.Name == name })
}

// removed takes the hosts that selectors name off a description.
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
		return nil, refused(idLastControlPlane, "without "+strings.Join(names, ", ")+" the cluster has no control plane",
			"add another control plane first; or delete the cluster: slipway delete cluster "+c.Name)
	}
	return names, nil
}

// fileDiffers warns of a file that says something else than the record will,
// when the hosts were named otherwise: its next apply would take that back.
func (s *service) fileDiffers(r Request, wanted *v1alpha1.Cluster) diag.List {
	d := diag.Diagnostic{ID: idFileDiffers, Severity: diag.Warning}
	switch {
	case r.Kind != Add && !takesOff(r.Kind) || r.goesOn != nil:
		return nil
	case r.Cluster != nil:
		if sameButOrder(s.complete(r.Cluster, wanted), wanted) {
			return nil
		}
		d.Message = "the file differs from the record in more than new hosts; the rest is not applied"
		d.Hint = "see it: slipway plan -f " + cmp.Or(r.File, "FILE")
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
	d.Message = source.Path + " says otherwise: its next apply would take this back"
	d.Hint = "write the same hosts into the file"
	return diag.List{d}
}

// reader reads the file of a cluster that is recorded.
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

// sameButOrder compares descriptions whatever the order of their hosts.
func sameButOrder(a, b *v1alpha1.Cluster) bool {
	a, b = spec.Copy(a), spec.Copy(b)
	for _, c := range []*v1alpha1.Cluster{a, b} {
		slices.SortFunc(c.Spec.Hosts, func(x, y v1alpha1.Host) int { return strings.Compare(x.Name, y.Name) })
	}
	return same(a, b)
}

// changesHosts says that an operation of this kind changes a cluster that exists.
func changesHosts(k Kind) bool { return k == Apply || k == Add || takesOff(k) || changesVersion(k) }

// takesOff says that an operation of this kind takes hosts off a cluster, and
// nothing else.
func takesOff(k Kind) bool { return k == Remove || k == Lose }

// changesVersion says that an operation of this kind takes nodes to another version
// of Kubernetes.
func changesVersion(k Kind) bool { return k == Upgrade || k == Revert }

// leaving are the hosts that are on record and not wanted any more.
func leaving(recorded, wanted *v1alpha1.Cluster) (out []module.Leaving) {
	for _, h := range recorded.Spec.Hosts {
		if find(wanted.Spec.Hosts, h.Name) < 0 {
			was := v1alpha1.NodeStatus{Name: h.Name, InternalIP: module.InternalAddress(h)}
			out = append(out, module.Leaving{Host: h, MachineID: machineID(recorded, was)})
		}
	}
	return out
}

// goesOn is what an operation that was cut off is to lead to: the record has
// the hosts that leave as well until they have left.
func goesOn(recorded, planned *v1alpha1.Cluster) *v1alpha1.Cluster {
	c := spec.Copy(recorded)
	c.Spec.Kubernetes.Version, c.Spec.Bundle = planned.Spec.Kubernetes.Version, planned.Spec.Bundle
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return find(planned.Spec.Hosts, h.Name) < 0 })
	return c
}

// takesPart says whether a host has to be asked. To add or remove workers,
// only they and the control planes have: what the others are does not depend
// on them, and one that is down is no reason to wait. A member of etcd on a host
// of its own concerns the other members as well, and a registry all nodes.
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
	return concerned(h) || spec.HasRole(h, v1alpha1.RoleControlPlane) || changes(v1alpha1.RoleControlPlane) || changes(v1alpha1.RoleRegistry) ||
		spec.HasRole(h, v1alpha1.RoleEtcd) && changes(v1alpha1.RoleEtcd)
}

// asked is the description with the hosts alone that have to be asked: those
// that stay first.
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

// judge is what speaks against the operation on the hosts that were asked.
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
				d.Hint = "its node is deleted; what is on the host stays there"
			} else {
				d.Hint = cmp.Or(d.Hint, "mend it") + "; or, if it is gone for good, leave on it what is there: --forget"
			}
		}
		list = append(list, d)
	}
	return list
}

// misplaced are hosts that are not what the description takes them for.
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
				Message: "is the machine that the cluster knows as " + l.Spec.Name,
				Hint:    "take it off by that name first: slipway delete node " + l.Spec.Name + "; then add it",
			}
			switch {
			case l.Facts != nil && l.Facts.MachineID == h.Facts.MachineID && h.Facts.MachineID != "":
			case module.InternalAddress(l.Spec) == module.InternalAddress(h.Spec):
				// etcd would have two members at one address, and know no better.
				d.Message = "has the address among the nodes that the cluster knows as that of " + l.Spec.Name
				d.Hint = "take that one off first: slipway delete node " + l.Spec.Name + " --forget; then add this one"
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
				Message: "still has on it what it had as a node of this cluster, and is none any more",
				Hint:    "put it back as it was first: slipway delete node --host " + h.Spec.Address,
			})
		default:
			was, is := module.InternalAddress(p.recorded.Spec.Hosts[was]), module.InternalAddress(h.Spec)
			if was != is && !p.takesBack(h.Spec.Name) {
				list = append(list, diag.Diagnostic{
					ID: idAddressFixed, Severity: diag.Error, Host: h.Spec.Name,
					Message: fmt.Sprintf("its address among the nodes cannot change while it is in the cluster: it is %q, and would be %q", was, is),
					Hint:    "write internalAddress: " + was + "; or take it off and add it with the new one",
				})
			}
		}
	}
	return list
}

// halfLeft refuses to keep hosts that have begun to leave.
func (p *prepared) halfLeft(staying []facts.Host) (list diag.List) {
	name := p.env.Cluster.Name
	for _, h := range staying {
		if h.Ours(name) && leaves(h) {
			list = append(list, diag.Diagnostic{
				ID: idHostLeaves, Severity: diag.Error, Host: h.Spec.Name,
				Message: "has begun to leave the cluster, whose etcd goes on without it: that cannot be taken back",
				Hint:    "finish it: slipway delete node " + h.Spec.Name + " (or, as long as that is the latest operation: slipway resume " + name + "); then add the host again; or go on with the other hosts: --ignore-errors",
			})
		}
	}
	return list
}

// leaves says that a host has begun to leave, and is not put back yet: it says
// so itself, or, when what says so was put back, it has neither credentials nor
// an API server, and still what marks the one that speaks for the cluster.
func leaves(h facts.Host) bool {
	is := func(path string) bool { return slices.Contains(h.Facts.Present, path) }
	spoke := is(module.InitMark) || is(module.LeadMark)
	return is(module.LeavesMark) || spoke && !is(module.ClientCert) && !is(module.APIServerManifest)
}

// leader is the control plane that speaks for a cluster that exists: the one on
// which it began, as long as it is there and does not leave, else the one that
// has done so since, else the first that has it.
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

// headless says that a cluster exists, and no control plane of those that were
// asked and stay holds it.
func (p *prepared) headless() bool {
	return created(p.recorded) && changesHosts(p.request.Kind) && p.env.Leader == ""
}

// leaderless refuses control planes of which none holds the cluster: on one of
// them it would begin anew. One that could not be asked may hold it; then that
// is the reason, and there is no going on without it.
func (p *prepared) leaderless(staying []facts.Host) diag.List {
	without, all := withRole(staying, v1alpha1.RoleControlPlane)
	if !all || !p.headless() {
		return nil
	}
	return refused(idControlPlaneLost, "the cluster exists, and no control plane that stays holds it: "+strings.Join(without, ", "),
		"to exchange control planes, add the new ones beside those that hold the cluster first; if an address leads to another machine now, correct it, or restore the machine")
}

// memberless says that a cluster exists whose etcd is a service, and that none
// of the hosts for it that were asked and stay is a member: one that has begun to
// leave may be none any more.
func (p *prepared) memberless(staying []facts.Host) bool {
	asked := slices.ContainsFunc(staying, func(h facts.Host) bool { return spec.HasRole(h.Spec, v1alpha1.RoleEtcd) })
	member := func(h facts.Host) bool {
		return spec.HasRole(h.Spec, v1alpha1.RoleEtcd) && h.Ours(p.recorded.Name) && slices.Contains(h.Facts.Present, facts.EtcdJoined) && !leaves(h)
	}
	return created(p.recorded) && changesHosts(p.request.Kind) && p.recorded.Spec.Etcd.Type == spec.EtcdManaged &&
		asked && !slices.ContainsFunc(staying, member)
}

// dataless refuses hosts for etcd of which none has the cluster's data: it would
// begin anew, empty, and API servers would go by it. One that could not be
// asked may have them.
func (p *prepared) dataless(staying []facts.Host) diag.List {
	without, all := withRole(staying, v1alpha1.RoleEtcd)
	if !all || !p.memberless(staying) {
		return nil
	}
	return refused(idEtcdLost, "the cluster exists, and no host for etcd that stays has its data: "+strings.Join(without, ", "),
		"to exchange members, add the new ones beside those that hold the data first; if an address leads to another machine now, correct it, or restore the machine")
}

// withRole are the names of the hosts with a role; all says that each was asked.
func withRole(hosts []facts.Host, role v1alpha1.Role) (of []string, all bool) {
	all = true
	for _, h := range hosts {
		if spec.HasRole(h.Spec, role) {
			of, all = append(of, h.Spec.Name), all && h.Facts != nil
		}
	}
	return of, all
}

// losses are what is lost with the hosts that leave, for people.
func (p *prepared) losses() (out []string) {
	for _, l := range p.env.Leaving {
		if l.Gone {
			out = append(out, "host "+l.Name+" from the cluster and its records; what is on it stays there")
			continue
		}
		out = append(out, "host "+l.Name+" and all that the cluster keeps on it")
	}
	return out
}

// Leaving are the hosts that a cluster loses which goes on without them.
func (p *prepared) Leaving() (out []string) {
	for _, l := range p.env.Leaving {
		out = append(out, l.Name)
	}
	return out
}

// left says what became of the hosts that left.
func (p *prepared) left(res *Result) (out []string) {
	for _, l := range p.env.Leaving {
		if res.isUndone(l.Name) {
			continue
		}
		line := l.Name + " has left the cluster, and is as it was before"
		switch {
		case p.strikes:
			line = l.Name + " is off the records, and its data are left out when the restore is begun anew; if its node is in the list then: slipway kubectl " + p.env.Cluster.Name + " -- delete node " + l.Name
		case l.Gone:
			line = l.Name + " has left the cluster; what is on it stays there, its kubelet's credentials too"
		}
		out = append(out, line)
	}
	return out
}

// names are those of hosts.
func names(hosts []*engine.Host) (out []string) {
	for _, h := range hosts {
		out = append(out, h.Name)
	}
	return out
}
