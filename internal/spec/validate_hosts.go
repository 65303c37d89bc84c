package spec

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/hostaddress"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// maxHostName is the kernel's limit of a host name, minus one.
const maxHostName = 63

// A hostValidator checks the hosts of a cluster.
type hostValidator struct{ *validator }

func (v hostValidator) checkHosts() {
	hosts := v.c.Spec.Hosts
	if len(hosts) == 0 {
		v.refuse(idNoHosts, "spec.hosts", "a cluster needs at least one host",
			"run 'slipway create config --host root@10.0.0.11=control-plane' to write a file with one host")
		return
	}
	for i, h := range hosts {
		path := yamlfile.IndexPath("spec.hosts", i)
		v.checkHostName(h, path)
		v.checkAddresses(h, path)
		v.checkRoles(h, path)
		v.checkOneOf(path+".arch", h.Arch, []string{"amd64", "arm64"}, nil)
		v.checkLabels(h, path)
		v.checkTaints(h, path)
		v.checkSSH(h.SSH, v.c.Spec.SSH, path+".ssh")
	}
	v.checkUniqueHosts()
	v.checkControlPlanes()
}

func (v hostValidator) checkHostName(h v1alpha1.Host, path string) {
	path += ".name"
	if v.requireText(path, h.Name, "write the name of the node") {
		return
	}
	switch {
	case len(h.Name) > maxHostName:
		v.refuse(idInvalidName,
			path, fmt.Sprintf("%q has %d characters, but a host name can have at most %d", h.Name, len(h.Name), maxHostName), "")
	case h.Name == localhost:
		v.refuse(idInvalidName, path, "a node cannot be named localhost: every host uses this name for itself", "")
	case h.Name == AllHosts:
		v.refuse(idInvalidName,
			path, "a node cannot be named "+AllHosts+": commands such as 'slipway exec "+AllHosts+"' use this word for every host", "")
	case isIP(h.Name):
		v.refuse(idInvalidName, path, "a node cannot be named "+h.Name+": it is an IP address",
			"move it to the field address, and write a name such as worker-1 here")
	case strings.Contains(h.Name, ".."):
		v.refuse(idInvalidName, path, strconv.Quote(h.Name)+" is not a valid node name: nothing is between two of its dots",
			didYouMeanName(h.Name))
	case len(validation.IsDNS1123Subdomain(h.Name)) > 0:
		v.refuse(idInvalidName, path,
			strconv.Quote(h.Name)+
				" is not a valid node name: only a-z, 0-9, '-' and '.' are allowed, and each part between dots begins and ends with a letter or digit",
			didYouMeanName(h.Name))
	}
}

// AllHosts selects every host of a cluster.
const AllHosts = "all"

func isIP(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}

// didYouMeanName suggests the valid name that differs in case and underscores.
func didYouMeanName(name string) string {
	plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if plain == name || len(validation.IsDNS1123Subdomain(plain)) > 0 {
		return ""
	}
	return "did you mean " + plain + "?"
}

func (v hostValidator) checkAddresses(h v1alpha1.Host, path string) {
	at := path + ".address"
	if !v.requireText(at, h.Address, "write the name or address for SSH, or localhost") {
		if hint, ok := hostaddress.Check(h.Address); !ok {
			v.refuse(idInvalidAddress, at, quoteAddress(h.Address)+" is neither an IP address nor a host name", hint)
		}
	}
	at = path + ".internalAddress"
	if h.InternalAddress == "" {
		if ip, err := netip.ParseAddr(h.Address); err == nil && ip.IsLoopback() {
			v.refuse(idMissingField, at, "this field is required: other nodes cannot reach "+h.Address,
				"write the address of the host in the node network, or 'address: localhost' for this machine")
		}
		return
	}
	ip, err := netip.ParseAddr(h.InternalAddress)
	switch {
	case err != nil:
		v.refuse(idInvalidAddress, at, strconv.Quote(h.InternalAddress)+" is not an IP address",
			"write an IP address: nodes are identified by their addresses")
	case ip.IsLoopback() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.Zone() != "":
		v.refuse(idInvalidAddress, at, h.InternalAddress+" cannot be reached by other nodes", "write the address of the host in the node network")
	}
}

// quoteAddress removes a user, because the text can contain a password.
func quoteAddress(text string) string {
	if i := strings.LastIndex(text, "@"); i >= 0 {
		text = "…" + text[i:]
	}
	return strconv.Quote(text)
}

func (v hostValidator) checkRoles(h v1alpha1.Host, path string) {
	path += ".roles"
	known := []string{string(v1alpha1.RoleControlPlane), string(v1alpha1.RoleWorker), string(v1alpha1.RoleEtcd), string(v1alpha1.RoleRegistry)}
	if len(h.Roles) == 0 {
		v.refuse(idMissingRole, path, "the host has no role", "add one: roles: ["+known[0]+"] or ["+known[1]+"]")
	}
	seen := map[v1alpha1.Role]bool{}
	for i, role := range h.Roles {
		at := yamlfile.IndexPath(path, i)
		switch role {
		case v1alpha1.RoleControlPlane, v1alpha1.RoleWorker, v1alpha1.RoleRegistry: // the check of registries has the rest
		case v1alpha1.RoleEtcd:
			v.checkEtcdRole(at)
		case "master", "controlplane", "control_plane":
			v.refuse(idUnknownRole, at, "there is no role "+strconv.Quote(string(role)), "did you mean control-plane?")
		default:
			v.refuse(idUnknownRole, at, "there is no role "+strconv.Quote(string(role)), SuggestWord(string(role), known))
		}
		if seen[role] {
			v.refuse(idDuplicateName, at, "the role "+string(role)+" is given more than once", "keep one of the two")
		}
		seen[role] = true
	}
}

// reservedLabel reports whether a kubelet is not allowed to set a label on its own node
// (k8s.io/kubelet/pkg/apis, IsKubeletLabel).
func reservedLabel(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	if !strings.Contains(key, "/") || !inDomain(prefix, "kubernetes.io") && !inDomain(prefix, "k8s.io") {
		return false
	}
	if inDomain(prefix, "kubelet.kubernetes.io") || inDomain(prefix, "node.kubernetes.io") {
		return false
	}
	switch key {
	case "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
		"beta.kubernetes.io/instance-type", "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return false
	}
	return true
}

func inDomain(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}

// Kubernetes' own messages have regular expressions instead.
const (
	keyHint = "use an optional DNS name and '/', then up to 63 letters, digits, '-', '_' and '.', " +
		"beginning and ending with a letter or digit"
	valueHint = "use up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit; the value can be empty"
)

func labelKey(key string) bool     { return len(validation.IsQualifiedName(key)) == 0 }
func labelValue(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }

func (v hostValidator) checkLabels(h v1alpha1.Host, path string) {
	path += ".labels"
	for _, key := range sortedKeys(h.Labels) {
		at := yamlfile.KeyPath(path, key)
		if !labelKey(key) {
			v.refuse(idInvalidLabel, at, strconv.Quote(key)+" is not a valid label key", keyHint)
		}
		if !labelValue(h.Labels[key]) {
			v.refuse(idInvalidLabel, at, strconv.Quote(h.Labels[key])+" is not a valid label value", valueHint)
		}
		if reservedLabel(key) {
			v.refuse(idReservedLabel, at, key+" is a label that a kubelet cannot set: kubernetes.io and k8s.io are reserved for Kubernetes",
				"use your own prefix, or one of node.kubernetes.io, topology.kubernetes.io/zone and topology.kubernetes.io/region")
		}
	}
}

func (v hostValidator) checkTaints(h v1alpha1.Host, path string) {
	seen := map[string]bool{}
	for i, t := range h.Taints {
		at := yamlfile.IndexPath(path+".taints", i)
		if !v.requireText(at+".key", t.Key, keyHint) && !labelKey(t.Key) {
			v.refuse(idInvalidTaint, at+".key", strconv.Quote(t.Key)+" is not a valid taint key", keyHint)
		}
		if !labelValue(t.Value) {
			v.refuse(idInvalidTaint, at+".value", strconv.Quote(t.Value)+" is not a valid taint value", valueHint)
		}
		if !v.requireText(at+".effect", t.Effect, "use NoSchedule, PreferNoSchedule or NoExecute") {
			v.checkOneOf(at+".effect", t.Effect, []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, nil)
		}
		if id := t.Key + ":" + t.Effect; seen[id] {
			v.refuse(idInvalidTaint, at, "the taint "+id+" is given more than once", "keep one of the two")
		} else {
			seen[id] = true
		}
	}
}

// checkUniqueHosts finds hosts that are the same machine, or would be the same node.
func (v hostValidator) checkUniqueHosts() {
	refuse := func(id, path, what string, earlier int, hint string) {
		v.refuse(id, path, fmt.Sprintf("%s is also used by hosts[%d] (%s)", what, earlier, v.c.Spec.Hosts[earlier].Name), hint)
	}
	names := map[string]int{}
	for i, h := range v.c.Spec.Hosts {
		if earlier, ok := noteHost(names, h.Name, i); ok {
			refuse(idDuplicateName, yamlfile.IndexPath("spec.hosts", i)+".name", "the name "+h.Name, earlier, "give each host its own name")
		}
	}
	for _, s := range FindSharedAddresses(v.c) {
		path := yamlfile.IndexPath("spec.hosts", s.Host) + "." + s.Field
		refuse(idDuplicateAddress, path, "the address "+s.Text, s.Earlier, SharedAddressHint)
	}
}

func (v hostValidator) checkControlPlanes() {
	switch count := len(HostsWithRole(v.c, v1alpha1.RoleControlPlane)); {
	case count == 0:
		v.refuse(idNoControlPlane, "spec.hosts", "no host has the role control-plane", "give the role to one of them: roles: [control-plane]")
	case count%2 == 0 && v.c.Spec.Etcd.Type == EtcdStacked:
		v.warn(idEvenMembers, "spec.hosts",
			fmt.Sprintf("%d control planes tolerate the loss of %d, as %d would: etcd needs a majority", count, count/2-1, count-1),
			fmt.Sprintf("use %d or %d control planes", count-1, count+1))
	}
}
