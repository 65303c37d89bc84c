package spec

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// BundledAddons returns the add-ons that need neither manifests nor a chart, only their
// names.
func BundledAddons() []string { return []string{"kube-state-metrics", "local-path", "metrics-server"} }

// IsURL reports whether a manifest or a repository is downloaded.
func IsURL(name string) bool {
	return strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://")
}

// IsOCI reports whether the repository of a chart is a path in a registry.
func IsOCI(repository string) bool { return strings.HasPrefix(repository, "oci://") }

// SplitPinnedURL splits the URL of a manifest: "URL@sha256:…" has the digest of the content.
func SplitPinnedURL(manifest string) (address, digest string) {
	at := strings.LastIndex(manifest, "@sha256:")
	if at < 0 || !IsURL(manifest) {
		return manifest, ""
	}
	return manifest[:at], manifest[at+1:]
}

var (
	minorSyntax  = regexp.MustCompile(`^\d+\.\d+$`)
	digestSyntax = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// maxAddonName leaves room for names that contain it.
const maxAddonName = 40

func (v *validator) checkAddons() {
	names := map[string]int{}
	for i, a := range v.c.Spec.Addons {
		path := yamlfile.IndexPath("spec.addons", i)
		v.checkAddonName(a, path+".name", i, names)
		v.checkAddonSource(a, path)
		for m, file := range a.Manifests {
			v.checkManifest(yamlfile.IndexPath(path+".manifests", m), file)
		}
		v.warnRepeated(path+".manifests", a.Manifests, strings.TrimSpace)
		if a.Chart != nil {
			v.checkChart(path+".chart", *a.Chart)
		}
		for m, minor := range a.Kubernetes {
			if !minorSyntax.MatchString(minor) {
				v.refuse(idInvalidVersion, yamlfile.IndexPath(path+".kubernetes", m),
					strconv.Quote(minor)+" is not a minor version of Kubernetes", `write it as "1.37", in quotes`)
			}
		}
		if a.Namespace != "" && len(validation.IsDNS1123Label(a.Namespace)) > 0 {
			v.refuse(idInvalidName, path+".namespace",
				strconv.Quote(a.Namespace)+
					" is not a valid namespace: only a-z, 0-9 and '-' are allowed, with a letter or digit first and last", didYouMeanName(a.Namespace))
		}
		v.checkPositive(path+".timeout", a.Timeout)
		if a.Retries < 0 || a.Retries > 10 {
			v.refuse(idInvalidValue, path+".retries", fmt.Sprintf("%d is not a valid number of retries", a.Retries), "use 0 to 10")
		}
	}
}

func (v *validator) checkAddonName(a v1alpha1.Addon, path string, i int, names map[string]int) {
	if v.requireText(path, a.Name, "write a name: the cluster identifies the add-on by its name") {
		return
	}
	if len(validation.IsDNS1123Label(a.Name)) > 0 || len(a.Name) > maxAddonName {
		v.refuse(idInvalidName, path,
			fmt.Sprintf("%q is not a valid add-on name: only a-z, 0-9 and '-' are allowed, with a letter or digit "+
				"first and last, at most %d characters",
				a.Name, maxAddonName),
			didYouMeanName(a.Name))
	}
	if first, ok := names[a.Name]; ok {
		v.refuse(idDuplicateName, path, "the name "+a.Name+" is also used by addons["+strconv.Itoa(first)+"]", "give each add-on its own name")
		return
	}
	names[a.Name] = i
}

// checkAddonSource requires exactly one source for an add-on.
func (v *validator) checkAddonSource(a v1alpha1.Addon, path string) {
	bundled := slices.Contains(BundledAddons(), a.Name)
	switch {
	case len(a.Manifests) > 0 && a.Chart != nil:
		v.refuse(idConflictingFields, path+".chart", "an add-on has either manifests or a chart, not both",
			"split it into two add-ons: Slipway installs them in the order of the list")
	case len(a.Manifests) == 0 && a.Chart == nil && !bundled && a.Name != "":
		hint := "name files, directories or URLs under manifests, or a chart"
		if known := BundledAddons(); len(known) > 0 {
			hint += "; " + orList(known) + " need neither"
		}
		v.refuse(idMissingField, path, "this add-on has no content", hint)
	}
	if len(a.Manifests) > 0 && (len(a.Values) > 0 || len(a.ValuesFiles) > 0) {
		v.refuse(idConflictingFields, path+".values", "manifests cannot have values",
			"remove the values, or use a chart: manifests are applied as they are")
	}
}

func (v *validator) checkManifest(path, name string) {
	if v.requireText(path, name, "write a file, a directory or a URL") {
		return
	}
	if address, digest := SplitPinnedURL(name); IsURL(name) {
		v.checkDownloadURL(path, address, digest, address+"@sha256:…")
	}
}

// checkDownloadURL checks a URL of a download; pinned is the form with a checksum, for the hint.
func (v *validator) checkDownloadURL(path, address, digest, pinned string) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "":
		v.refuse(idInvalidAddress, path, strconv.Quote(address)+" is not a URL", "write it as https://HOST/PATH")
	case u.User != nil:
		v.refuse(idInvalidAddress, path, "a URL must not have a user or password: state and plans would contain them",
			"remove the user and password, and download content that needs a login to a file first")
	case digest != "" && !digestSyntax.MatchString(digest):
		v.refuse(idInvalidValue, path, strconv.Quote(digest)+" is not a checksum", "write sha256: and 64 hexadecimal digits")
	case digest == "" && u.Scheme == "http" && !thisMachine(u.Hostname()):
		v.refuse(idInsecureSource, path, "content sent over plain HTTP can be replaced by anyone on the network path",
			"use https://, or pin its checksum: "+pinned)
	}
}

// thisMachine reports whether content for a host is not sent over a network. Names below
// localhost do not count: a DNS server can resolve them to any address.
func thisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == localhost || err == nil && ip.Unmap().IsLoopback()
}

func (v *validator) checkChart(path string, c v1alpha1.Chart) {
	if c.Digest != "" && !digestSyntax.MatchString(c.Digest) {
		v.refuse(idInvalidValue, path+".digest", strconv.Quote(c.Digest)+" is not a checksum", "write sha256: and 64 hexadecimal digits")
	}
	switch {
	case c.Path != "" && (c.Repository != "" || c.Name != "" || c.Version != ""):
		v.refuse(idConflictingFields, path+".path", "a chart comes either from a path or from a repository, not from both",
			"remove path, or remove repository, name and version")
	case c.Path != "" && (IsURL(c.Path) || IsOCI(c.Path)):
		v.refuse(idInvalidValue, path+".path", "path must be a directory or an archive on this machine",
			"move this value to repository, and add name and version")
	case c.Path != "":
	case v.requireText(path+".repository", c.Repository, "set the repository, or the path of a directory or an archive"):
	case IsOCI(c.Repository):
		if u, err := url.Parse(c.Repository); err != nil || u.Host == "" || u.User != nil {
			v.refuse(idInvalidAddress, path+".repository", strconv.Quote(c.Repository)+" is not a path in a registry",
				"write it as oci://HOST/PATH, without the chart's name")
		}
	case !IsURL(c.Repository):
		v.refuse(idInvalidAddress, path+".repository", strconv.Quote(c.Repository)+" is not a repository",
			"write it as https://HOST/PATH or oci://HOST/PATH; for a chart on this machine use path")
	default:
		v.checkDownloadURL(path+".repository", c.Repository, c.Digest, "digest: sha256:…")
	}
	if c.Path == "" {
		v.requireText(path+".name", c.Name, "write the name of the chart")
		v.requireText(path+".version", c.Version, "write one exact version from the repository, so that Slipway applies what it planned")
	}
}
