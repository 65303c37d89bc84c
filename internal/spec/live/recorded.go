package live

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

// useRecorded uses settings that Slipway has saved in its own cluster and that the API does
// not have. Others than the operator can write that data, so settings that name files or
// secrets on the operator's machine, or that change the login, are not used: they become
// a warning and a comment.
func (d *describer) useRecorded() {
	if d.record == nil {
		return
	}
	r, out := d.record.Spec, &d.out.Spec
	out.Kubernetes.Kubelet = r.Kubernetes.Kubelet
	out.Kubernetes.FeatureGates = r.Kubernetes.FeatureGates
	out.Kubernetes.Certificates = r.Kubernetes.Certificates
	out.DNS, out.System = r.DNS, r.System
	out.Etcd.Type = r.Etcd.Type
	d.recordedRegistry(r.Registry)
	for _, h := range r.Hooks {
		d.noteDifference("spec.hooks",
			"the saved description has the hook "+strconv.Quote(h.Name)+" ("+strconv.Quote(string(h.Phase))+", script "+strconv.Quote(h.Script)+")",
			"if you trust this hook, add it to the file: hooks run as root on hosts")
	}
	d.recordedHosts(r.Hosts)
}

// recordedRegistry uses verified mirrors, and the cluster's own registry without its
// files and secrets.
func (d *describer) recordedRegistry(r v1alpha1.Registry) {
	const path = "spec.registry"
	out := &d.out.Spec.Registry
	unverified := slices.Clone(r.Insecure)
	for _, name := range slices.Sorted(maps.Keys(r.Mirrors)) {
		for _, url := range r.Mirrors[name] {
			if strings.HasPrefix(strings.ToLower(url), "http:") {
				unverified = append(unverified, url)
				continue
			}
			if out.Mirrors == nil {
				out.Mirrors = map[string][]string{}
			}
			out.Mirrors[name] = append(out.Mirrors[name], url)
		}
	}
	if len(unverified) > 0 {
		d.noteDifference(path, "the saved description has registries without certificate verification: "+quoteList(unverified),
			"if you trust these registries, add them to insecure or mirrors again")
	}
	var logins []string
	for _, a := range r.Auths {
		logins = append(logins, a.Registry)
	}
	if len(logins) > 0 {
		d.noteDifference(path, "the saved description has logins or CAs for the registries "+quoteList(logins),
			"write auths again, with your own secrets and files")
	}
	if r.Private == nil {
		return
	}
	private := *r.Private
	private.PasswordFrom, private.CertFile, private.KeyFile, private.CAFile = nil, "", "", ""
	out.Private = &private
	if r.Private.PasswordFrom != nil || r.Private.CertFile != "" || r.Private.KeyFile != "" || r.Private.CAFile != "" {
		d.noteDifference(path+".private",
			"the cluster's own registry has a password or certificate files on the machine that created the cluster",
			"write passwordFrom, certFile, keyFile and caFile again")
	}
}

// recordedHosts uses roles, and the address for SSH if the node has it as well.
func (d *describer) recordedHosts(recorded []v1alpha1.Host) {
	for i := range d.out.Spec.Hosts {
		h := &d.out.Spec.Hosts[i]
		j := slices.IndexFunc(recorded, func(o v1alpha1.Host) bool { return o.Name == h.Name })
		if j < 0 {
			continue
		}
		h.Roles = recorded[j].Roles
		was := recorded[j]
		if was.InternalAddress != h.Address || was.Address == h.Address || was.Address == "localhost" {
			continue
		}
		if slices.Contains(d.nodeAddresses(h.Name), was.Address) {
			h.Address, h.InternalAddress = was.Address, was.InternalAddress
			continue
		}
		saved := strconv.Quote(was.Address)
		d.noteDifference("spec.hosts["+strconv.Itoa(i)+"]", "the saved SSH address "+saved+" is not an address of node "+h.Name,
			"set address to "+saved+" if "+saved+" is correct, and internalAddress to "+was.InternalAddress)
	}
}

// nodeAddresses returns the addresses of a node that other machines can log in to.
func (d *describer) nodeAddresses(node string) (out []string) {
	for _, n := range d.s.Nodes {
		for _, a := range n.Status.Addresses {
			dns := a.Type == corev1.NodeExternalDNS || a.Type == corev1.NodeInternalDNS
			if n.Name == node && (remoteAddress(a.Address) || dns && remoteName(a.Address)) {
				out = append(out, a.Address)
			}
		}
	}
	return out
}

// remoteAddress reports whether an address can belong to another machine. A node reports
// its own addresses, and "localhost" would be the operator's machine.
func remoteAddress(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && !ip.Unmap().IsLoopback() && !ip.IsUnspecified() && !ip.IsMulticast()
}

// remoteName reports whether a DNS name can belong to another machine: it must not be an
// address, or a name that every machine has for itself.
func remoteName(name string) bool {
	_, err := netip.ParseAddr(name)
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	itself := name == "localhost" || strings.HasSuffix(name, ".localhost") || strings.HasPrefix(name, "localhost.") ||
		strings.HasPrefix(name, "ip6-")
	return err != nil && name != "" && !itself
}

// quoteList lists untrusted texts for people.
func quoteList(list []string) string {
	var out []string
	for _, text := range list {
		out = append(out, strconv.Quote(text))
	}
	return strings.Join(out, ", ")
}

// makePrintable replaces characters that would control a terminal, or end a comment.
func makePrintable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
