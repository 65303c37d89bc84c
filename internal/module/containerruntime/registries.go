package containerruntime

import (
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/registryname"
	"slipway.dev/slipway/internal/spec"
)

const registryDir = "/etc/containerd/certs.d"

// A registrySet holds the registries that hosts use.
type registrySet struct {
	v1alpha1.Registry
	logins map[string]bundle.Login
	trusts map[string][]byte // the CAs of a registry, in PEM form
	// own is the name of the private registry, "" without one. mirror returns the URL at
	// which it has the images of another registry.
	own    string
	mirror func(registry string) string
}

// registriesOf returns the registries of the cluster file, and the private registry.
func registriesOf(env module.Env) (registrySet, error) {
	r := registrySet{Registry: env.Cluster.Spec.Registry, logins: map[string]bundle.Login{}, trusts: map[string][]byte{}}
	if env.Registry != nil {
		r.own, r.mirror = spec.RegistryName(env.Cluster), env.RegistryMirror
	}
	for _, l := range env.RegistryLogins() {
		r.logins[l.Registry] = l
		switch {
		case l.Registry == r.own:
			if env.Registry.CA != nil {
				r.trusts[r.own] = env.Registry.CA
			}
		case l.CA != "":
			content, err := bounded.ReadArgument(l.CA, bounded.Argument)
			if err != nil {
				return r, fmt.Errorf("reading the CA of registry %s: %w", l.Registry, err)
			}
			r.trusts[l.Registry] = content
		}
	}
	return r, nil
}

// registryFiles returns the files that the runtime reads at each pull, so that no
// restart is necessary: CAs, and the hosts.toml files of containerd. Other settings for
// Docker are in its configuration and in the configuration of kubelets.
func registryFiles(env module.Env) (op.List, error) {
	r, err := registriesOf(env)
	if err != nil {
		return nil, err
	}
	file := authorityFile
	if env.UsesDocker() {
		file = dockerAuthorityFile
	}
	var ops op.List
	for _, name := range slices.Sorted(maps.Keys(r.trusts)) {
		ops = append(ops, op.File{Path: file(name), Content: r.trusts[name]})
	}
	if !env.UsesDocker() {
		for _, name := range r.registryNames() {
			ops = append(ops, r.hostsFile(name))
		}
	}
	return append(ops, op.RevertStep{Step: stepRegistries}), nil
}

// registryNames returns the registries that containerd has a file for.
func (r registrySet) registryNames() []string {
	names := slices.Concat(slices.Collect(maps.Keys(r.Mirrors)), r.Insecure, slices.Collect(maps.Keys(r.logins)))
	if r.own != "" {
		names = append(names, r.Private.MirrorOf...)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// hostsFile returns the containerd file of one registry. containerd tries the mirrors
// in it in order, and then the registry itself. It knows the server of the registry
// best (docker.io has another name).
//
// Credentials are a header for one host. A registry that accepts them directly works,
// and so does one that issues tokens, because containerd requests the token with the
// same header. The alternatives are worse. The config.json of the kubelet is keyed by
// image name: containerd would send the credentials to every mirror, and a mirror could
// not have its own. The credential settings of containerd itself are deprecated, and
// are read only at its start.
func (r registrySet) hostsFile(name string) op.File {
	// Secret also without credentials: the previous file may have some, and a plan shows
	// the removed lines.
	f := op.File{Path: path.Join(registryDir, name, "hosts.toml"), Secret: true}
	var b strings.Builder
	write := func(indent, host string) {
		same := func(name string) bool { return registryname.Host(name) == registryname.Host(host) }
		if slices.ContainsFunc(r.Insecure, same) {
			fmt.Fprintf(&b, "%sskip_verify = true\n", indent)
		}
		if name, ok := findKey(r.trusts, same); ok {
			fmt.Fprintf(&b, "%sca = %q\n", indent, authorityFile(name))
		}
		if name, ok := findKey(r.logins, same); ok && r.logins[name].Username != "" {
			l := r.logins[name]
			login := base64.StdEncoding.EncodeToString([]byte(l.Username + ":" + l.Password.Reveal()))
			fmt.Fprintf(&b, "%sheader = {Authorization = %q}\n", indent, "Basic "+login)
			f.Mode = 0o600
		}
	}
	if slices.Contains(r.Insecure, name) {
		// With this scheme and skip_verify, containerd tries HTTPS first, without
		// verifying certificates, then plain HTTP.
		fmt.Fprintf(&b, "server = %q\n", "http://"+name)
	}
	write("", name)
	tables := map[string]bool{}
	mirror := func(at string) {
		if tables[spec.URLMeaning(at)] { // containerd ignores a file with a duplicate table
			return
		}
		tables[spec.URLMeaning(at)] = true
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", at)
		if isNamespace(at) {
			b.WriteString("  override_path = true\n")
		}
		_, host, _ := strings.Cut(at, "://")
		write("  ", strings.SplitN(host, "/", 2)[0])
	}
	if r.own != "" && slices.Contains(r.Private.MirrorOf, name) { // the nearest first
		mirror(r.mirror(name))
	}
	for _, at := range r.Mirrors[name] {
		mirror(at)
	}
	f.Content = []byte(b.String())
	return f
}

// findKey returns the first key that a condition selects. The spelling of a host in a mirror
// can differ from the one in its login.
func findKey[V any](of map[string]V, selects func(string) bool) (string, bool) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if selects(key) {
			return key, true
		}
	}
	return "", false
}

// isNamespace reports whether a mirror is a namespace of a registry: its URL continues
// after the API root, which containerd would append otherwise.
func isNamespace(mirror string) bool {
	_, at, _ := strings.Cut(mirror, "://")
	_, at, _ = strings.Cut(at, "/")
	return strings.HasPrefix(at, "v2/")
}

// authorityFile returns the CA file of a registry for containerd.
func authorityFile(host string) string { return path.Join(registryDir, host, "slipway-ca.pem") }

// dockerAuthorityFile returns the CA file of a registry for Docker.
func dockerAuthorityFile(host string) string { return path.Join("/etc/docker/certs.d", host, "ca.crt") }
