package upstream

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/ocitransport"
	"slipway.dev/slipway/internal/release"
)

//go:embed sites.yaml
var siteData []byte

// Identifiers of this package's diagnostics.
const (
	IDSite       = "unknown-upstream-site"
	IDDownload   = "download-failed"
	IDChecksum   = "checksum-mismatch"
	IDNoChecksum = "checksum-missing"
	IDPull       = "image-pull-failed"
)

func newProblem(id, hint, format string, args ...any) diag.List {
	return diag.List{{ID: id, Severity: diag.Error, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// sites maps a site's name to its URL template, or to a registry.
type sites map[string]string

type siteFile struct {
	Official sites            `yaml:"official"`
	Mirrors  map[string]sites `yaml:"mirrors"`
}

func readSites() (siteFile, error) {
	var f siteFile
	if err := yaml.Unmarshal(siteData, &f); err != nil {
		return siteFile{}, fmt.Errorf("reading the list of upstream sites: %w", err)
	}
	return f, nil
}

// newSites are the official sites with a mirror and single sites over them.
func newSites(o Options) (sites, error) {
	f, err := readSites()
	if err != nil {
		return nil, err
	}
	s := maps.Clone(f.Official)
	if o.Mirror != "" {
		m, ok := f.Mirrors[o.Mirror]
		if !ok {
			return nil, newProblem(IDSite, "use one of "+strings.Join(slices.Sorted(maps.Keys(f.Mirrors)), ", "), "%q is not a mirror", o.Mirror)
		}
		maps.Copy(s, m)
	}
	for name, value := range o.Sites {
		if _, ok := s[name]; !ok {
			return nil, newProblem(IDSite, "use one of "+strings.Join(slices.Sorted(maps.Keys(s)), ", "), "%q is not an upstream site", name)
		}
		s[name] = value
	}
	return s, nil
}

// CheckSites refuses unknown names of mirrors and sites, and sites over plain HTTP,
// because the published checksums come from the same site.
func (o Options) CheckSites() error {
	s, err := newSites(o)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		u, err := url.Parse(s.fileURL(name, "", "", ""))
		if err == nil && o.isPlainHTTP(u) {
			return newProblem(IDSite, "use an https:// URL, or add --insecure",
				"site %s uses plain HTTP, also for its checksums: anyone on the network path can replace both", name)
		}
	}
	return nil
}

// isPlainHTTP reports whether a URL is over plain HTTP to another machine, and the
// user has not allowed that.
func (o Options) isPlainHTTP(u *url.URL) bool {
	return u.Scheme == "http" && !o.Insecure && !ocitransport.IsLoopback(u.Hostname())
}

// checkRedirect is the redirect policy of the client: a redirect must not lead to plain
// HTTP.
func (o Options) checkRedirect(next *http.Request, via []*http.Request) error {
	switch {
	case o.isPlainHTTP(next.URL):
		return fmt.Errorf("redirect to plain HTTP: %w", ocitransport.ErrPlain)
	case len(via) >= maxRedirects:
		return errors.New("too many redirects")
	}
	return nil
}

// maxRedirects is how many redirects are followed.
const maxRedirects = 10

// machines are the kernel's words for architectures.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// fileURL returns the URL of a file by the template of its site.
func (s sites) fileURL(site, version, arch, file string) string {
	return strings.NewReplacer("{version}", version, "{arch}", arch, "{machine}", machines[arch], "{file}", file).Replace(s[site])
}

// pullReference returns the reference from which an image is pulled: its reference with
// the registry replaced.
func (s sites) pullReference(ref string) string {
	host, rest, _ := strings.Cut(ref, "/")
	if site, ok := s[host]; ok {
		host = site
	}
	return host + "/" + rest
}

// An item is one file to download.
type item struct {
	site, version, file string
	// sums is the checksum file, in the same directory.
	sums string
	// sum is the file's SHA-256 itself, where no project publishes one.
	sum string
	// members maps names in the archive to names in the component; if
	// empty, the file itself is the member program.
	members map[string]string
	program string
}

// A component is made of items.
type component struct {
	name, version, licence string
	items                  []item
}

const (
	bin    = "usr/local/bin/"
	cniBin = "opt/cni/bin/"
	apache = "Apache-2.0"
)

// componentList returns the components for hosts, as official releases publish them.
func componentList(r release.Release, arch string) []component {
	k8s := component{name: "kubernetes", version: r.Kubernetes, licence: apache}
	for _, p := range []string{"kubeadm", "kubectl", "kubelet"} {
		k8s.items = append(k8s.items,
			item{site: "kubernetes", version: strings.TrimPrefix(r.Kubernetes, "v"), file: p, sums: p + ".sha256", program: bin + p})
	}
	containerd := fmt.Sprintf("containerd-%s-linux-%s.tar.gz", r.Containerd, arch)
	crictl := fmt.Sprintf("crictl-v%s-linux-%s.tar.gz", r.CRITools, arch)
	etcd := fmt.Sprintf("etcd-v%s-linux-%s", r.Etcd, arch)
	registry := fmt.Sprintf("registry_%s_linux_%s.tar.gz", r.Registry, arch)
	return []component{
		k8s,
		{name: "containerd", version: r.Containerd, licence: "Apache-2.0 AND LGPL-2.1-or-later", items: []item{
			{site: "containerd", version: r.Containerd, file: containerd, sums: containerd + ".sha256sum", members: map[string]string{
				"bin/containerd": bin + "containerd", "bin/containerd-shim-runc-v2": bin + "containerd-shim-runc-v2", "bin/ctr": bin + "ctr",
			}},
			{site: "runc", version: r.Runc, file: "runc." + arch, sums: "runc.sha256sum", program: bin + "runc"},
		}},
		{name: "crictl", version: r.CRITools, licence: apache, items: []item{
			{site: "crictl", version: r.CRITools, file: crictl, sums: crictl + ".sha256", members: map[string]string{"crictl": bin + "crictl"}},
		}},
		{name: "cni-plugins", version: r.CNIPlugins, licence: apache, items: []item{
			pluginsItem(r.CNIPlugins, arch, "bridge", "loopback", "ptp", "host-local", "portmap", "bandwidth", "firewall"),
			// The flannel plugin was part of this release until 1.0.
			pluginsItem(r.FlannelCNI, arch, "flannel"),
		}},
		{name: "etcd", version: r.Etcd, licence: apache, items: []item{
			{site: "etcd", version: r.Etcd, file: etcd + ".tar.gz", sums: "SHA256SUMS", members: map[string]string{
				etcd + "/etcdctl": bin + "etcdctl", etcd + "/etcdutl": bin + "etcdutl",
			}},
		}},
		{name: "registry", version: r.Registry, licence: apache, items: []item{
			{
				site: "registry", version: r.Registry, file: registry, sums: registry + ".sha256",
				members: map[string]string{"registry": bin + "registry"},
			},
		}},
	}
}

// dockerList returns the additional components for runtime docker.
func dockerList(r release.Release, arch string) []component {
	engine := fmt.Sprintf("docker-%s.tgz", r.Docker.Engine)
	cri := fmt.Sprintf("cri-dockerd-%s.%s.tgz", r.Docker.CRIDockerd, arch)
	return []component{
		{name: "docker", version: r.Docker.Engine, licence: apache, items: []item{
			{
				site: "docker", version: r.Docker.Engine, file: engine, sum: r.Docker.Sums[arch+"/"+engine],
				members: map[string]string{"docker/dockerd": bin + "dockerd"},
			},
		}},
		{name: "cri-dockerd", version: r.Docker.CRIDockerd, licence: apache, items: []item{
			{
				site: "cri-dockerd", version: r.Docker.CRIDockerd, file: cri, sum: r.Docker.Sums[arch+"/"+cri],
				members: map[string]string{"cri-dockerd/cri-dockerd": bin + "cri-dockerd"},
			},
		}},
	}
}

// wantedComponents returns the components of a request, for an architecture.
func wantedComponents(r source.Request, arch string) []component {
	list := componentList(r.Release, arch)
	if r.Docker {
		list = append(list, dockerList(r.Release, arch)...)
	}
	return list
}

// requireChecksums refuses files without a known checksum, before any file is downloaded.
func requireChecksums(r source.Request) error {
	for _, arch := range r.Arches {
		for _, c := range wantedComponents(r, arch) {
			for _, i := range c.items {
				if i.sums == "" && !sumForm.MatchString(i.sum) {
					return newProblem(IDNoChecksum,
						fmt.Sprintf("get the SHA-256 checksum from a trusted source, and set docker.sums[%q] to it in $SLIPWAY_HOME/releases.yaml",
							arch+"/"+i.file),
						"%s %s is published without a checksum, and the release catalogue has no checksum of %s for %s", c.name, i.version, i.file, arch)
				}
			}
		}
	}
	return nil
}

func pluginsItem(version, arch string, names ...string) item {
	file := fmt.Sprintf("cni-plugins-linux-%s-v%s.tgz", arch, version)
	i := item{site: "cni-plugins", version: version, file: file, sums: file + ".sha256", members: map[string]string{}}
	for _, n := range names {
		i.members[n] = cniBin + n
	}
	return i
}
