package module

import (
	"net"
	"path"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// A Registry is what is secret, or made by chance, of the registry that one of the
// hosts is.
type Registry struct {
	Password secret.String
	// Made says that nobody has chosen the password.
	Made bool
	// Hash is one of the password, as the registry keeps it.
	Hash string
	// CA is what nodes trust, in PEM form; nil is what they trust anyway. CAKey is
	// its key, of an authority that Slipway has made.
	CA, CAKey []byte
	// CAFile is where CA is on the manager.
	CAFile string
	// Cert and Key are the user's own, if there are any.
	Cert, Key []byte
}

// RegistryUnit is its service.
const RegistryUnit = "slipway-registry.service"

// Where the host has its settings; all but the images are here.
const (
	RegistryDir     = "/etc/slipway/registry"
	RegistryCA      = RegistryDir + "/ca.crt"
	RegistryCAKey   = RegistryDir + "/ca.key"
	RegistryCert    = RegistryDir + "/tls.crt"
	RegistryKey     = RegistryDir + "/tls.key"
	RegistryTrusted = RegistryDir + "/trusted.crt"
	RegistryUsers   = RegistryDir + "/htpasswd"
)

// IsRegistry selects the host that is the registry.
func (e Env) IsRegistry(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleRegistry) && e.Stays(h)
}

// RegistryClient is how that host speaks to its own registry: as nodes do.
func (e Env) RegistryClient() op.RegistryClient {
	p := e.Cluster.Spec.Registry.Private
	name, _, err := net.SplitHostPort(spec.RegistryName(e.Cluster))
	if err != nil {
		name = "localhost"
	}
	c := op.RegistryClient{
		Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port)), Name: name,
		Username: p.Username, Password: []byte(e.Registry.Password.Reveal()),
	}
	if e.Registry.CA != nil {
		c.CAFile = RegistryTrusted
	}
	return c
}

// RegistryMirror is where the cluster's own registry has the images of another one,
// as containerd asks for them.
func (e Env) RegistryMirror(registry string) string {
	return "https://" + path.Join(spec.RegistryName(e.Cluster), "v2", spec.RegistryFolder(registry))
}

// Logins are how registries are logged in to, and whom they are trusted by: those of
// the file, and the cluster's own, which is known without being told. Authorities are
// files on the manager.
func (e Env) Logins() (out []bundle.Login) {
	for _, a := range e.Cluster.Spec.Registry.Auths {
		out = append(out, bundle.Login{Registry: a.Registry, Username: a.Username, Password: e.Passwords[a.Registry], CA: a.CAFile})
	}
	if e.Registry != nil {
		own := e.Cluster.Spec.Registry.Private
		out = append(out, bundle.Login{Registry: spec.RegistryName(e.Cluster), Username: own.Username, Password: e.Registry.Password, CA: e.Registry.CAFile})
	}
	return out
}
