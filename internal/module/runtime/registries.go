package runtime

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

const registryDir = "/etc/containerd/certs.d"

// A registrySet is what hosts know of registries.
type registrySet struct {
	v1alpha1.Registry
	passwords map[string]secret.String
	// own is the name of the cluster's own, "" without one; trusts are its
	// authorities, and mirror is where it has the images of another.
	own    string
	trusts []byte
	mirror func(registry string) string
}

// registriesOf are those of the file, and the cluster's own, which nodes know
// without being told.
func registriesOf(env module.Env) registrySet {
	r := registrySet{Registry: env.Cluster.Spec.Registry, passwords: env.Passwords}
	switch {
	case env.Docker(): // it has them in its own settings
		return registrySet{}
	case env.Registry == nil:
		return r
	}
	r.own, r.trusts, r.mirror = spec.RegistryName(env.Cluster), env.Registry.CA, env.RegistryMirror
	r.Auths = append(slices.Clone(r.Auths), v1alpha1.RegistryAuth{Registry: r.own, Username: r.Private.Username})
	r.passwords = maps.Clone(r.passwords)
	if r.passwords == nil {
		r.passwords = map[string]secret.String{}
	}
	r.passwords[r.own] = env.Registry.Password
	return r
}

// registries are containerd's hosts.toml files; it reads them at each pull, so
// that nothing has to be restarted. It tries what stands there in order, and then
// the registry itself; which server that is it knows best (docker.io's is called
// otherwise).
//
// Credentials are a header there, of one host: a registry that takes them as they
// are is served, and one that wants a token bought with them, because containerd
// asks for that with the same header. The other places for them are worse. What
// the kubelet reads (config.json) goes by the name of the image, and containerd
// would send it to every mirror of that name, while those of a mirror have no
// place; containerd's own settings of them are deprecated, and read at its start
// alone.
func registries(env module.Env) (op.List, error) {
	r := registriesOf(env)
	names := slices.Concat(slices.Collect(maps.Keys(r.Mirrors)), r.Insecure)
	var ops op.List
	if r.own != "" {
		names = append(names, r.Private.MirrorOf...)
		if r.trusts != nil {
			ops = append(ops, op.File{Path: authorityFile(r.own), Content: r.trusts})
		}
	}
	for _, a := range r.Auths {
		names = append(names, a.Registry)
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if ca := r.auth(name).CAFile; ca != "" {
			content, err := os.ReadFile(ca)
			if err != nil {
				return nil, fmt.Errorf("reading the authority of registry %s: %w", name, err)
			}
			ops = append(ops, op.File{Path: authorityFile(name), Content: content})
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		ops = append(ops, r.hosts(name))
	}
	return append(ops, op.PutBack{Step: stepRegistries}), nil
}

// hosts is the file of one registry.
func (r registrySet) hosts(name string) op.File {
	// Secret without a login, too: the file before may have one, and a plan shows
	// what goes.
	f := op.File{Path: path.Join(registryDir, name, "hosts.toml"), Secret: true}
	var b strings.Builder
	write := func(indent, host string) {
		if slices.Contains(r.Insecure, host) {
			fmt.Fprintf(&b, "%sskip_verify = true\n", indent)
		}
		a := r.auth(host)
		if a.CAFile != "" || host == r.own && r.trusts != nil {
			fmt.Fprintf(&b, "%sca = %q\n", indent, authorityFile(host))
		}
		if a.Username != "" {
			login := base64.StdEncoding.EncodeToString([]byte(a.Username + ":" + r.passwords[host].Reveal()))
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
	mirror := func(at string) {
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

func (r registrySet) auth(host string) v1alpha1.RegistryAuth {
	for _, a := range r.Auths {
		if a.Registry == host {
			return a
		}
	}
	return v1alpha1.RegistryAuth{}
}

// authorityFile has the certificates of a registry's authority.
func authorityFile(host string) string { return path.Join(registryDir, host, "slipway-ca.pem") }
