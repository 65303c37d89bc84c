package kubekey

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec"
)

// The groups of KubeKey.
const (
	groupEtcd         = "etcd"
	groupMaster       = "master"
	groupControlPlane = "control-plane"
	groupWorker       = "worker"
	groupRegistry     = "registry"
)

// workerLabel is the label with which kubectl shows the role of a worker.
const workerLabel = "node-role.kubernetes.io/worker"

// attemptEtcd is the attempt to set up etcd as KubeKey does.
const attemptEtcd = "etcd"

// A member is a host in a group, and the item that names it.
type member struct{ role, from string }

var rangeSyntax = regexp.MustCompile(`^(.*?)\[(\d{1,9}):(\d{1,9})\]`)

// rolesByHost returns the roles of each host by its name, in Slipway's order of roles.
func (c *conversion) rolesByHost() map[string][]member {
	index := map[string]bool{}
	var names []string
	for _, h := range c.in.Spec.Hosts {
		index[h.Name] = true
		names = append(names, h.Name)
	}
	known := []string{groupControlPlane, groupMaster, groupWorker, groupEtcd, groupRegistry}
	roles := map[string][]member{}
	for _, group := range slices.Concat(known, c.unknownGroups(known)) {
		for i, item := range c.in.Spec.RoleGroups[group] {
			from := fmt.Sprintf("spec.roleGroups[%s][%d]", group, i)
			for _, name := range c.expandGroupItem(item, from, index) {
				if !index[name] {
					c.refuse(idUnknownHost, from, "there is no host "+strconv.Quote(name), spec.SuggestWord(name, names))
					break // a range of a million names has as many unknown hosts
				}
				roles[name] = append(roles[name], member{group, from})
			}
		}
	}
	return roles
}

// unknownGroups returns groups that KubeKey does not use.
func (c *conversion) unknownGroups(known []string) []string {
	var out []string
	for group := range c.in.Spec.RoleGroups {
		if !slices.Contains(known, group) {
			out = append(out, group)
		}
	}
	slices.Sort(out)
	for _, group := range out {
		c.reportDropped("spec.roleGroups["+group+"]", "there is no role "+group+"; KubeKey ignores it as well")
	}
	return out
}

// expandGroupItem returns the names of a group item: node[2:4] is node2, node3, node4. It stops
// after the first unknown host.
func (c *conversion) expandGroupItem(item, from string, index map[string]bool) []string {
	if !strings.Contains(item, "[") || !strings.Contains(item, "]") || !strings.Contains(item, ":") {
		return []string{item}
	}
	m := rangeSyntax.FindStringSubmatch(item)
	if m == nil {
		c.refuse(idInvalidSelector, from, strconv.Quote(item)+" is not a range of names", "write a range as node[2:10]")
		return nil
	}
	first, _ := strconv.Atoi(m[2]) // digits by the expression
	last, _ := strconv.Atoi(m[3])
	if first > last {
		c.refuse(idInvalidSelector, from, strconv.Quote(item)+" is empty: its end is before its start", "write a range as node[2:10]")
	}
	var names []string
	for i := first; i <= last; i++ {
		name := m[1] + strconv.Itoa(i)
		names = append(names, name)
		if !index[name] {
			break
		}
	}
	return names
}

// slipwayRoles returns the Slipway roles of a host, and their origins.
func slipwayRoles(members []member) (roles []v1alpha1.Role, from []string) {
	words := map[string]v1alpha1.Role{
		groupControlPlane: v1alpha1.RoleControlPlane, groupMaster: v1alpha1.RoleControlPlane,
		groupWorker: v1alpha1.RoleWorker, groupEtcd: v1alpha1.RoleEtcd, groupRegistry: v1alpha1.RoleRegistry,
	}
	for _, m := range members {
		role, ok := words[m.role]
		if ok && !slices.Contains(roles, role) {
			roles, from = append(roles, role), append(from, m.from)
		}
	}
	return roles, from
}

// convertHosts converts the hosts with a role.
func (c *conversion) convertHosts() {
	groups := c.rolesByHost()
	dropEtcd := c.dropEtcd(groups)
	for i, h := range c.in.Spec.Hosts {
		from := fmt.Sprintf("spec.hosts[%d]", i)
		roles, origins := slipwayRoles(groups[h.Name])
		if len(roles) == 0 {
			c.reportDropped(from, fmt.Sprintf("host %s is not in any group: Slipway omits the host, as KubeKey does", h.Name))
			continue
		}
		to := fmt.Sprintf("spec.hosts[%d]", len(c.out.Spec.Hosts))
		roles, origins = c.removeRole(v1alpha1.RoleEtcd, dropEtcd, roles, origins)
		registry := attempt{
			name: "registry", from: "spec.roleGroups[registry]", near: "spec.hosts", chosen: true,
			instead: "hosts of the group registry lose that role",
		}
		if r := slices.Index(roles, v1alpha1.RoleRegistry); r >= 0 {
			keep := c.tryValue(registry, fmt.Sprintf("%s.roles[%d]", to, r))
			roles, origins = c.removeRole(v1alpha1.RoleRegistry, !keep, roles, origins)
		}
		if len(roles) == 0 {
			continue // the reason was reported
		}
		c.recordOrigin(to, from)
		c.recordOrigin(to+".roles", origins[0])
		for r := range roles {
			o := origin{to: fmt.Sprintf("%s.roles[%d]", to, r), from: origins[r]}
			if roles[r] == v1alpha1.RoleEtcd {
				o.attempt = attemptEtcd
			}
			c.origins = append(c.origins, o)
		}
		out := v1alpha1.Host{Name: h.Name, Roles: roles, Arch: h.Arch}
		c.convertAddresses(&out, h, from, to)
		c.convertLabels(&out, h, from, to)
		c.out.Spec.Hosts = append(c.out.Spec.Hosts, out)
		for _, name := range []string{"name", "arch"} {
			c.recordOrigin(to+"."+name, from+"."+name)
		}
	}
	c.recordOrigin("spec.hosts", "spec.hosts")
}

// removeRole removes a role.
func (c *conversion) removeRole(role v1alpha1.Role, drop bool, roles []v1alpha1.Role, from []string) ([]v1alpha1.Role, []string) {
	if i := slices.Index(roles, role); drop && i >= 0 {
		return slices.Delete(roles, i, i+1), slices.Delete(from, i, i+1)
	}
	return roles, from
}

// convertAddresses sets each of the two addresses from the other, as KubeKey does.
func (c *conversion) convertAddresses(out *v1alpha1.Host, h host, from, to string) {
	internal, second, pair := strings.Cut(h.InternalAddress, ",")
	if pair {
		c.reportDropped(from+".internalAddress", "the second address, "+second+", is not needed: Slipway finds it on the host")
	}
	out.Address, out.InternalAddress = h.Address, internal
	c.recordOrigin(to+".address", from+".address")
	c.recordOrigin(to+".internalAddress", from+".internalAddress")
	if out.Address == "" {
		out.Address = internal
		c.recordOrigin(to+".address", from+".internalAddress")
	}
	if out.InternalAddress == out.Address {
		out.InternalAddress = "" // the default
		c.recordOrigin(to+".internalAddress", from+".address")
	}
}

// convertLabels are tried one by one: KubeKey also sets labels that a kubelet is not allowed to
// set on itself.
func (c *conversion) convertLabels(out *v1alpha1.Host, h host, from, to string) {
	for _, key := range sortedKeys(h.Labels) {
		if key == workerLabel && slices.Contains(out.Roles, v1alpha1.RoleWorker) {
			continue // Slipway sets it on every worker
		}
		a := attempt{
			name: "label " + h.Name + " " + key, from: from + ".labels[" + key + "]", near: to + ".labels", chosen: true,
			instead: "the label " + key + " is left out",
		}
		if !c.tryValue(a, to+".labels["+key+"]") {
			continue
		}
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[key] = h.Labels[key]
	}
}

// etcdApart reports whether the etcd hosts, if there are any, are not the control planes.
func (c *conversion) etcdApart(groups map[string][]member) bool {
	if len(c.in.Spec.RoleGroups[groupEtcd]) == 0 {
		return false
	}
	for _, members := range groups {
		roles, _ := slipwayRoles(members)
		if slices.Contains(roles, v1alpha1.RoleEtcd) != slices.Contains(roles, v1alpha1.RoleControlPlane) {
			return true
		}
	}
	return false
}

// dropEtcd chooses the etcd type, and reports whether the role etcd has no meaning with
// it.
func (c *conversion) dropEtcd(groups map[string][]member) bool {
	from, apart := "spec.etcd.type", c.etcdApart(groups)
	switch t := c.in.Spec.Etcd.Type; t {
	case "kubeadm":
		if apart {
			c.reportDropped("spec.roleGroups[etcd]", "etcd of type kubeadm runs on the control planes; KubeKey ignores this group as well")
		}
		return true
	case "external":
		c.out.Spec.Etcd.Type = "external"
		c.recordOrigin("spec.etcd.type", from)
		return true
	case "", "kubekey":
		if len(c.in.Spec.RoleGroups[groupEtcd]) == 0 {
			return true // KubeKey rejects it; Slipway needs no separate hosts for it
		}
		a := attempt{
			name: attemptEtcd, from: from, near: "spec.etcd", chosen: t != "" || apart,
			instead: "etcd runs in pods on the control planes, type stacked",
		}
		if !c.at.IsWritten(from) {
			a.from = "spec.roleGroups[etcd]"
		}
		if apart {
			a.instead += "; hosts with only the role etcd are left out"
		}
		if !c.tryValue(a, "spec.etcd.type") {
			return true
		}
		c.out.Spec.Etcd.Type = "managed"
		return false
	default:
		c.refuse(idInvalidValue, from, "KubeKey has no etcd type "+strconv.Quote(t),
			spec.SuggestWord(t, []string{"kubekey", "kubeadm", "external"}))
		return true
	}
}

// convertLogins writes the login of the hosts: common settings are written once.
func (c *conversion) convertLogins() {
	var logins []v1alpha1.SSH
	var sources []string
	secrets := c.nameSecrets()
	for i, h := range c.in.Spec.Hosts {
		from := fmt.Sprintf("spec.hosts[%d]", i)
		if !slices.ContainsFunc(c.out.Spec.Hosts, func(o v1alpha1.Host) bool { return o.Name == h.Name }) {
			continue
		}
		logins, sources = append(logins, c.convertLogin(h, from, secrets)), append(sources, from)
	}
	if len(logins) == 0 {
		return
	}
	common := logins[0]
	for _, l := range logins[1:] {
		keepCommon(&common.User, l.User)
		keepCommon(&common.Port, l.Port)
		keepCommon(&common.PrivateKeyFile, l.PrivateKeyFile)
		if !sameSource(common.PasswordFrom, l.PasswordFrom) {
			common.PasswordFrom = nil
		}
		if (common.Sudo == nil) != (l.Sudo == nil) {
			common.Sudo = nil
		}
	}
	c.out.Spec.SSH = common
	for i := range logins {
		l, to := logins[i], fmt.Sprintf("spec.hosts[%d].ssh", i)
		clearCommon(&l.User, common.User)
		clearCommon(&l.Port, common.Port)
		clearCommon(&l.PrivateKeyFile, common.PrivateKeyFile)
		if sameSource(l.PasswordFrom, common.PasswordFrom) {
			l.PasswordFrom = nil
		}
		if common.Sudo != nil {
			l.Sudo = nil
		}
		c.out.Spec.Hosts[i].SSH = l
		for _, pair := range [][2]string{{"user", "user"}, {"port", "port"}, {"privateKeyFile", "privateKeyPath"}, {"passwordFrom", "password"}} {
			c.recordOrigin(to+"."+pair[0], sources[i]+"."+pair[1])
			c.recordOrigin("spec.ssh."+pair[0], sources[0]+"."+pair[1])
		}
	}
	c.passwordComments()
}

func keepCommon[T comparable](field *T, other T) {
	if *field != other {
		var zero T
		*field = zero
	}
}

func clearCommon[T comparable](field *T, common T) {
	if *field == common {
		var zero T
		*field = zero
	}
}

func sameSource(a, b *v1alpha1.SecretSource) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// convertLogin converts the login of one host.
func (c *conversion) convertLogin(h host, from string, secrets map[string]string) v1alpha1.SSH {
	l := v1alpha1.SSH{User: h.User, Port: h.Port}
	clearCommon(&l.User, spec.DefaultSSHUser) // Slipway's are the same
	clearCommon(&l.Port, spec.DefaultSSHPort)
	if l.User != "" {
		yes := true
		l.Sudo = &yes
	}
	switch {
	case h.PrivateKey != "":
		l.PrivateKeyFile = "./" + h.Name + ".key"
		c.warn(idInlinePassword, from+".privateKey", "spec.ssh", "the private key is not copied",
			"save the key as "+l.PrivateKeyFile+" next to the new file, with mode 0600",
			"TODO: save the private key of "+h.Name+" as "+l.PrivateKeyFile+", with mode 0600.")
	case h.PrivateKeyPath != "":
		l.PrivateKeyFile = c.resolvePath(strings.TrimSpace(h.PrivateKeyPath))
	}
	if h.Password != "" {
		l.PasswordFrom = &v1alpha1.SecretSource{Env: secrets[h.Password]}
	}
	return l
}

// nameSecrets names a variable for every password, and reports each once.
func (c *conversion) nameSecrets() map[string]string {
	names, first, hosts := map[string]string{}, map[string]int{}, map[string][]string{}
	for i, h := range c.in.Spec.Hosts {
		if h.Password == "" {
			continue
		}
		if hosts[h.Password] == nil {
			names[h.Password], first[h.Password] = c.uniqueVariable("SSH_PASSWORD_"+variableName(h.Name)), i
		}
		hosts[h.Password] = append(hosts[h.Password], h.Name)
	}
	for password, i := range first {
		if len(first) == 1 {
			names[password] = "SSH_PASSWORD"
		}
		of := hosts[password][0]
		if n := len(hosts[password]); n > 1 {
			of = fmt.Sprintf("%d hosts", n)
		}
		c.warn(idInlinePassword, fmt.Sprintf("spec.hosts[%d].password", i), "",
			"the password of "+of+" is not copied: others could read the file",
			"set the variable "+names[password]+", or use a file of mode 0600: passwordFrom: {file: PATH}", "")
	}
	return names
}

var notVariable = regexp.MustCompile(`[^A-Z0-9]+`)

func variableName(name string) string {
	return notVariable.ReplaceAllString(strings.ToUpper(name), "_")
}

// uniqueVariable returns the name of a variable for only one secret: hosts db-1 and db.1 would
// have the same name.
func (c *conversion) uniqueVariable(name string) string {
	unique := name
	for n := 2; slices.Contains(c.variables, unique); n++ {
		unique = name + "_" + strconv.Itoa(n)
	}
	c.variables = append(c.variables, unique)
	return unique
}

const passwordComment = "TODO: the password was not copied. Set this variable, or use a file of mode 0600: {file: PATH}."

// passwordComments explains how to set passwords that were inline.
func (c *conversion) passwordComments() {
	if c.out.Spec.SSH.PasswordFrom != nil {
		c.comments.Add("spec.ssh.passwordFrom", passwordComment)
	}
	for i, h := range c.out.Spec.Hosts {
		if h.SSH.PasswordFrom != nil {
			c.comments.Add(fmt.Sprintf("spec.hosts[%d].ssh.passwordFrom", i), passwordComment)
		}
	}
}

func (c *conversion) resolvePath(name string) string {
	if c.o.Resolve == nil || name == "" {
		return name
	}
	return c.o.Resolve(name)
}

// sortedKeys makes the order deterministic.
func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
