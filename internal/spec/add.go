package spec

import (
	"cmp"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// AddHosts adds hosts from the command line to a cluster that has its
// defaults, and answers the names of all of them. One that stands there
// already is answered and not added again, so that a command can be repeated;
// with another address it is another machine in the same place. The error is a
// diag.List of those that stand there under other names or in other roles, and
// of those that another flag names as well.
func AddHosts(c *v1alpha1.Cluster, flags []HostFlag) (names []string, err error) {
	var problems diag.List
	given := map[string]v1alpha1.Host{} // by the names that flags came to
	ssh := MergeSSH(c.Spec.SSH, v1alpha1.SSH{})
	for _, f := range flags {
		h := v1alpha1.Host{Name: f.Name, Address: canonicalIP(f.Address), Roles: f.Roles}
		if f.User != "" && f.User != ssh.User {
			h.SSH.User = f.User
		}
		if f.Port != 0 && f.Port != ssh.Port {
			h.SSH.Port = f.Port
		}
		i := slices.IndexFunc(c.Spec.Hosts, func(o v1alpha1.Host) bool {
			return f.Name != "" && o.Name == f.Name || loginKey(c, o) == loginKey(c, h)
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
		replace(c, is, h)
		names = append(names, is.Name)
	}
	settings := Copy(c).Spec.Kubernetes
	Default(c, DefaultOptions{})
	c.Spec.Kubernetes = settings // an added host does not bring defaults that are newer than the record
	return names, problems.Err()
}

// hostKnown is of a flag for a host that stands there as something else.
func hostKnown(c *v1alpha1.Cluster, is, flag v1alpha1.Host) diag.Diagnostic {
	d := diag.Diagnostic{ID: idHostKnown, Severity: diag.Error, Path: "--host", Hint: "remove the existing node first: slipway delete node " + is.Name}
	what := flag.Address
	if flag.Name == is.Name && loginKey(c, flag) != loginKey(c, is) {
		what = "the name " + flag.Name
		d.Hint += "; or use a different name for the new host"
	}
	d.Message = what + " is already in the cluster: " + is.Name + " at " + loginText(c, is) + " as " + rolesText(is)
	return d
}

// replace has another machine in the place of one: what is known of that one
// alone, its host key too, goes with it. The same machine is left as it is.
func replace(c *v1alpha1.Cluster, is *v1alpha1.Host, by v1alpha1.Host) {
	by.SSH.Bastion = is.SSH.Bastion // there is no other way to its network
	if loginKey(c, *is) == loginKey(c, by) {
		return
	}
	is.Address, is.InternalAddress, is.Arch = by.Address, "", ""
	is.SSH.User, is.SSH.Port, is.SSH.HostKey = by.SSH.User, by.SSH.Port, ""
}

// givenTwice is of two flags for one host: taking the second for another
// machine in its place would drop the first without a word.
func givenTwice(c *v1alpha1.Cluster, name string, first, second v1alpha1.Host) diag.Diagnostic {
	d := diag.Diagnostic{ID: idDuplicateName, Severity: diag.Error, Path: "--host"}
	d.Message = loginText(c, first) + " and " + loginText(c, second) + " would have the same name: " + name
	d.Hint = "use a different name for one of them"
	if loginKey(c, first) == loginKey(c, second) {
		d.ID, d.Message, d.Hint = idDuplicateAddress, loginText(c, second)+" is given more than once", "keep one of the two"
	}
	return d
}

// freeName is the next name of those that hosts get by their roles; the names
// in flags are taken.
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
	nameHosts(all)
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
