package spec

import (
	"cmp"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// AddHosts adds hosts from the command line to a cluster that has its defaults, and
// returns the names of all of them. An existing host is returned but not added again, so
// that a command can be repeated; with another address it is replaced by another machine.
// The error is a diag.List of hosts that exist with another name or other roles, or that
// another flag also names.
func AddHosts(c *v1alpha1.Cluster, flags []HostFlag) (names []string, err error) {
	var problems diag.List
	given := map[string]v1alpha1.Host{} // by the names assigned to flags
	ssh := MergeSSH(c.Spec.SSH, v1alpha1.SSH{})
	for _, f := range flags {
		h := v1alpha1.Host{Name: f.Name, Address: CanonicalIP(f.Address), Roles: f.Roles}
		if f.User != "" && f.User != ssh.User {
			h.SSH.User = f.User
		}
		if f.Port != 0 && f.Port != ssh.Port {
			h.SSH.Port = f.Port
		}
		i := slices.IndexFunc(c.Spec.Hosts, func(o v1alpha1.Host) bool {
			return f.Name != "" && o.Name == f.Name || LoginKey(c, o) == LoginKey(c, h)
		})
		if i < 0 {
			h.Name = cmp.Or(f.Name, freeName(c.Spec.Hosts, flags, f.Roles))
			c.Spec.Hosts = append(c.Spec.Hosts, h)
			names, given[h.Name] = append(names, h.Name), h
			continue
		}
		is := &c.Spec.Hosts[i]
		if first, ok := given[is.Name]; ok {
			problems = append(problems, givenTwice(c, is.Name, first, h))
			continue
		}
		given[is.Name] = h
		if f.Name != "" && f.Name != is.Name || !sameRoles(*is, h) {
			problems = append(problems, hostKnown(c, *is, h))
			continue
		}
		replaceMachine(c, is, h)
		names = append(names, is.Name)
	}
	settings := c.DeepCopy().Spec.Kubernetes
	SetDefaults(c, DefaultOptions{})
	c.Spec.Kubernetes = settings // an added host does not change defaults that are newer than the saved state
	return names, problems.Err()
}

// hostKnown returns the error for a flag whose host exists with another name or other
// roles.
func hostKnown(c *v1alpha1.Cluster, is, flag v1alpha1.Host) diag.Diagnostic {
	d := diag.Diagnostic{
		ID: idHostKnown, Severity: diag.Error, Path: "--host",
		Hint: "remove the existing node first: slipway delete node " + is.Name,
	}
	what := flag.Address
	if flag.Name == is.Name && LoginKey(c, flag) != LoginKey(c, is) {
		what = "the name " + flag.Name
		d.Hint += ", or use a different name for the new host"
	}
	d.Message = what + " is already in the cluster: " + is.Name + " at " + LoginText(c, is) + " as " + rolesText(is)
	return d
}

// replaceMachine replaces the machine of a host: settings of the old machine only, such as its
// host key, are removed. The same machine is not changed.
func replaceMachine(c *v1alpha1.Cluster, is *v1alpha1.Host, by v1alpha1.Host) {
	by.SSH.Bastion = is.SSH.Bastion // its network has no other access
	if LoginKey(c, *is) == LoginKey(c, by) {
		return
	}
	is.Address, is.InternalAddress, is.Arch = by.Address, "", ""
	is.SSH.User, is.SSH.Port, is.SSH.HostKey = by.SSH.User, by.SSH.Port, ""
}

// givenTwice returns the error for two flags for one host: treating the second as a
// replacement would silently drop the first.
func givenTwice(c *v1alpha1.Cluster, name string, first, second v1alpha1.Host) diag.Diagnostic {
	d := diag.Diagnostic{ID: idDuplicateName, Severity: diag.Error, Path: "--host"}
	d.Message = LoginText(c, first) + " and " + LoginText(c, second) + " would have the same name: " + name
	d.Hint = "use a different name for one of them"
	if LoginKey(c, first) == LoginKey(c, second) {
		d.ID, d.Message, d.Hint = idDuplicateAddress, LoginText(c, second)+" is given more than once", "keep one of the two"
	}
	return d
}

// freeName returns the next free name for a host with these roles; names in flags are in
// use.
func freeName(taken []v1alpha1.Host, flags []HostFlag, roles []v1alpha1.Role) string {
	var all []HostFlag
	for _, h := range taken {
		all = append(all, HostFlag{Name: h.Name})
	}
	for _, f := range flags {
		if f.Name != "" {
			all = append(all, HostFlag{Name: f.Name})
		}
	}
	all = append(all, HostFlag{Roles: roles})
	NameHosts(all)
	return all[len(all)-1].Name
}

func rolesText(h v1alpha1.Host) string {
	text := ""
	for i, r := range h.Roles {
		if i > 0 {
			text += ", "
		}
		text += string(r)
	}
	return text
}
