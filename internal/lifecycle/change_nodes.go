package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/etcdrescue"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostselector"
)

// An AddNodesRequest asks to add hosts to a cluster: the given Hosts, or with the cluster of
// a file its new hosts.
type AddNodesRequest struct {
	Subject
	Options
	Hosts []spec.HostFlag
}

func (r AddNodesRequest) shared() sharedRequest {
	return sharedRequest{Subject: r.Subject, Options: r.Options}
}

func (r AddNodesRequest) behaviour() behaviour { return addNodes(r.Hosts) }

// addNodes adds hosts to a cluster.
func addNodes(hosts []spec.HostFlag) behaviour {
	b := changeNodes()
	b.wanted = func(_ context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
		wanted, err := p.withAdded(hosts)
		return wanted, false, err
	}
	b.summary = func(_ context.Context, p *prepared, res *Result) []string {
		added := slices.DeleteFunc(slices.Clone(p.nodes), res.isUndone)
		if len(added) == 0 {
			return nil
		}
		return []string{count(len(added), "node") + " ready: " + strings.Join(added, ", ")}
	}
	return b
}

// A DeleteNodesRequest asks to remove hosts from a saved cluster.
type DeleteNodesRequest struct {
	Name string
	Options
	// Nodes select the hosts to remove. Hosts are hosts to reset that are no longer in the
	// saved cluster but still have its files.
	Nodes []string
	Hosts []spec.HostFlag
	// Removal configures how the hosts leave the cluster.
	Removal Removal
	// Forget force-removes the hosts if they are unreachable or belong to another cluster.
	Forget bool
}

func (r DeleteNodesRequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options, removal: r.Removal, forget: r.Forget}
}

func (r DeleteNodesRequest) behaviour() behaviour { return deleteNodes(r) }

// deleteNodes removes hosts from a cluster.
func deleteNodes(r DeleteNodesRequest) behaviour {
	b := changeNodes()
	b.wanted = r.withoutRemoved
	b.instead = r.forgetInstead
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		parts.PruneBundles = true
		made, _, err := p.applyPipeline(ctx, parts)
		return made, err
	}
	b.summary = func(_ context.Context, p *prepared, res *Result) []string {
		return p.describeLeftHosts(res, p.describeLeftHost)
	} // empty if all had left before
	return b
}

// changeNodes has what addNodes and deleteNodes share. Adding a host does not change the
// existing ones.
func changeNodes() behaviour {
	b := usual()
	b.begin = func(ctx context.Context, p *prepared) (err error) { // other kinds query all hosts anyway
		p.queriesAll, err = p.svc.past.HasUnfinishedEndpointChange(ctx, p.recorded)
		return err
	}
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		made, _, err := p.applyPipeline(ctx, parts)
		return made, err
	}
	b.rollBack = func(ctx context.Context, p *prepared, o *v1alpha1.Operation) (err error) {
		p.nodes = o.Spec.Parameters.Nodes
		p.target, err = p.asBefore(ctx, o)
		return err
	}
	return b
}

// withAdded returns the saved cluster with hosts added, and sets their names. Without a
// file, it adds the given hosts.
func (p *prepared) withAdded(hosts []spec.HostFlag) (_ *v1alpha1.Cluster, err error) {
	r, recorded := &p.request, p.recorded
	if err := unrecorded(recorded); err != nil {
		return nil, err
	}
	wanted := recorded.DeepCopy()
	if r.Cluster == nil {
		if p.nodes, err = spec.AddHosts(wanted, hosts); err != nil {
			return nil, err
		}
		return wanted, servedByMode(wanted, p.nodes)
	}
	order := map[string]int{} // host order of the file, so that a later apply finds no change
	file := p.svc.complete(r.Cluster, recorded)
	for i, h := range file.Spec.Hosts {
		if order[h.Name] = i + 1; spec.FindHost(recorded.Spec.Hosts, h.Name) >= 0 {
			continue
		}
		wanted.Spec.Hosts, p.nodes = append(wanted.Spec.Hosts, h), append(p.nodes, h.Name)
		if own := &wanted.Spec.Registry.Private; *own == nil && spec.HasRole(h, v1alpha1.RoleRegistry) {
			*own = file.Spec.Registry.Private
		}
	}
	slices.SortStableFunc(wanted.Spec.Hosts, func(a, b v1alpha1.Host) int { return cmp.Compare(order[a.Name], order[b.Name]) })
	if len(p.nodes) == 0 {
		return nil, diag.Refuse(idNoNewHost, "the file has no new host for cluster "+recorded.Name,
			"add the new hosts to the file, or use --host")
	}
	return wanted, servedByMode(wanted, p.nodes)
}

// withoutRemoved returns the saved cluster with hosts removed, and sets their names.
func (r DeleteNodesRequest) withoutRemoved(_ context.Context, p *prepared) (_ *v1alpha1.Cluster, _ bool, err error) {
	recorded := p.recorded
	if err := unrecorded(recorded); err != nil {
		return nil, false, err
	}
	wanted := recorded.DeepCopy()
	if p.returned, err = offRecord(recorded, r.Hosts); err == nil {
		p.nodes, err = removed(wanted, r.Nodes)
	}
	for _, h := range p.returned {
		p.nodes = append(p.nodes, h.Name)
	}
	return wanted, false, err
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
	return diag.Refuse(idEndpointMode,
		fmt.Sprintf("cluster %s has endpoint mode none, which allows one control plane: with %s it would have %d",
			wanted.Name, more[0].Name, len(control)),
		"set spec.controlPlaneEndpoint.mode to haproxy or external in the cluster file, and run: slipway apply -f FILE")
}

// offRecord returns the hosts of the command line, which are no longer in the saved
// cluster. A host without a name is named by its address.
func offRecord(recorded *v1alpha1.Cluster, flags []spec.HostFlag) (out []module.LeavingHost, err error) {
	for _, f := range flags {
		h := v1alpha1.Host{Name: cmp.Or(f.Name, f.Address), Address: f.Address, Roles: f.Roles}
		h.SSH.User, h.SSH.Port = f.User, f.Port
		known := slices.IndexFunc(recorded.Spec.Hosts, func(o v1alpha1.Host) bool { return o.Name == h.Name || o.Address == h.Address })
		if known >= 0 {
			name := recorded.Spec.Hosts[known].Name
			return nil, diag.Refuse(idHostOnRecord, f.Address+" is host "+name+" of the cluster",
				"remove the host by its name: slipway delete node "+name)
		}
		if slices.ContainsFunc(out, func(o module.LeavingHost) bool { return o.Name == h.Name || o.Address == h.Address }) {
			return nil, diag.Refuse(idHostTwice, f.Address+" is given twice", "remove one of the two")
		}
		out = append(out, module.LeavingHost{Host: h, IsRemovedFromState: true})
	}
	return out, nil
}

// selectNames returns the names of the selected hosts. It reports all selectors without a
// host at once.
func selectNames(c *v1alpha1.Cluster, selectors []string) (names []string, err error) {
	var problems diag.List
	for _, selector := range selectors {
		chosen, err := hostselector.SelectHosts(c, selector)
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
	return names, problems.Err()
}

// removed removes the selected hosts from a cluster description and returns their names.
func removed(c *v1alpha1.Cluster, selectors []string) (names []string, err error) {
	if names, err = selectNames(c, selectors); err != nil {
		return nil, err
	}
	spec.RemoveHosts(c, names...)
	if len(spec.HostsWithRole(c, v1alpha1.RoleControlPlane)) == 0 {
		return nil, diag.Refuse(idLastControlPlane, "without "+strings.Join(names, ", ")+" the cluster would have no control plane",
			"add another control plane first, or delete the cluster: slipway delete cluster "+c.Name)
	}
	return names, nil
}

// fileDiffers warns if the cluster file will differ from the saved cluster after this
// operation: the next apply of that file would undo the operation.
func (p *prepared) fileDiffers(ctx context.Context, wanted *v1alpha1.Cluster) diag.List {
	s, r := p.svc, &p.request
	d := diag.Diagnostic{ID: idFileDiffers, Severity: diag.Warning}
	switch {
	case !p.kind.ChangesNodes() || p.target != nil:
		return nil
	case r.Cluster != nil:
		if savedstate.HaveSameSpecInAnyOrder(s.complete(r.Cluster, wanted), wanted) {
			return nil
		}
		d.Message = "the file has other changes besides new hosts; they are not applied"
		d.Hint = "show the changes: slipway plan -f " + cmp.Or(r.File, "FILE")
		return diag.List{d}
	}
	source, err := s.Records.Clusters().LoadSource(ctx, wanted.Name)
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
		!slices.ContainsFunc(a.Spec.Hosts, func(h v1alpha1.Host) bool { return spec.FindHost(b.Spec.Hosts, h.Name) < 0 })
}

// leaving returns the saved hosts that are no longer wanted.
func (p *prepared) leaving(wanted *v1alpha1.Cluster) (out []module.LeavingHost) {
	for _, h := range p.recorded.Spec.Hosts {
		if spec.FindHost(wanted.Spec.Hosts, h.Name) < 0 {
			was := v1alpha1.NodeStatus{Name: h.Name, InternalIP: module.InternalAddress(h)}
			out = append(out, module.LeavingHost{Host: h, MachineID: p.machineID(was)})
		}
	}
	return out
}

// resumeTarget returns the target of an interrupted operation. The saved cluster contains
// leaving hosts until they have left; the target does not.
func resumeTarget(recorded, planned *v1alpha1.Cluster) *v1alpha1.Cluster {
	c := recorded.DeepCopy()
	c.Spec.Kubernetes.Version, c.Spec.Bundle = planned.Spec.Kubernetes.Version, planned.Spec.Bundle
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return spec.FindHost(planned.Spec.Hosts, h.Name) < 0 })
	return c
}

// takesPart reports whether a host has to be queried. To add or remove workers, only
// these workers and the control planes are queried: other hosts do not depend on
// them, and a host that is down must not block the change. A change of etcd hosts
// affects all etcd hosts; a change of a control plane or a registry affects all hosts.
func (p *prepared) takesPart(h v1alpha1.Host) bool {
	switch p.kind.Hosts() {
	case operation.NoHosts:
		return false
	case operation.RegistryHost:
		return spec.HasRole(h, v1alpha1.RoleRegistry)
	case operation.EtcdHosts:
		return etcdrescue.HasPart(p.env.Cluster, h)
	case operation.NamedHosts:
		return slices.Contains(p.nodes, h.Name) || etcdrescue.HasPart(p.env.Cluster, h)
	case operation.RemainingHosts:
		return !p.isLost(h.Name)
	case operation.ChangedHosts:
		return p.queriesAll || p.concerns(h)
	}
	return true
}

// concerns reports whether adding or removing hosts concerns a host.
func (p *prepared) concerns(h v1alpha1.Host) bool {
	concerned := func(is v1alpha1.Host) bool { return slices.Contains(p.nodes, is.Name) }
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

// losses describes, for users, the data that is lost with the leaving hosts.
func (p *prepared) losses() (out []string) {
	for _, l := range p.env.Leaving {
		if l.IsLost {
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

// describeLeftHosts returns a line for each host that left.
func (p *prepared) describeLeftHosts(res *Result, line func(module.LeavingHost) string) (out []string) {
	for _, l := range p.env.Leaving {
		if !res.isUndone(l.Name) {
			out = append(out, line(l))
		}
	}
	return out
}

// describeLeftHost describes the outcome for a host that left.
func (p *prepared) describeLeftHost(l module.LeavingHost) string {
	if l.IsLost {
		return l.Name + " was removed from the cluster; its files remain on the host, including its kubelet credentials"
	}
	return l.Name + " was removed from the cluster and reset"
}

// names returns the names of hosts.
func names(hosts []*engine.Host) (out []string) {
	for _, h := range hosts {
		out = append(out, h.Name)
	}
	return out
}
