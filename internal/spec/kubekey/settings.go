package kubekey

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/registryname"
	"slipway.dev/slipway/internal/spec"
)

func (c *conversion) convertNetwork() {
	n, out := c.in.Spec.Network, &c.out.Spec.Network
	out.PodCIDR = c.convertRanges(n.KubePodsCIDR, "kubePodsCIDR", "podCIDR", defaultPods)
	out.ServiceCIDR = c.convertRanges(n.KubeServiceCIDR, "kubeServiceCIDR", "serviceCIDR", defaultServices)
	from := networkPath + ".plugin"
	wanted := cmp.Or(n.Plugin, defaultPlugin)
	if wanted == "kubeovn" {
		wanted = "kube-ovn"
	}
	a := attempt{name: "plugin", from: from, near: networkPath + ".plugin", chosen: n.Plugin != ""}
	fallback := flannelPlugin
	if a.instead = "flannel is used"; a.chosen {
		fallback = pluginNone
		a.instead = `plugin "none" is used: after the control plane is running, install ` + n.Plugin + " yourself, or write flannel"
	}
	out.Plugin = fallback
	if c.tryValue(a, networkPath+".plugin") {
		out.Plugin = wanted
	}
	if wanted == flannelPlugin {
		out.Flannel.Backend = n.Flannel.BackendMode
		c.recordOrigin(networkPath+".flannel.backend", networkPath+".flannel.backendMode")
	} else if n.Flannel.BackendMode != "" {
		c.reportDropped(networkPath+".flannel.backendMode", "the plugin is not flannel")
	}
	for _, f := range []struct {
		from, plugin string
		set          bool
	}{
		{"flannel.directRouting", flannelPlugin, n.Flannel.DirectRouting},
		{"calico", "calico", len(n.Calico) > 0},
		{"kubeovn", "kube-ovn", len(n.Kubeovn) > 0},
		{"hybridnet", "hybridnet", len(n.Hybridnet) > 0},
	} {
		switch {
		case !f.set:
		case wanted == f.plugin:
			c.reportChangedMeaning(idLost, networkPath+"."+f.from, networkPath+".plugin", "there is no field for this setting of "+f.plugin)
		default:
			c.reportDropped(networkPath+"."+f.from, "the plugin is not "+f.plugin)
		}
	}
}

// convertRanges returns one or two ranges, with KubeKey's default.
func (c *conversion) convertRanges(text, from, to, kubekeys string) []string {
	c.recordOrigin(networkPath+"."+to, networkPath+"."+from)
	if text == "" {
		c.comments.Add(networkPath+"."+to, "KubeKey's default.")
		return []string{kubekeys}
	}
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		out = append(out, strings.TrimSpace(item))
	}
	return out
}

// convertMirrors converts the mirrors of each registry, each once.
func (c *conversion) convertMirrors() {
	r, out := c.in.Spec.Registry, &c.out.Spec.Registry
	mirror := func(name, url, from string) {
		name = registryname.InImages(name)
		if !strings.Contains(url, "://") {
			url = "https://" + url
		}
		same := func(other string) bool {
			return spec.URLMeaning(other) != "" && spec.URLMeaning(other) == spec.URLMeaning(url)
		}
		if i := slices.IndexFunc(out.Mirrors[name], same); i >= 0 {
			c.reportDropped(from, "the mirror "+out.Mirrors[name][i]+" is already in the list")
			return
		}
		if out.Mirrors == nil {
			out.Mirrors = map[string][]string{}
		}
		out.Mirrors[name] = append(out.Mirrors[name], url)
		c.recordOrigin(fmt.Sprintf("%s.mirrors[%s][%d]", registryPath, name, len(out.Mirrors[name])-1), from)
	}
	for i, url := range r.RegistryMirrors {
		mirror(registryname.DockerHub, url, fmt.Sprintf("%s.registryMirrors[%d]", registryPath, i))
	}
	for _, name := range sortedKeys(r.RemoteMirrors) {
		at := registryPath + ".remoteMirrors[" + name + "]"
		if c.out.Spec.ContainerRuntime.Type == runtimeDocker && !registryname.Equal(name, registryname.DockerHub) {
			c.reportChangedMeaning(idLost, at, registryPath, "Docker supports mirrors only for docker.io")
			continue
		}
		for i, url := range r.RemoteMirrors[name].Endpoint {
			mirror(name, url, fmt.Sprintf("%s.endpoint[%d]", at, i))
		}
		c.recordOrigin(registryPath+".mirrors["+registryname.InImages(name)+"]", at)
	}
}

func (c *conversion) convertRegistry() {
	c.convertMirrors()
	r, out := c.in.Spec.Registry, &c.out.Spec.Registry
	insecure := func(name, from string) {
		if slices.Contains(out.Insecure, name) {
			return
		}
		c.recordOrigin(fmt.Sprintf("%s.insecure[%d]", registryPath, len(out.Insecure)), from)
		out.Insecure = append(out.Insecure, name)
	}
	for i, name := range r.InsecureRegistries {
		insecure(name, fmt.Sprintf("%s.insecureRegistries[%d]", registryPath, i))
	}
	for _, key := range sortedKeys(r.Auths) {
		at, name := registryPath+".auths["+key+"]", registryname.InImages(key)
		switch a := r.Auths[key]; {
		case a.SkipTLSVerify:
			insecure(name, at+".skipTLSVerify")
		case a.PlainHTTP:
			insecure(name, at+".plainHTTP")
		}
		a := r.Auths[key]
		if c.out.Spec.ContainerRuntime.Type == runtimeDocker && a.Username != "" && name == registryname.DockerHub && len(out.Mirrors[name]) > 0 {
			c.reportChangedMeaning(idLost, at+".username", registryPath,
				"Docker would send this password to the mirrors of docker.io as well; use image pull secrets")
			a.Username, a.Password = "", ""
		}
		c.registryLogin(name, at, a)
	}
	switch {
	case r.Type == "":
	case len(c.in.Spec.RoleGroups[groupRegistry]) == 0:
		c.reportDropped(registryPath+".type", "no host is in the group registry")
	case r.Type == "harbor":
		c.reportChangedMeaning(idLost, registryPath+".type", registryPath,
			"Slipway does not install Harbor; it runs the Distribution registry on the host")
	}
}

// registryLogin converts the login and the CA of a registry.
func (c *conversion) registryLogin(name, from string, a auth) {
	to := fmt.Sprintf("%s.auths[%d]", registryPath, len(c.out.Spec.Registry.Auths))
	made := v1alpha1.RegistryAuth{Registry: name, Username: a.Username}
	if a.Username != "" && a.Password != "" {
		made.PasswordFrom = &v1alpha1.SecretSource{Env: c.uniqueVariable("REGISTRY_PASSWORD_" + variableName(name))}
		c.recordOrigin(to+".passwordFrom", from+".password")
		c.comments.Add(to+".passwordFrom", passwordComment)
		c.warn(idInlinePassword, from+".password", "", "the password of "+name+" is not copied: others could read the file",
			"set the variable "+made.PasswordFrom.Env+", or use a file of mode 0600: passwordFrom: {file: PATH}", "")
	} else if a.Password != "" {
		c.reportDropped(from+".password", "the password has no user")
	}
	switch {
	case a.CAFile == "":
	case a.SkipTLSVerify || a.PlainHTTP:
		c.reportDropped(from+".caFile", "the certificate of this registry is not verified")
	default:
		made.CAFile = c.resolvePath(a.CAFile)
		c.recordOrigin(to+".caFile", from+".caFile")
	}
	if made.Username == "" && made.CAFile == "" {
		return
	}
	c.recordOrigin(to+".registry", from)
	c.recordOrigin(to+".username", from+".username")
	c.recordOrigin(to, from)
	c.out.Spec.Registry.Auths = append(c.out.Spec.Registry.Auths, made)
}

func (c *conversion) convertDNS() {
	d, out := c.in.Spec.DNS, &c.out.Spec.DNS
	out.Upstream = d.CoreDNS.UpstreamDNSServers
	for i := range out.Upstream {
		c.recordOrigin(fmt.Sprintf("spec.dns.upstream[%d]", i), fmt.Sprintf("spec.dns.coredns.upstreamDNSServers[%d]", i))
	}
	c.convertDNSZones(d.CoreDNS.ExternalZones)
	hosts := map[string][]string{}
	c.parseHostsFile(hosts, d.DNSEtcHosts, "spec.dns.dnsEtcHosts")
	c.parseHostsFile(hosts, d.NodeEtcHosts, "spec.dns.nodeEtcHosts")
	if len(hosts) > 0 {
		out.Hosts = hosts
	}
	if strings.TrimSpace(d.DNSEtcHosts) != strings.TrimSpace(d.NodeEtcHosts) {
		c.warn(idOtherDefault, "spec.dns", "spec.dns.hosts", "these names apply to pods and hosts; KubeKey has separate settings for them", "",
			"These names apply to pods and hosts; KubeKey has separate settings for them.")
	}
}

func (c *conversion) convertDNSZones(zones []externalZone) {
	for i, z := range zones {
		from, to := fmt.Sprintf("spec.dns.coredns.externalZones[%d]", i), fmt.Sprintf("spec.dns.zones[%d]", i)
		made := v1alpha1.DNSZone{Servers: z.Nameservers, CacheSeconds: z.Cache}
		for n, name := range z.Zones {
			made.Names = append(made.Names, strings.TrimSuffix(strings.TrimSuffix(name, ":53"), "."))
			c.recordOrigin(fmt.Sprintf("%s.names[%d]", to, n), fmt.Sprintf("%s.zones[%d]", from, n))
		}
		for n := range z.Nameservers {
			c.recordOrigin(fmt.Sprintf("%s.servers[%d]", to, n), fmt.Sprintf("%s.nameservers[%d]", from, n))
		}
		c.recordOrigin(to+".names", from+".zones")
		c.recordOrigin(to+".servers", from+".nameservers")
		c.recordOrigin(to+".cacheSeconds", from+".cache")
		c.recordOrigin(to, from)
		c.out.Spec.DNS.Zones = append(c.out.Spec.DNS.Zones, made)
	}
}

// parseHostsFile parses lines of a hosts file.
func (c *conversion) parseHostsFile(hosts map[string][]string, text, from string) {
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if _, err := netip.ParseAddr(words[0]); err != nil || len(words) < 2 {
			c.refuse(idInvalidValue, from, strconv.Quote(strings.TrimSpace(line))+" is not a line of a hosts file",
				"write an address, followed by names")
			continue
		}
		at := words[0]
		for _, name := range words[1:] {
			if !slices.Contains(hosts[at], name) {
				hosts[at] = append(hosts[at], name)
			}
		}
		c.recordOrigin("spec.dns.hosts["+at+"]", from)
	}
}

func (c *conversion) convertSystem() {
	s, out := c.in.Spec.System, &c.out.Spec.System
	out.Timezone, out.SkipConfigure = s.Timezone, s.SkipConfigureOS
	c.recordOrigin("spec.system.ntpServers", "spec.system.ntpServers")
	for i, server := range s.NtpServers {
		from := fmt.Sprintf("spec.system.ntpServers[%d]", i)
		if h, ok := spec.HostCalled(c.out, server); ok {
			c.reportChangedMeaning(idLost, from, "spec.system",
				"in KubeKey the host "+h.Name+
					" serves time to the other hosts, but Slipway does not set up time servers: use an existing server, or set one up")
			continue
		}
		c.recordOrigin(fmt.Sprintf("spec.system.ntpServers[%d]", len(out.NTPServers)), from)
		out.NTPServers = append(out.NTPServers, server)
	}
	c.recordOrigin("spec.system.timezone", "spec.system.timezone")
}
