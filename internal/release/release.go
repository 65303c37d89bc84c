// Package release maps Kubernetes versions to component versions. The table is data:
// embedded, and overridden by a file of the user.
package release

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
)

//go:embed releases.yaml
var embedded []byte

// Identifiers of this package's diagnostics.
const (
	// IDUnsupported: the Kubernetes version is not in the catalogue.
	IDUnsupported = "unsupported-kubernetes"
	// IDCatalogue: the user's releases.yaml cannot be read.
	IDCatalogue = "release-catalogue-invalid"
	// IDUpgradePath: Kubernetes cannot go from one version to the other.
	IDUpgradePath = "upgrade-path"
)

// A Release is one Kubernetes version with its components. Kubernetes has the leading "v"
// that Kubernetes uses; the others have none.
type Release struct {
	Kubernetes string `json:"kubernetes"`
	// Known reports whether the catalogue lists this exact patch version; otherwise it is
	// a patch version of a known minor, with the components of that minor.
	Known bool `json:"known"`
	// Beyond reports whether its minor version comes after all that the catalogue lists:
	// a bundle has it, and names its components.
	Beyond bool `json:"beyond,omitempty"`
	// Modules lists parts of Kubernetes that are not available as Go modules of this
	// exact version, with the version that replaces each when it is compiled from
	// modules: "k8s.io/kube-proxy": "v0.35.5".
	Modules map[string]string `json:"modules,omitempty"`
	// Upstream maps short names of images that Slipway names to the published images that
	// replace them.
	Upstream map[string]string `json:"upstream,omitempty"`
	// Adds lists the kinds that this minor serves and the previous one does not, as
	// "group/version/resource".
	Adds []string `json:"-"`
	// Docker has the additional components of a bundle for runtime docker.
	Docker Docker `json:"docker"`
	Components
}

// Docker has the versions of the Docker engine and of cri-dockerd, with which a kubelet
// uses it.
type Docker struct {
	Engine     string `json:"engine" yaml:"engine"`
	CRIDockerd string `json:"criDockerd" yaml:"criDockerd"`
	// Sums has SHA-256 sums of released files that are published without a checksum, as
	// "arch/file".
	Sums map[string]string `json:"-" yaml:"sums"`
}

// overlaidOn returns d, with values that d does not name from other.
func (d Docker) overlaidOn(other Docker) Docker {
	sums := map[string]string{}
	maps.Copy(sums, other.Sums)
	maps.Copy(sums, d.Sums)
	return Docker{Engine: cmp.Or(d.Engine, other.Engine), CRIDockerd: cmp.Or(d.CRIDockerd, other.CRIDockerd), Sums: sums}
}

// Components has the versions of everything except Kubernetes itself.
type Components struct {
	Etcd string `json:"etcd" yaml:"etcd"`
	// EtcdImage is the tag of the etcd image that kubeadm expects:
	// "3.7.0-0".
	EtcdImage  string `json:"etcdImage" yaml:"etcdImage"`
	CoreDNS    string `json:"coredns" yaml:"coredns"`
	Pause      string `json:"pause" yaml:"pause"`
	Containerd string `json:"containerd" yaml:"containerd"`
	Runc       string `json:"runc" yaml:"runc"`
	CRITools   string `json:"criTools" yaml:"criTools"`
	CNIPlugins string `json:"cniPlugins" yaml:"cniPlugins"`
	Flannel    string `json:"flannel" yaml:"flannel"`
	// FlannelCNI is the version of containernetworking/plugins that has the
	// flannel CNI plugin.
	FlannelCNI string `json:"flannelCNI" yaml:"flannelCNI"`
	// Echo is the tag of Slipway's own test server.
	Echo string `json:"echo" yaml:"echo"`
	// HAProxy and Keepalived are the tags of their images: the revision of the image
	// recipe. The bundle names the version of the program.
	HAProxy    string `json:"haproxy" yaml:"haproxy"`
	Keepalived string `json:"keepalived" yaml:"keepalived"`
	// Updater is the version of Slipway's own apiserver-updater.
	Updater string `json:"updater" yaml:"updater"`
	KubeVIP string `json:"kubeVIP" yaml:"kubeVIP"`
	// MetricsServer, LocalPath (local-path-provisioner) and KubeStateMetrics are add-ons.
	MetricsServer    string `json:"metricsServer" yaml:"metricsServer"`
	LocalPath        string `json:"localPath" yaml:"localPath"`
	KubeStateMetrics string `json:"kubeStateMetrics" yaml:"kubeStateMetrics"`
	// Registry is the version of the registry on a host.
	Registry string `json:"registry" yaml:"registry"`
}

// ImageRefs returns the images of a release by short name, with the names that kubeadm of
// this version expects.
func (r Release) ImageRefs() map[string]string {
	const (
		k8s = "registry.k8s.io/"
		own = "slipway.dev/"
	)
	return map[string]string{
		"kube-apiserver":          k8s + "kube-apiserver:" + r.Kubernetes,
		"kube-controller-manager": k8s + "kube-controller-manager:" + r.Kubernetes,
		"kube-scheduler":          k8s + "kube-scheduler:" + r.Kubernetes,
		"kube-proxy":              k8s + "kube-proxy:" + r.Kubernetes,
		"etcd":                    k8s + "etcd:" + r.EtcdImage,
		"coredns":                 k8s + "coredns/coredns:v" + r.CoreDNS,
		"pause":                   k8s + "pause:" + r.Pause,
		"flannel":                 "ghcr.io/flannel-io/flannel:v" + r.Flannel,
		"echo":                    own + "echo:" + r.Echo,
		"haproxy":                 own + "haproxy:" + r.HAProxy,
		"keepalived":              own + "keepalived:" + r.Keepalived,
		"apiserver-updater":       own + "apiserver-updater:" + r.Updater,
		"kube-vip":                "ghcr.io/kube-vip/kube-vip:v" + r.KubeVIP,
		"metrics-server":          k8s + "metrics-server/metrics-server:v" + r.MetricsServer,
		"kube-state-metrics":      k8s + "kube-state-metrics/kube-state-metrics:v" + r.KubeStateMetrics,
		"local-path":              "docker.io/rancher/local-path-provisioner:v" + r.LocalPath,
	}
}

// A Catalogue has all supported releases.
type Catalogue struct {
	file file
	// beyond has the versions of later minors that bundles have, with their components.
	beyond map[string]Components
}

type file struct {
	Default     string     `yaml:"default"`
	KubeletSkew int        `yaml:"kubeletSkew"`
	Components  Components `yaml:"components"`
	Docker      Docker     `yaml:"docker"`
	// Upstream is Release.Upstream.
	Upstream map[string]string `yaml:"upstream"`
	Minors   map[string]minor  `yaml:"minors"`
}

type minor struct {
	Versions   []string   `yaml:"versions"`
	Components Components `yaml:"components"`
	// Modules are Release.Modules by version.
	Modules map[string]map[string]string `yaml:"modules"`
	// Adds is Release.Adds.
	Adds []string `yaml:"adds"`
}

// Load reads the embedded catalogue and merges the file at overridePath over it. An empty
// path, or a missing file, overrides nothing.
func Load(overridePath string) (*Catalogue, error) {
	c := &Catalogue{}
	if err := c.mergeData(embedded); err != nil {
		return nil, fmt.Errorf("reading the embedded release catalogue: %w", err)
	}
	if overridePath == "" {
		return c, nil
	}
	data, err := bounded.ReadArgument(overridePath, bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = c.mergeData(data)
	}
	if err != nil {
		return nil, diag.List{{
			ID: IDCatalogue, Severity: diag.Error, File: overridePath,
			Message: err.Error(),
			Hint:    "see docs/guide/bundle.md for the format",
		}}
	}
	return c, nil
}

// Parse reads a complete catalogue, without merging it over another one.
func Parse(data []byte) (*Catalogue, error) {
	c := &Catalogue{}
	return c, c.mergeData(data)
}

// WithVersion returns c with a version that a bundle has, and its components. The version is
// only added if its minor comes after all listed ones: for the others, c has the
// components.
func (c *Catalogue) WithVersion(version string, has Components) *Catalogue {
	v, err := parseVersion(version)
	newest, _ := c.newestMinor()
	if err != nil || !IsNewer(minorOf(v)+".0", newest+".0") {
		return c
	}
	more := map[string]Components{}
	maps.Copy(more, c.beyond)
	more["v"+v.String()] = has
	return &Catalogue{file: c.file, beyond: more}
}

func (c *Catalogue) mergeData(data []byte) error {
	var over file
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&over); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	f := &c.file
	if over.Default != "" {
		f.Default = over.Default
	}
	if over.KubeletSkew != 0 {
		f.KubeletSkew = over.KubeletSkew
	}
	f.Components = over.Components.fillFrom(f.Components)
	f.Docker = over.Docker.overlaidOn(f.Docker)
	if f.Upstream == nil {
		f.Upstream = map[string]string{}
	}
	maps.Copy(f.Upstream, over.Upstream)
	if f.Minors == nil {
		f.Minors = map[string]minor{}
	}
	for name, m := range over.Minors {
		if v, err := semver.StrictNewVersion(name + ".0"); err != nil || v.Prerelease() != "" {
			return fmt.Errorf("minors: %q does not have the form \"1.37\"", name)
		}
		for _, v := range slices.Concat(m.Versions, slices.Collect(maps.Keys(m.Modules))) {
			if p, err := parseVersion(v); err != nil || minorOf(p) != name || v != "v"+p.String() {
				return fmt.Errorf("minors: %q is not a version of %s such as \"v%s.3\"", v, name, name)
			}
		}
		old := f.Minors[name]
		old.Versions = append(slices.Clone(old.Versions), m.Versions...)
		slices.SortFunc(old.Versions, compareVersions)
		old.Versions = slices.Compact(old.Versions)
		old.Components = m.Components.fillFrom(old.Components)
		old.Adds = append(slices.Clone(old.Adds), m.Adds...)
		modules := map[string]map[string]string{}
		maps.Copy(modules, old.Modules)
		maps.Copy(modules, m.Modules)
		old.Modules = modules
		f.Minors[name] = old
	}
	return nil
}

// DefaultVersion returns the default version.
func (c *Catalogue) DefaultVersion() string { return c.file.Default }

// SupportedVersions returns the versions in the catalogue, oldest first. Other patch versions of
// the same minors can be named as well.
func (c *Catalogue) SupportedVersions() []string {
	var out []string
	for _, m := range c.file.Minors {
		out = append(out, m.Versions...)
	}
	slices.SortFunc(out, compareVersions)
	return out
}

// NewerVersion returns the newest version in the catalogue that is newer than a version, "" if there is
// none.
func (c *Catalogue) NewerVersion(version string) string {
	all := c.SupportedVersions()
	if len(all) == 0 || !IsNewer(all[len(all)-1], version) {
		return ""
	}
	return all[len(all)-1]
}

// ResolveVersion returns the release for a version: "v1.37.1", "1.37.1", "1.37" for the newest
// listed patch version, or "" for the default. A patch version that is not listed has the
// components of its minor. A version of a bundle, of a minor after all listed ones, has
// the components of the bundle, and of the newest minor for components that the bundle
// does not name. The error is a diag.List.
func (c *Catalogue) ResolveVersion(version string) (Release, error) {
	if version == "" {
		version = c.file.Default
	}
	asked := version
	if m, ok := c.file.Minors[strings.TrimPrefix(version, "v")]; ok && len(m.Versions) > 0 {
		version = m.Versions[len(m.Versions)-1]
	}
	v, err := parseVersion(version)
	if err != nil {
		return Release{}, c.unsupportedError(asked, "is not a Kubernetes version")
	}
	name := "v" + v.String()
	m, ok := c.file.Minors[minorOf(v)]
	if has, bundled := c.beyond[name]; !ok && bundled {
		_, last := c.newestMinor()
		m = minor{Components: has.fillFrom(last.Components)}
	} else if !ok {
		return Release{}, c.unsupportedError(asked, "is not supported by this Slipway")
	}
	r := Release{
		Kubernetes: name,
		Known:      slices.Contains(m.Versions, name),
		Beyond:     !ok,
		Modules:    m.Modules[name],
		Upstream:   c.file.Upstream,
		Adds:       m.Adds,
		Docker:     c.file.Docker,
		Components: m.Components.fillFrom(c.file.Components),
	}
	if missing := r.Components.missingNames(); len(missing) > 0 {
		return Release{}, diag.List{{
			ID: IDCatalogue, Severity: diag.Error,
			Message: fmt.Sprintf("the release catalogue has no version of %s for Kubernetes %s", strings.Join(missing, ", "), name),
			Hint:    "add it to releases.yaml under minors." + minorOf(v) + ".components",
		}}
	}
	return r, nil
}

// CheckVersion returns an error for a version that a cluster cannot have. A bundle can have a version of a minor after all
// listed ones, so such a version is accepted.
func (c *Catalogue) CheckVersion(version string) error {
	_, err := c.WithVersion(version, Components{}).ResolveVersion(version)
	return err
}

// newestMinor returns the newest listed minor.
func (c *Catalogue) newestMinor() (name string, m minor) {
	for n := range c.file.Minors {
		if name == "" || IsNewer(n+".0", name+".0") {
			name = n
		}
	}
	return name, c.file.Minors[name]
}

func (c *Catalogue) unsupportedError(version, why string) error {
	return diag.List{{
		ID: IDUnsupported, Severity: diag.Error,
		Message: fmt.Sprintf("%q %s", version, why),
		Hint:    c.versionHint(),
	}}
}

// versionHint returns the hint about how to get a version.
func (c *Catalogue) versionHint() string {
	return "supported: " + strings.Join(c.SupportedVersions(), ", ") +
		" and other patch versions of these minors. For a version that only a bundle has: run `slipway bundle import " +
		"FILE`, or name the bundle with --bundle or spec.bundle. To add a minor: write all its components to " +
		"$SLIPWAY_HOME/releases.yaml (docs/guide/bundle.md#versions)"
}

// parseVersion accepts a full release version with or without "v".
func parseVersion(version string) (*semver.Version, error) {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	if err == nil && v.Metadata() != "" {
		err = errors.New("a Kubernetes version cannot have build metadata")
	}
	return v, err
}

func minorOf(v *semver.Version) string { return fmt.Sprintf("%d.%d", v.Major(), v.Minor()) }

// compareVersions orders valid versions.
func compareVersions(a, b string) int {
	x, errX := parseVersion(a)
	y, errY := parseVersion(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return x.Compare(y)
}
