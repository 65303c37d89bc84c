package runtime

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
	"slipway.dev/slipway/internal/spec"
)

const registryDir = "/etc/containerd/certs.d"

// A registrySet is what hosts know of registries.
type registrySet struct {
	v1alpha1.Registry
	logins map[string]bundle.Login
	trusts map[string][]byte // the authorities of a registry, in PEM form
	// own is the name of the cluster's own, "" without one, and mirror is where it has
	// the images of another.
	own    string
	mirror func(registry string) string
}

// registriesOf are those of the file, and the cluster's own, which nodes know
// without being told.
func registriesOf(env module.Env) (registrySet, error) {
	r := registrySet{Registry: env.Cluster.Spec.Registry, logins: map[string]bundle.Login{}, trusts: map[string][]byte{}}
	if env.Registry != nil {
		r.own, r.mirror = spec.RegistryName(env.Cluster), env.RegistryMirror
	}
	for _, l := range env.Logins() {
		r.logins[l.Registry] = l
		switch {
		case l.Registry == r.own:
			if env.Registry.CA != nil {
				r.trusts[r.own] = env.Registry.CA
			}
		case l.CA != "":
			content, err := bounded.ReadArgument(l.CA, bounded.Argument)
			if err != nil {
				return r, fmt.Errorf("reading the authority of registry %s: %w", l.Registry, err)
			}
			r.trusts[l.Registry] = content
		}
	}
	return r, nil
}

// registries are what the runtime reads at each pull, so that nothing has to be
// restarted: authorities, and containerd's hosts.toml files. What is left of Docker's
// is in its settings, and in those of kubelets.
func registries(env module.Env) (op.List, error) {
	r, err := registriesOf(env)
	if err != nil {
		return nil, err
	}
	file := authorityFile
	if env.Docker() {
		file = dockerAuthorityFile
	}
	var ops op.List
	for _, name := range slices.Sorted(maps.Keys(r.trusts)) {
		ops = append(ops, op.File{Path: file(name), Content: r.trusts[name]})
	}
	if !env.Docker() {
		for _, name := range r.names() {
			ops = append(ops, r.hosts(name))
		}
	}
	return append(ops, op.PutBack{Step: stepRegistries}), nil
}

// names are the registries of which containerd is told.
func (r registrySet) names() []string {
	names := slices.Concat(slices.Collect(maps.Keys(r.Mirrors)), r.Insecure, slices.Collect(maps.Keys(r.logins)))
	if r.own != "" {
		names = append(names, r.Private.MirrorOf...)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// hosts is containerd's file of one registry. It tries what stands there in order, and
// then the registry itself; which server that is it knows best (docker.io's is called
// otherwise).
//
// Credentials are a header there, of one host: a registry that takes them as they
// are is served, and one that wants a token bought with them, because containerd
// asks for that with the same header. The other places for them are worse. What
// the kubelet reads (config.json) goes by the name of the image, and containerd
// would send it to every mirror of that name, while those of a mirror have no
// place; containerd's own settings of them are deprecated, and read at its start
// alone.
func (r registrySet) hosts(name string) op.File {
	// Secret without a login, too: the file before may have one, and a plan shows
	// what goes.
	f := op.File{Path: path.Join(registryDir, name, "hosts.toml"), Secret: true}
	var b strings.Builder
	write := func(indent, host string) {
		if slices.Contains(r.Insecure, host) {
			fmt.Fprintf(&b, "%sskip_verify = true\n", indent)
		}
		if r.trusts[host] != nil {
			fmt.Fprintf(&b, "%sca = %q\n", indent, authorityFile(host))
		}
		if l := r.logins[host]; l.Username != "" {
			login := base64.StdEncoding.EncodeToString([]byte(l.Username + ":" + l.Password.Reveal()))
			fmt.Fprintf(&b, "%sheader = {Authorization = %q}\n", indent, "Basic "+login)
			f.Mode = 0o600
		}
	}
	if slices.Contains(r.Insecure, name) {
		// With this scheme and skip_verify containerd tries HTTPS first,
		// without looking at certificates, then plain HTTP.
		fmt.Fprintf(&b, "server = %q\n", "http://"+name)
	}
	write("", name)
	tables := map[string]bool{}
	mirror := func(at string) {
		if tables[spec.URLMeaning(at)] { // containerd passes over a file with a table twice
			return
		}
		tables[spec.URLMeaning(at)] = true
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", at)
		if within(at) {
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

// within says that a mirror is a namespace of a registry: its URL goes on behind
// the root of the registry's API, which containerd would put behind it else.
func within(mirror string) bool {
	_, at, _ := strings.Cut(mirror, "://")
	_, at, _ = strings.Cut(at, "/")
	return strings.HasPrefix(at, "v2/")
}

// authorityFile has the certificates of a registry's authority, for containerd.
func authorityFile(host string) string { return path.Join(registryDir, host, "slipway-ca.pem") }

// dockerAuthorityFile is the same for Docker.
func dockerAuthorityFile(host string) string { return path.Join("/etc/docker/certs.d", host, "ca.crt") }
