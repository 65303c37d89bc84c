package spec

import (
	"cmp"
	"slices"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// AddHosts adds hosts from the command line to a cluster that has its
// defaults, and answers the names of all of them. One that stands there
// already is answered and not added again, so that a command can be repeated;
// with another address it is another machine in the same place. The error is a
// diag.List of those that stand there under other names or in other roles.
func AddHosts(c *v1alpha1.Cluster, flags []HostFlag) (names []string, err error) {
	var problems diag.List
	flags = slices.Clone(flags)
	ssh := MergeSSH(c.Spec.SSH, v1alpha1.SSH{})
	for _, f := range flags {
		h := v1alpha1.Host{Name: f.Name, Address: f.Address, Roles: f.Roles}
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
			h.Name = cmp.Or(f.Name, freeName(c.Spec.Hosts, f.Roles))
			c.Spec.Hosts = append(c.Spec.Hosts, h)
			names = append(names, h.Name)
			continue
		}
		is := &c.Spec.Hosts[i]
		if f.Name != "" && f.Name != is.Name || !sameRoles(*is, h) {
			problems = append(problems, diag.Diagnostic{
				ID: idHostKnown, Severity: diag.Error, Path: "--host",
				Message: strconv.Quote(f.Address) + " is not new: the cluster has " + is.Name + " at " + loginText(c, *is) + " as " + rolesText(*is),
				Hint:    "take that one off first: slipway delete node " + is.Name + "; or give the new host another name",
			})
			continue
		}
		if loginKey(c, *is) != loginKey(c, h) { // another machine in its place
			is.Address, is.InternalAddress, is.SSH.User, is.SSH.Port = h.Address, "", h.SSH.User, h.SSH.Port
		}
		names = append(names, is.Name)
	}
	Default(c, DefaultOptions{})
	return names, problems.Err()
}

// freeName is the next name of those that hosts get by their roles.
func freeName(taken []v1alpha1.Host, roles []v1alpha1.Role) string {
	flags := make([]HostFlag, len(taken), len(taken)+1)
	for i, h := range taken {
		flags[i] = HostFlag{Name: h.Name}
	}
	flags = append(flags, HostFlag{Roles: roles})
	nameHosts(flags)
	return flags[len(taken)].Name
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
